//! One module for each path that is measured.
//!
//! Owns what is set up, what is timed and what is not. Each module has the thing that is measured
//! as a value of its own, which the criterion benches use as well, and a function `run` that fills
//! a report.

pub mod append;
pub mod bodies;
pub mod live;
pub mod many;
pub mod memory;
pub mod objects;
pub mod open;
pub mod rebuild;
pub mod size;
pub mod wear;

use std::io;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::{BenchError, during};

/// How a run is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Small sizes and few rounds: every figure, none of them steady.
    pub quick: bool,
    /// Where logs and stores go, on the disk that is to be measured.
    pub folder: PathBuf,
}

impl Settings {
    /// One of two numbers.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// A fresh folder that goes away with the value.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn fresh(&self) -> Result<TempDir, BenchError> {
        let made: io::Result<TempDir> =
            tempfile::Builder::new().prefix("rederive-bench-").tempdir_in(&self.folder);
        made.map_err(during("make a folder"))
    }
}

//! Rederive beside what a host would use instead: the same data, one run, one machine.
//!
//! Owns the peers, the measurements and the targets. [`paths`] has one module for each path that is
//! measured; the binary `compare` and the criterion benches call the same code. Nothing else in the
//! workspace depends on this crate, so the peers' libraries stay in it.

pub mod data;
pub mod disk;
mod error;
pub mod measure;
pub mod paths;
pub mod peers;
pub mod report;

pub use error::{BenchError, during};

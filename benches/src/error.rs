//! The one error of a benchmark: it stops, and says at what.

use std::error::Error;

/// Why a run stopped. There is nothing to recover: read it, mend the cause, run again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A library or the operating system failed.
    #[error("cannot {what}")]
    Failed {
        /// What was attempted.
        what: &'static str,
        /// What was said about it.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A peer does not hold what it was given. Its figures mean nothing.
    #[error("{peer} holds {found}, and was given {due}")]
    Differs {
        /// The peer.
        peer: String,
        /// What it holds.
        found: String,
        /// What it was given.
        due: String,
    },
    /// A workload or a result is not what the measurement needs.
    #[error("{0}")]
    Unfit(String),
}

/// Names the attempt in an error of any kind, for `map_err`.
pub fn during<E: Into<Box<dyn Error + Send + Sync>>>(what: &'static str) -> impl FnOnce(E) -> BenchError {
    move |source| BenchError::Failed { what, source: source.into() }
}

//! What the engine promises, by promise.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests"
)]

mod errors;
mod power;
mod sim;
mod vectors;

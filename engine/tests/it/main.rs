//! What the engine promises, by promise.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests"
)]

mod closers;
mod damage;
mod errors;
mod fixtures;
mod fork;
mod limits;
mod power;
mod sessions;
mod sim;
mod stress;
mod vectors;

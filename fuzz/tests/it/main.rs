//! What the test support promises, a module a promise.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "tests stop where their premise fails, and say when they skip"
)]

mod cases;
mod support;
mod vectors;

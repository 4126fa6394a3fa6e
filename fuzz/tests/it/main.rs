//! What the test support promises, a module a promise.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "tests stop where their premise fails, and say when they skip"
)]

mod cases;
mod examples;
mod fixtures;
mod rules;
mod support;
mod vectors;
mod workload;

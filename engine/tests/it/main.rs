//! What the engine promises, by promise.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr, reason = "tests")]

mod damage;
mod vectors;

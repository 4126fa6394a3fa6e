//! What the command promises, with real processes.
//!
//! Each test runs in seconds. `REDERIVE_LONG=1` runs the long versions; `REDERIVE_SEED` replays a run.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::panic,
    reason = "tests"
)]

mod deletion;
mod following;
mod full_disk;
mod imports;
mod kills;
mod listing;
mod pictures;
mod processes;
mod support;

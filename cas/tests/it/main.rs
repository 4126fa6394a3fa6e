//! What the crate promises, a module for each promise.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test stops where it is wrong"
)]

mod admission;
mod durability;
mod golden;
mod lifting;
#[cfg(feature = "normalise")]
mod normalising;
mod processes;
mod references;
mod routes;
mod samples;
mod scrub;
mod sweeping;

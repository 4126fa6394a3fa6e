//! The promises of the projection, through its public API.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, unreachable_pub, reason = "tests")]

mod attachments;
mod audit;
mod example;
mod formats;
mod incremental;
mod providers;
mod recorded;
mod step;

//! Placeholder of the crate's face.

mod journal;

pub use journal::{Durability, JournalError, Ticket};

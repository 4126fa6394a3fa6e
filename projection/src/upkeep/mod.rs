//! Upkeep: what rewrites the surface so that a conversation can go on. Compaction, pruning, and
//! attachments that cannot be sent.
//!
//! Every operation is one logged replace in one atomic batch, and cannot produce a log that admission
//! refuses or a request that a provider would: a tool call is never parted from its result, and node
//! 0 is never covered while it is the system prompt.

mod attachments;
mod compaction;
mod error;
mod outline;
mod prune;

pub(crate) use compaction::input_recorded_in;
pub use compaction::{Compaction, Summary, SummaryCall, summary_input};
pub use error::{RangeError, UpkeepError};
pub use outline::SurfaceRange;

use crate::step::Conversation;

/// The operations that rewrite what the model sees, while no request is on its way.
#[derive(Debug)]
pub struct Upkeep<'c> {
    conversation: &'c mut Conversation,
}

impl<'c> Upkeep<'c> {
    pub(crate) fn of(conversation: &'c mut Conversation) -> Self {
        Self { conversation }
    }
}

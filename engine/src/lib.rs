//! The log of a conversation: admitted once, kept durable, folded into what the model sees.

mod admission;
mod event;
mod fold;
mod ids; // reading order, not the alphabet
mod journal;
mod types;

pub use admission::{Refusal, Rule};
pub use event::{
    Draft, Event, HeaderLine, Kind, LogOnly, NodeKind, SurfaceOp, equal_by_value, list_items, members,
    object_member, string_text,
};
pub use fold::{Counters, Fold, Header, Node, PendingCall, Surface, TurnState};
pub use ids::{Generation, Place, SegmentId, Seq, SessionId, SessionKey};
pub use journal::{Durability, JournalError, Ticket};
pub use types::TypeRegistry;

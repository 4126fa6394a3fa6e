//! The log of a conversation: admitted once, kept durable, folded into what the model sees.

mod admission;
mod event;
mod fold;
mod ids; // reading order, not the alphabet
mod index;
mod journal;
mod segment;
mod store;
mod types;

pub use admission::{Refusal, Replay, Rule};
pub use event::{
    Draft, Event, HeaderLine, Kind, LogOnly, NodeKind, SurfaceOp, equal_by_value, list_items, members,
    object_member, string_text,
};
pub use fold::{Counters, Fold, Header, Node, PendingCall, Surface, TurnState};
pub use ids::{Generation, Place, SegmentId, Seq, SessionId, SessionKey};
pub use index::{IndexError, Owner};
pub use journal::{Durability, JournalError, Ticket};
pub use segment::{SegmentError, StepKind, StepMark};
pub use store::{
    AppendError, BadListPlace, Clock, Deleted, Events, Examination, Finding, Follower, ForkError,
    ImportError, Imported, ListPlace, Loss, NewSession, Reader, Repaired, STORE_FORMAT, Session, SessionInfo,
    SessionPage, SessionState, Store, StoreError, StoreOptions, StoreStats, Swept,
};
pub use types::TypeRegistry;

/// Default of the largest admitted event, in bytes of its line: 64 MiB.
pub const EVENT_BYTES_MAX_DEFAULT: u64 = 64 * 1024 * 1024;

//! The log of a conversation: admitted once, kept durable, folded into what the model sees.
//!
//! ```
//! use rederive_engine::{Draft, Durability, NewSession, Store};
//!
//! # let folder = tempfile::tempdir()?;
//! let store = Store::create(folder.path().join("store"))?;
//! let mut session = store.create_session(NewSession::new("chat-1"))?;
//! let said = r#"{"role":"user","content":[{"type":"text","text":"Hello"}]}"#;
//! session.append(vec![Draft::append("user/message", said)], Durability::Synced)?.wait()?;
//! session.close()?;
//!
//! let reader = store.read_session(&store.sessions(None, 1)?[0].id().clone())?;
//! assert_eq!(reader.fold().surface().first().unwrap().text(), said);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it guarantees: a batch is admitted whole or not at all, by one set of rules for live
//! appends, imports and recovered journals; what was acknowledged as synced survives a kill and a
//! power cut; a session has one writer over all processes; opening costs what the model sees.
//!
//! What survives what, and how that is tested: `docs/RELIABILITY.md`. Every byte on disk:
//! `docs/FORMAT.md`. The modules, in the order in which to read them: `ids`, `event`, `types`,
//! `admission`, `fold`; `journal`, `segment`, `index`, which do not know each other; `store`, which
//! puts them together.

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
    Draft, Event, HeaderLine, Kind, LogOnly, NodeKind, SurfaceOp, equal_by_value, is_json_object, list_items,
    members, object_member, string_text,
};
pub use fold::{
    Counters, Fold, Header, LastRequest, Node, PendingCall, StepState, Surface, Target, TurnState, message_id,
};
pub use ids::{Generation, Place, SegmentId, Seq, SessionId, SessionKey};
pub use index::{IndexError, Owner};
pub use journal::{Durability, JournalError, JournalStats, Ticket};
pub use segment::{SegmentError, StepKind, StepMark};
pub use store::{
    AppendError, BadListPlace, Clock, Deleted, Events, Examination, Finding, Follower, ForkError,
    ImportError, Imported, ListPlace, Loss, NewSession, Reader, Repaired, STORE_FORMAT, Session, SessionInfo,
    SessionPage, SessionState, Store, StoreError, StoreOptions, StoreStats, Swept,
};
pub use types::TypeRegistry;

/// Default of the largest admitted event, in bytes of its line: 64 MiB.
pub const EVENT_BYTES_MAX_DEFAULT: u64 = 64 * 1024 * 1024;

//! Why a step did not go on. Nothing was written by whatever failed; [`Conversation::at`] gives the
//! state in which the log stands.
//!
//! [`Conversation::at`]: super::Conversation::at

use rederive_engine::{AppendError, JournalError, Seq, StoreError};

use super::message::BadMessage;
use crate::formats::FormatError;
use crate::projector::ProjectError;

/// Why an operation of a conversation was refused. It changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// A turn is open. Go on with it, by [`Conversation::at`](super::Conversation::at).
    #[error("turn {turn} is open")]
    TurnOpen {
        /// The turn.
        turn: u64,
    },
    /// A message cannot be sent as it is. Correct it.
    #[error("message refused: {0}")]
    Message(#[from] BadMessage),
    /// The inbox does not hold what was asked for.
    #[error(transparent)]
    Inbox(#[from] InboxError),
    /// A tool of the plan is no JSON object, or two have one name. Correct the plan.
    #[error("tool {index} of the plan: {why}")]
    Tool {
        /// Its place among the plan's tools.
        index: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// The answer is not one of the model that was asked. Correct it.
    #[error("the answer names {found}, and the request went to {asked}")]
    Source {
        /// Provider and model of the request.
        asked: String,
        /// Provider and model of the answer.
        found: String,
    },
    /// Calls of the answer have no result yet. Finish or refuse them first.
    #[error("tool calls without a result: {}", calls.join(", "))]
    Unanswered {
        /// Their ids.
        calls: Vec<String>,
    },
    /// A result for a call that does not wait for one: it was answered already, by its tool or by
    /// the closers of an interrupted turn, or was never asked for. Drop the result, or tell the model
    /// in a message.
    #[error("the tool call {call} does not wait for a result")]
    NotPending {
        /// The call's id.
        call: String,
    },
    /// The tool was started already.
    #[error("the tool call {call} was started at {at}")]
    Started {
        /// The call's id.
        call: String,
        /// Its `tool/call`.
        at: Seq,
    },
    /// The request has no body in the provider's format, so it was neither logged nor sent. The
    /// error names the node; mend it by a replace.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The log could not be appended to.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The log could not be synced; reopen the store.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// What is stored cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no header in force; the log is not one of this protocol.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// The conversation was closed.
    #[error("the conversation is closed")]
    Closed,
}

/// Why the inbox did not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    /// A message of this id waits already. Choose another one.
    #[error("a message {id:?} is in the inbox already")]
    Present {
        /// The id.
        id: String,
    },
    /// No such message waits; it may have been sent.
    #[error("no message {id:?} is in the inbox")]
    Absent {
        /// The id.
        id: String,
    },
    /// A step has claimed the message and is about to send it.
    #[error("the message {id:?} is claimed by a step")]
    Claimed {
        /// The id.
        id: String,
    },
}

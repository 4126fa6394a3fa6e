//! Why an upkeep was refused. It changed nothing.

use rederive_engine::{Seq, StoreError};

use crate::images::QuarantineError;
use crate::one_shot::OneShotError;
use crate::step::StepError;

/// Why a range of the surface cannot be compacted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// An end of the range is not on the surface, or the ends are in the wrong order.
    #[error("{start}..={end} is no range of the surface")]
    NoRange {
        /// The first node.
        start: Seq,
        /// The last node.
        end: Seq,
    },
    /// The range covers node 0, which is the system prompt. Start behind it.
    #[error("the range covers the system prompt at {seq}")]
    SystemHead {
        /// The system prompt's node.
        seq: Seq,
    },
    /// The range covers a node that is to be kept.
    #[error("the range covers node {seq}, which is to be kept")]
    Kept {
        /// The node.
        seq: Seq,
    },
    /// The range parts a tool call from its result. The widened range does not, where there is one.
    #[error("the range parts the call {call} from its result, at node {node}{}", widened_hint(*.widened))]
    PartsCall {
        /// The call's id.
        call: String,
        /// The node of the pair that the range leaves behind.
        node: Seq,
        /// The smallest wider range that parts no pair, and covers nothing that is to be kept.
        widened: Option<(Seq, Seq)>,
    },
    /// A tool call of the range has no result yet. Finish it first.
    #[error("the call {call} of node {node} has no result yet")]
    Pending {
        /// The call's id.
        call: String,
        /// The assistant message that asks for it.
        node: Seq,
    },
}

fn widened_hint(widened: Option<(Seq, Seq)>) -> String {
    widened.map_or(String::new(), |(start, end)| format!("; {start}..={end} does not"))
}

/// Why an upkeep was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpkeepError {
    /// The range cannot be compacted.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// What was to be replaced has changed since. Begin again, from what is there now.
    #[error("the range {start}..={end} changed since the compaction was begun")]
    Changed {
        /// The first node of the range.
        start: Seq,
        /// The last node of the range.
        end: Seq,
    },
    /// The compaction was begun in another session. Commit it there.
    #[error("the compaction was begun in session {session}")]
    OtherSession {
        /// That session.
        session: String,
    },
    /// The node is no tool result that the model sees.
    #[error("node {seq} is no tool result on the surface")]
    NoToolResult {
        /// The event.
        seq: Seq,
    },
    /// The summary says nothing. Ask again, or give the compaction up.
    #[error("the summary has no text")]
    BlankSummary,
    /// The summarising call cannot be made of these nodes.
    #[error(transparent)]
    OneShot(#[from] OneShotError),
    /// The event does not say what the summarising call was made from.
    #[error("event {seq} is no compaction/start that says what it summarises")]
    NoStart {
        /// The event.
        seq: Seq,
    },
    /// The node's images cannot be replaced.
    #[error(transparent)]
    Images(#[from] QuarantineError),
    /// The log could not be appended to or read.
    #[error(transparent)]
    Step(#[from] StepError),
    /// What is stored cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

//! What is open: the turn, its step, and the tool calls that have no result yet.
//!
//! Owns what the closers of an interrupted turn are made from. Knows no surface.

use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;

use crate::event::json::{array_items, as_safe_integer, as_text, member};
use crate::event::{Event, Kind, LogOnly};
use crate::ids::Seq;

/// A tool call that an assistant message of the open turn asked for and that has no result yet.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct PendingCall {
    pub(crate) call_id: String,
    pub(crate) node: Seq,
    pub(crate) recorded: Option<Seq>,
}

impl PendingCall {
    /// The call's id, as the model gave it.
    pub fn call_id(&self) -> &str {
        &self.call_id
    }

    /// The assistant message that asks for the call.
    pub fn node(&self) -> Seq {
        self.node
    }

    /// The `tool/call` that recorded the start of the tool, where there is one.
    pub fn recorded(&self) -> Option<Seq> {
        self.recorded
    }
}

/// The open turn of a log, its open step, and its unanswered tool calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct TurnState {
    pub(crate) last_turn: u64,
    pub(crate) turn: Option<u64>,
    pub(crate) step: Option<u64>,
    pub(crate) last_step: u64,
    pub(crate) pending: Arc<Vec<PendingCall>>,
}

impl TurnState {
    /// The number of the turn that is open.
    pub fn turn(&self) -> Option<u64> {
        self.turn
    }

    /// The number of the step that is open.
    pub fn step(&self) -> Option<u64> {
        self.step
    }

    /// The highest turn number that the log has seen; zero before the first.
    pub fn last_turn(&self) -> u64 {
        self.last_turn
    }

    /// The number of the last step of the turn that is open or was last; zero before its first.
    pub fn last_step(&self) -> u64 {
        self.last_step
    }

    /// The calls without a result, in the order in which they were asked for.
    pub fn pending_calls(&self) -> &[PendingCall] {
        &self.pending
    }

    pub(crate) fn take(&mut self, event: &Event) {
        let number = |key: &str| member(&event.data, key).and_then(as_safe_integer);
        match &event.kind {
            Kind::LogOnly(LogOnly::TurnStart) => {
                let turn = number("turn").unwrap_or(self.last_turn + 1);
                self.last_turn = self.last_turn.max(turn);
                self.turn = Some(turn);
                self.step = None;
                self.last_step = 0;
                self.pending = Arc::default();
            }
            Kind::LogOnly(LogOnly::TurnEnd) => {
                self.turn = None;
                self.step = None;
                self.pending = Arc::default();
            }
            Kind::LogOnly(LogOnly::StepStart) => {
                let step = number("step").unwrap_or(self.last_step + 1);
                self.last_step = step;
                self.step = Some(step);
            }
            Kind::LogOnly(LogOnly::StepEnd) => self.step = None,
            Kind::LogOnly(LogOnly::ToolCall) => {
                if let Some(id) = member(&event.data, "callId").and_then(as_text)
                    && let Some(at) =
                        self.pending.iter().position(|call| call.recorded.is_none() && call.call_id == id)
                    && let Some(call) = Arc::make_mut(&mut self.pending).get_mut(at)
                {
                    call.recorded = Some(event.seq);
                }
            }
            Kind::AssistantMessage if self.turn.is_some() => {
                for call_id in tool_calls(event) {
                    let call = PendingCall { call_id, node: event.seq, recorded: None };
                    Arc::make_mut(&mut self.pending).push(call);
                }
            }
            Kind::ToolResult
                if event.op == Some(crate::event::SurfaceOp::Append) && !self.pending.is_empty() =>
            {
                for id in answered_calls(event) {
                    if let Some(at) = self.pending.iter().position(|call| call.call_id == id) {
                        Arc::make_mut(&mut self.pending).remove(at);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The ids of the calls that an assistant message asks for, in order.
fn tool_calls(event: &Event) -> Vec<String> {
    static CALL: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("tool-call"));
    content_ids(event, &CALL, "tool-call", "id")
}

/// The ids of the calls that a tool result answers.
fn answered_calls(event: &Event) -> Vec<String> {
    static RESULT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("tool-result"));
    content_ids(event, &RESULT, "tool-result", "toolCallId")
}

fn content_ids(event: &Event, finder: &Finder<'_>, block_type: &str, key: &str) -> Vec<String> {
    let Some(message) = event.visible.map(|span| span.of(&event.data)) else { return Vec::new() };
    // Most messages have no such block; finding that out costs one search.
    if finder.find(message).is_none() {
        return Vec::new();
    }
    let Some(content) = member(message, "content") else { return Vec::new() };
    array_items(content)
        .into_iter()
        .filter(|block| member(block, "type").and_then(as_text).as_deref() == Some(block_type))
        .filter_map(|block| member(block, key).and_then(as_text).map(std::borrow::Cow::into_owned))
        .collect()
}

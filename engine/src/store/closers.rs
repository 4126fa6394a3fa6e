//! Closers: what ends a turn that a crash left open.
//!
//! Owns their text. A turn that is open when a session is opened again gets an error result for
//! each unanswered call, then `step/end`, then `turn/end`; their times repeat the last event's, so
//! that the same log always gets the same closers, whoever writes or only shows them. The texts
//! follow the reference harness, whose logs end the same way.

use crate::event::{Draft, line::write_string};
use crate::fold::{Fold, PendingCall};
use crate::ids::Seq;

/// The closers of `fold`'s open turn, in order; empty where no turn is open.
pub(crate) fn closers(fold: &Fold) -> Vec<Draft> {
    let state = fold.turn();
    let Some(turn) = state.turn() else { return Vec::new() };
    let time_ms = fold.last_time_ms();
    let mut drafts = Vec::new();
    let mut seq = fold.next_seq();
    for call in state.pending_calls() {
        // A call whose message left the surface needs no result, and a result would have no call.
        if fold.surface().get(call.node()).is_some() {
            drafts
                .push(result(call, turn, state.step().unwrap_or_else(|| state.last_step()), seq).at(time_ms));
            seq = seq.next();
        }
    }
    if let Some(step) = state.step() {
        drafts.push(Draft::new("step/end", format!("{{\"turn\":{turn},\"step\":{step}}}")).at(time_ms));
    }
    let end = format!("{{\"turn\":{turn},\"reason\":{{\"kind\":\"interrupted\"}}}}");
    drafts.push(Draft::new("turn/end", end).at(time_ms));
    drafts
}

const OUTCOME_UNKNOWN: (&str, &str, &str) = (
    "ToolOutcomeUnknownError",
    "TOOL_OUTCOME_UNKNOWN",
    "The tool was started, and no result of it was recorded before the turn was interrupted. Whether \
     it took effect is unknown. Repeat it only where repeating does no harm; otherwise look at what \
     it left behind, or ask the user.",
);

const NOT_STARTED: (&str, &str, &str) = (
    "ToolNotStartedError",
    "TOOL_NOT_STARTED",
    "The turn was interrupted before the tool was started. Call it again if it is still needed.",
);

fn result(call: &PendingCall, turn: u64, step: u64, seq: Seq) -> Draft {
    let (name, code, text) = if call.recorded().is_some() { OUTCOME_UNKNOWN } else { NOT_STARTED };
    let mut id = Vec::new();
    write_string(call.call_id(), &mut id);
    let id = String::from_utf8_lossy(&id);
    let mut message_id = Vec::new();
    write_string(&format!("interrupted-{seq}"), &mut message_id);
    let message_id = String::from_utf8_lossy(&message_id);
    let data = format!(
        "{{\"turn\":{turn},\"step\":{step},\"message\":{{\"id\":{message_id},\"role\":\"user\",\
         \"source\":{{\"kind\":\"tool\",\"callId\":{id}}},\"content\":[{{\"type\":\"tool-result\",\
         \"toolCallId\":{id},\"isError\":true,\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}]}},\
         \"error\":{{\"name\":\"{name}\",\"code\":\"{code}\"}}}}"
    );
    Draft::append("tool/result", data).citing(call.recorded())
}

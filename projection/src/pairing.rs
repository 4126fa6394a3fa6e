//! Tool calls and their results on a surface: each call answered once, right after it.
//!
//! Owns the check that admission leaves out, since a log may hold what no provider takes.

use std::collections::HashMap;

use rederive_engine::{NodeKind, Seq, Surface, list_items, object_member, string_text};

use crate::audit::Problem;
use crate::step::message::is_type;

/// The blocks of a message that are of `block_type`, by the string under `key`.
pub(crate) fn ids(message: &str, block_type: &str, key: &str) -> Vec<String> {
    if !message.contains(block_type) {
        return Vec::new();
    }
    list_items(object_member(message, "content").unwrap_or_default())
        .into_iter()
        .filter(|block| is_type(block, block_type))
        .map(|block| object_member(block, key).and_then(string_text).unwrap_or_default().into_owned())
        .collect()
}

/// What on `surface` no provider takes. One pass over the nodes.
pub(crate) fn problems(surface: &Surface) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut open: HashMap<String, Seq> = HashMap::new();
    let mut note = |seq: Seq, call: &str, what| {
        problems.push(Problem { seq: seq.value(), call: Some(call.to_owned()), what });
    };
    for node in surface.nodes() {
        let results = if node.kind() == NodeKind::ToolResult {
            ids(node.text(), "tool-result", "toolCallId")
        } else {
            Vec::new()
        };
        if results.is_empty() {
            for (call, asked) in open.drain() {
                note(asked, &call, "a tool call without a result right after it");
            }
        }
        for call in results {
            if open.remove(&call).is_none() {
                note(node.seq(), &call, "a tool result without its call right before it");
            }
        }
        if node.kind() == NodeKind::Assistant {
            for call in ids(node.text(), "tool-call", "id") {
                if call.is_empty() {
                    note(node.seq(), &call, "a tool call with an empty id");
                } else if open.insert(call.clone(), node.seq()).is_some() {
                    note(node.seq(), &call, "a tool call id that stands twice");
                }
            }
        }
    }
    problems.sort_by(|a, b| (a.seq, &a.call).cmp(&(b.seq, &b.call)));
    problems
}

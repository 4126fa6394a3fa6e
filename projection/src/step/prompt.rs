//! The operations by which the surface comes to say a system prompt.
//!
//! Owns the choice between appending, rewriting and emptying: DESIGN.md § The step protocol. Pure:
//! the same surface and prompt always give the same events.

use rederive_engine::{Draft, Node, Surface};

use super::message::{system, text_of};

/// What a prompt costs.
pub(super) struct PromptOperations {
    pub(super) drafts: Vec<Draft>,
    /// Whether a node that was sent before is rewritten.
    pub(super) rewrites: bool,
}

/// Where the operations are logged.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) turn: u64,
    pub(super) step: u64,
    /// The seq of the first event that the batch writes: it makes the messages' ids unique.
    pub(super) seq: u64,
}

/// The operations after which `surface` says `prompt`.
///
/// - No system node: one is appended, even an empty one; it reserves node 0.
/// - A series goes on, on a route that reads updates in the history: a changed prompt is appended, an
///   empty one empties every system node.
/// - Otherwise the prompt is consolidated at the head: every later system node is emptied, then the
///   head is rewritten where its text differs.
/// - Equal text: nothing.
pub(super) fn operations(
    surface: &Surface,
    prompt: &str,
    reads_updates: bool,
    new_series: bool,
    at: At,
) -> PromptOperations {
    let nodes: Vec<_> = surface.system_nodes().cloned().collect();
    let mut drafts = Vec::new();
    let Some((head, later)) = nodes.split_first() else {
        drafts.push(Draft::append("system/message", data(prompt, at, 0)));
        return PromptOperations { drafts, rewrites: false };
    };
    let says = |node: &Node| text_of(node.text());
    if reads_updates && !new_series {
        let current = nodes.iter().rev().map(|node| says(node)).find(|text| !text.is_empty());
        let current = current.unwrap_or_default();
        if current == prompt {
            return PromptOperations { drafts, rewrites: false };
        }
        if !prompt.is_empty() {
            drafts.push(Draft::append("system/message", data(prompt, at, 0)));
            return PromptOperations { drafts, rewrites: false };
        }
    }
    for node in later.iter().filter(|node| !says(node).is_empty()) {
        drafts.push(rewrite(node, "", at, drafts.len()));
    }
    if says(head) != prompt {
        drafts.push(rewrite(head, prompt, at, drafts.len()));
    }
    let rewrites = !drafts.is_empty();
    PromptOperations { drafts, rewrites }
}

fn rewrite(node: &Node, prompt: &str, at: At, index: usize) -> Draft {
    let seq = node.seq();
    Draft::replace("system/message", data(prompt, at, index), seq, seq).citing([seq])
}

fn data(prompt: &str, at: At, index: usize) -> String {
    let At { turn, step, seq } = at;
    let message = system(&format!("system-{seq}-{index}"), prompt);
    format!("{{\"turn\":{turn},\"step\":{step},\"message\":{message}}}")
}

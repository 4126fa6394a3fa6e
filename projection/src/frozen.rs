//! Frozen messages: what a node of the surface says to the model.
//!
//! Owns the projection of one event, the only one there is: the live projector, reconstruction and
//! verification all call [`project`]. Pure: no store, no header, no position.

use std::fmt;
use std::sync::Arc;

use rederive_engine::{Event, Node, NodeKind, Seq, list_items, object_member};

/// The message that a surface event projects to, verbatim; `None` where it projects to nothing.
///
/// `message` is the verbatim message of an event of this kind. A `user/message` and a `tool/result`
/// project to their message; a `system/message` and an `assistant/message` likewise, unless its
/// content is empty: an empty system node only keeps its place, and an empty assistant message
/// only carries usage.
///
/// ```
/// use rederive_engine::NodeKind;
/// use rederive_projection::project;
///
/// let said = r#"{"role":"system","content":[{"type":"text","text":"Be brief."}]}"#;
/// assert_eq!(project(NodeKind::System, said), Some(said));
/// assert_eq!(project(NodeKind::System, r#"{"role":"system","content":[]}"#), None);
/// ```
pub fn project(kind: NodeKind, message: &str) -> Option<&str> {
    match kind {
        NodeKind::User | NodeKind::ToolResult => Some(message),
        NodeKind::System | NodeKind::Assistant => (!content_is_empty(message)).then_some(message),
    }
}

/// The message that `event` projects to, verbatim; `None` for log-only events and where [`project`]
/// says so.
pub fn project_event(event: &Event) -> Option<&str> {
    project(event.kind().node()?, event.visible()?)
}

fn content_is_empty(message: &str) -> bool {
    // An empty array somewhere, or an escaped key, is rare; all else needs no look at the structure.
    if !has_empty_array(message.as_bytes()) {
        return false;
    }
    object_member(message, "content").is_some_and(|content| list_items(content).is_empty())
}

fn has_empty_array(text: &[u8]) -> bool {
    memchr::memchr_iter(b'[', text).any(|at| {
        let rest = text.get(at + 1..).unwrap_or_default();
        rest.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b']')
    })
}

/// The immutable projection of one node: its verbatim bytes, shared by every request that shows it.
///
/// Cloning costs one reference count.
#[derive(Clone, PartialEq, Eq)]
pub struct FrozenMessage(Arc<Node>);

impl FrozenMessage {
    /// The projection of `node`; `None` where it projects to nothing.
    pub fn of(node: &Arc<Node>) -> Option<Self> {
        project(node.kind(), node.text()).map(|_| Self(Arc::clone(node)))
    }

    /// The event that the message is from.
    pub fn seq(&self) -> Seq {
        self.0.seq()
    }

    /// What kind of node the message is.
    pub fn kind(&self) -> NodeKind {
        self.0.kind()
    }

    /// The message's verbatim text.
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// Whether `other` is the same node, not only an equal one.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for FrozenMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq(), self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_content_of_system_or_assistant_projects_to_nothing() {
        for (message, empty) in [
            (r#"{"content":[]}"#, true),
            (r#"{"content": [ ] ,"role":"x"}"#, true),
            (r#"{"c\u006fntent":[]}"#, true),
            (r#"{"x":[],"content":[1]}"#, false),
            (r#"{"content":[{"type":"text","text":"\"content\":[]"}]}"#, false),
            (r#"{"content":[[]]}"#, false),
        ] {
            assert_eq!(project(NodeKind::Assistant, message).is_none(), empty, "{message}");
            assert_eq!(project(NodeKind::System, message).is_none(), empty, "{message}");
            assert_eq!(project(NodeKind::User, message), Some(message));
            assert_eq!(project(NodeKind::ToolResult, message), Some(message));
        }
    }
}

//! Messages as JSON text: small builders for hosts, and the checks of what may be sent.
//!
//! Owns the shapes that the step protocol writes itself. A host may bring any other text of the
//! same shape; it is kept verbatim.

use std::collections::HashSet;
use std::fmt::Write as _;

use rederive_engine::{is_json_object, list_items, object_member, string_text};

use crate::pairing::ids;

/// What keeps a message from being sent. Correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadMessage {
    /// It is no JSON object with a `content` array, or its role is another one.
    #[error("it is no {role} message with a content array")]
    Shape {
        /// The role that is due.
        role: &'static str,
    },
    /// It has no id, by which it could be edited or removed.
    #[error("it has no id")]
    NoId,
    /// It has no block, or a text block without anything but space: providers refuse both.
    #[error("it says nothing: no block, or a blank text block")]
    Blank,
    /// Two calls have one id, or a call has none, so results could not be told apart.
    #[error("the tool call id {id:?} is empty or stands twice")]
    CallId {
        /// The id.
        id: String,
    },
}

/// `text` as a JSON string.
pub fn string(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// A JSON object that is being written, member by member.
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    /// Adds `key` with the verbatim JSON value `value`.
    pub(crate) fn raw(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        let comma = if self.0.len() == 1 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{comma}\"{key}\":{value}");
        self
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.raw(key, string(value))
    }

    /// Adds `key` where there is a value.
    pub(crate) fn maybe(self, key: &str, value: Option<impl std::fmt::Display>) -> Self {
        match value {
            Some(value) => self.raw(key, value),
            None => self,
        }
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// `whole` with `part`, a slice of it, replaced by `new`; every other byte stays as it is.
pub(crate) fn spliced(whole: &str, part: &str, new: &str) -> String {
    let (before, rest) = whole.split_at(part.as_ptr().addr() - whole.as_ptr().addr());
    let behind = rest.get(part.len()..).unwrap_or_default();
    [before, new, behind].concat()
}

/// A text block.
pub fn text_block(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", string(text))
}

/// A tool call, as a block of an assistant message; `arguments` is the JSON text that the model gave.
pub fn tool_call_block(id: &str, name: &str, arguments: &str) -> String {
    let (id, name, arguments) = (string(id), string(name), string(arguments));
    format!("{{\"type\":\"tool-call\",\"id\":{id},\"name\":{name},\"arguments\":{arguments}}}")
}

/// A user message of one text block.
pub fn user(id: &str, text: &str) -> String {
    user_blocks(id, &[text_block(text)])
}

/// A user message of `blocks`, each a verbatim JSON object.
pub fn user_blocks(id: &str, blocks: &[String]) -> String {
    let (id, blocks) = (string(id), blocks.join(","));
    format!("{{\"id\":{id},\"role\":\"user\",\"source\":{{\"kind\":\"user\"}},\"content\":[{blocks}]}}")
}

/// An assistant message of `blocks`, from a model.
pub fn assistant(id: &str, provider: &str, model: &str, blocks: &[String]) -> String {
    let (id, provider, model, blocks) = (string(id), string(provider), string(model), blocks.join(","));
    format!(
        "{{\"id\":{id},\"role\":\"assistant\",\"source\":{{\"kind\":\"model\",\"provider\":{provider},\
         \"model\":{model}}},\"content\":[{blocks}]}}"
    )
}

/// The system message of `text`; an empty text gives an empty content, which projects to nothing.
pub(super) fn system(id: &str, text: &str) -> String {
    let block = if text.is_empty() { String::new() } else { text_block(text) };
    format!("{{\"id\":{},\"role\":\"system\",\"content\":[{block}]}}", string(id))
}

/// The text of a message's text blocks, joined.
pub(super) fn text_of(message: &str) -> String {
    list_items(object_member(message, "content").unwrap_or_default())
        .into_iter()
        .filter(|block| is_type(block, "text"))
        .filter_map(|block| object_member(block, "text").and_then(string_text))
        .collect()
}

/// Whether the content block `block` is of type `name`.
pub(crate) fn is_type(block: &str, name: &str) -> bool {
    object_member(block, "type").and_then(string_text).as_deref() == Some(name)
}

fn content<'a>(message: &'a str, role: &'static str) -> Result<Vec<&'a str>, BadMessage> {
    // Whole, since it is written into the text of other events.
    if !is_json_object(message) {
        return Err(BadMessage::Shape { role });
    }
    let said = object_member(message, "role").and_then(string_text);
    match object_member(message, "content").filter(|content| content.starts_with('[')) {
        Some(content) if said.as_deref() == Some(role) => Ok(list_items(content)),
        _ => Err(BadMessage::Shape { role }),
    }
}

/// Checks that `message` is one that a user can be sent as.
pub(crate) fn check_user(message: &str) -> Result<(), BadMessage> {
    let blocks = content(message, "user")?;
    let is_blank = |block: &&str| {
        is_type(block, "text")
            && object_member(block, "text").and_then(string_text).is_none_or(|text| text.trim().is_empty())
    };
    if blocks.is_empty() || blocks.iter().any(is_blank) { Err(BadMessage::Blank) } else { Ok(()) }
}

/// Checks that each call of the assistant's `message` can be answered.
pub(super) fn check_assistant(message: &str) -> Result<(), BadMessage> {
    content(message, "assistant")?;
    let mut seen = HashSet::new();
    for id in ids(message, "tool-call", "id") {
        if id.is_empty() || !seen.insert(id.clone()) {
            return Err(BadMessage::CallId { id });
        }
    }
    Ok(())
}

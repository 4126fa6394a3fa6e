//! Events: one immutable entry of a session's log, over the verbatim text of its line.
//!
//! Owns the V3 line format in both directions. An event keeps the text of its `data` and the form
//! of its envelope, so that [`Event::write_line`] gives back exactly the bytes that were read.
//! Knows no surface and no session: whether an event may stand where it stands is admission's.

pub(crate) mod json;
mod kind;
pub(crate) mod line;
pub(crate) mod value;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

pub use kind::{Kind, LogOnly, NodeKind};
pub use line::HeaderLine;
pub use value::equal_by_value;

use crate::ids::Seq;
use json::Span;

/// How an event reaches the surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub enum SurfaceOp {
    /// At the tail.
    Append,
    /// In the place of the nodes from `start` to `end`, both inclusive, in surface order.
    Replace {
        /// The first node that is shadowed.
        start: Seq,
        /// The last node that is shadowed.
        end: Seq,
    },
}

/// What stands around an event's data in its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// No space, numbers plain, keys in this order.
    Order(line::KeyOrder),
    /// Anything else: the bytes before and behind the data.
    Verbatim { before: Bytes, behind: Bytes },
}

/// One immutable entry of a session's log.
///
/// Cloning costs two reference counts and copies no text.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    pub(crate) seq: Seq,
    pub(crate) time_ms: u64,
    pub(crate) kind: Kind,
    pub(crate) op: Option<SurfaceOp>,
    pub(crate) sources: Option<Arc<[Seq]>>,
    pub(crate) ignorable: bool,
    pub(crate) data: Bytes,
    /// Where in `data` the text stands that reaches the model: the message of a surface event, the
    /// header of a `request/header`.
    pub(crate) visible: Option<Span>,
    pub(crate) shape: Shape,
}

impl Event {
    /// The event's position in its log.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// When the event happened, in milliseconds since the epoch, as its host said.
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// The event's type.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// How the event reaches the surface; `None` for log-only events.
    pub fn surface_op(&self) -> Option<SurfaceOp> {
        self.op
    }

    /// The events that this one cites.
    pub fn source_event_seqs(&self) -> &[Seq] {
        self.sources.as_deref().unwrap_or_default()
    }

    /// Whether a reader that does not know the type may pass over the event.
    pub fn ignorable(&self) -> bool {
        self.ignorable
    }

    /// The verbatim text of the event's data: one JSON object.
    pub fn data(&self) -> &str {
        text(&self.data)
    }

    /// The verbatim text that reaches the model: the message of a surface event, `data.header` of a
    /// `request/header`; `None` for other types.
    pub fn visible(&self) -> Option<&str> {
        self.visible.map(|span| text(span.of(&self.data)))
    }

    /// The verbatim text of the value that stands under `path` in the data; `None` where there is
    /// none. Costs one pass over the data for each step of the path.
    pub fn data_at(&self, path: &[&str]) -> Option<&str> {
        let mut raw: &[u8] = &self.data;
        for key in path {
            raw = json::member(raw, key)?;
        }
        Some(text(raw))
    }

    /// Appends the event's line, without a line feed, to `out`: byte for byte what was admitted.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        line::write(self, out);
    }

    /// The event's line as [`Event::write_line`] writes it.
    pub fn to_line(&self) -> String {
        let mut out = Vec::with_capacity(self.data.len() + 128);
        self.write_line(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_line())
    }
}

/// Text that was checked to be UTF-8 when it was admitted or read.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Whether `raw` is exactly one JSON object, by the rules that admission holds against an event's data:
/// grammar, depth, no key twice. A text that passes can stand inside another one and cannot end it.
pub fn is_json_object(raw: &str) -> bool {
    json::scan_object(raw.as_bytes()).is_ok()
}

/// The text of the JSON string `raw`, a verbatim value with its quotes; `None` where it is no
/// string. Lone surrogates read as U+FFFD.
pub fn string_text(raw: &str) -> Option<std::borrow::Cow<'_, str>> {
    json::as_text(raw.as_bytes())
}

/// The verbatim value of `key` in the JSON object `raw`; `None` where `raw` is no object or has no
/// such member.
pub fn object_member<'a>(raw: &'a str, key: &str) -> Option<&'a str> {
    json::member(raw.as_bytes(), key).map(text)
}

/// The verbatim items of the JSON array `raw`; empty where it is no array.
pub fn list_items(raw: &str) -> Vec<&str> {
    json::array_items(raw.as_bytes()).into_iter().map(text).collect()
}

/// The members of the JSON object `raw` as decoded keys and verbatim values; empty where it is none.
pub fn members(raw: &str) -> Vec<(String, &str)> {
    json::object_members(raw.as_bytes())
        .into_iter()
        .map(|(key, value)| {
            let name = String::from_utf8_lossy(&json::string_value(key.of(raw.as_bytes()))).into_owned();
            (name, text(value.of(raw.as_bytes())))
        })
        .collect()
}

/// An event that a host wants to append: the store gives it its seq, and its time where it has none.
#[derive(Clone, Debug)]
pub struct Draft {
    pub(crate) kind: Kind,
    pub(crate) data: Bytes,
    pub(crate) time_ms: Option<u64>,
    pub(crate) op: Option<SurfaceOp>,
    pub(crate) sources: Vec<Seq>,
    pub(crate) ignorable: bool,
}

impl Draft {
    /// An event of the type `kind` with the JSON object `data`, kept verbatim.
    pub fn new(kind: &str, data: impl Into<String>) -> Self {
        Self {
            kind: Kind::from_name(kind),
            data: Bytes::from(data.into()),
            time_ms: None,
            op: None,
            sources: Vec::new(),
            ignorable: false,
        }
    }

    /// A surface event that is appended at the tail.
    pub fn append(kind: &str, data: impl Into<String>) -> Self {
        Self { op: Some(SurfaceOp::Append), ..Self::new(kind, data) }
    }

    /// A surface event that takes the place of the nodes `start..=end`; it must cite them all.
    pub fn replace(kind: &str, data: impl Into<String>, start: Seq, end: Seq) -> Self {
        Self { op: Some(SurfaceOp::Replace { start, end }), ..Self::new(kind, data) }
    }

    /// The events that this one cites.
    #[must_use]
    pub fn citing(mut self, seqs: impl IntoIterator<Item = Seq>) -> Self {
        self.sources = seqs.into_iter().collect();
        self
    }

    /// When the event happened, in milliseconds since the epoch.
    #[must_use]
    pub fn at(mut self, time_ms: u64) -> Self {
        self.time_ms = Some(time_ms);
        self
    }

    /// Marks the event as one that readers which do not know its type may pass over.
    #[must_use]
    pub fn ignorable(mut self) -> Self {
        self.ignorable = true;
        self
    }
}

//! The V3 line format: a header line, then one event a line.
//!
//! Owns reading a line into an [`Event`] and writing it back byte for byte. Checks what one line
//! alone can say: grammar, the envelope's keys, the spans of what reaches the model.

use std::sync::Arc;

use bytes::Bytes;

use super::json::{self, Fault, JsonError, Member, Members, NONE, Span};
use super::{Draft, Event, Kind, LogOnly, Shape, SurfaceOp};
use crate::admission::{Refusal, Rule};
use crate::ids::Seq;

/// The envelope's keys, in the order in which the store itself writes them; a key's code on disk is
/// its position here plus one.
const KEYS: [&str; 7] = ["type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs", "ignorable"];
const DATA: u32 = 4;

/// The order of the keys in a line: the codes of [`KEYS`], four bits each, the first key lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct KeyOrder(pub(crate) u32);

/// What a reader allows in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Seq and time must stand in the line, as in a log.
    Log,
    /// Seq and time may be missing and are given by the store.
    Draft,
}

/// Reads `line` as the event at `next`, whose time is `now_ms` where the line may leave it out.
///
/// # Errors
///
/// Rules `json`, `json-depth`, `json-duplicate-key`, `envelope`, `seq`, `surface-metadata`,
/// `surface-op`, `source-seqs`, as far as a line alone can break them.
pub(crate) fn read(line: &Bytes, next: Seq, form: Form, now_ms: u64) -> Result<Event, Refusal> {
    let refuse = |rule, field: &str, why: &str| Err(Refusal::new(rule, next, field, why));
    let members = json::scan_object(line).map_err(|error| json_refusal(error, next))?;
    let mut values: [Option<(u32, Member)>; KEYS.len()] = [None; KEYS.len()];
    let mut order = 0_u32;
    let mut shift = 0;
    for (index, member) in members.of(NONE) {
        let key = member.key.of(line);
        let Some(code) = KEYS.iter().position(|name| json::key_is(key, name)) else {
            let name = String::from_utf8_lossy(key).into_owned();
            return Err(Refusal::new(Rule::Envelope, next, &name, "the envelope has no such key")
                .at(member.key.start as usize));
        };
        if let Some(slot) = values.get_mut(code) {
            *slot = Some((index, member));
        }
        order |= (code as u32 + 1) << shift;
        shift += 4;
    }
    let [kind, seq, time, data, op, sources, ignorable] = values;
    let raw = |member: Option<(u32, Member)>| member.map(|(_, member)| member.value.of(line));

    let Some(kind) = raw(kind).and_then(json::as_text) else {
        return refuse(Rule::Envelope, "type", "missing, or no string");
    };
    let kind = Kind::from_name(&kind);
    let Some((data_index, data)) = data.filter(|(_, data)| data.value.of(line).first() == Some(&b'{')) else {
        return refuse(Rule::Envelope, "data", "missing, or no object");
    };
    let ignorable = match raw(ignorable) {
        None => false,
        Some(b"true") => true,
        Some(_) => return refuse(Rule::Envelope, "ignorable", "anything but true"),
    };
    let time_ms = match raw(time) {
        Some(raw) => match json::as_safe_integer(raw) {
            Some(time_ms) => time_ms,
            None => return refuse(Rule::Envelope, "time", "no safe non-negative integer"),
        },
        None if form == Form::Draft => now_ms,
        None => return refuse(Rule::Envelope, "time", "missing"),
    };
    match raw(seq) {
        Some(raw) => {
            if json::as_safe_integer(raw) != Some(next.value()) {
                let found =
                    String::from_utf8_lossy(raw.get(..32.min(raw.len())).unwrap_or_default()).into_owned();
                return refuse(Rule::Seq, "seq", &format!("{found} where {next} is due"));
            }
        }
        None if form == Form::Draft => {}
        None => return refuse(Rule::Envelope, "seq", "missing"),
    }
    let (op, sources) = match &kind {
        // A foreign type's metadata is kept as it is and means nothing.
        Kind::Foreign(_) => (None, None),
        kind if kind.node().is_none() => {
            if op.is_some() || sources.is_some() {
                let field = if op.is_some() { "surfaceOp" } else { "sourceEventSeqs" };
                return refuse(Rule::SurfaceMetadata, field, "on a log-only type");
            }
            (None, None)
        }
        _ => {
            let Some(op) = raw(op) else {
                return refuse(Rule::SurfaceMetadata, "surfaceOp", "missing on a surface type");
            };
            (Some(read_op(op, next)?), raw(sources).map(|raw| read_sources(raw, next)).transpose()?)
        }
    };
    let visible = visible_span(&kind, &members, line, data_index, data);
    let mut event = Event {
        seq: next,
        time_ms,
        kind,
        op,
        sources,
        ignorable,
        data: line.slice(data.value.range()),
        visible,
        shape: Shape::Order(KeyOrder(order)),
    };
    if seq.is_none() || time.is_none() {
        event.shape = Shape::Order(own_order(&event));
    } else if !renders_to(&event, line) {
        event.shape = Shape::Verbatim {
            before: line.slice(..data.value.start as usize),
            behind: line.slice(data.value.end as usize..),
        };
    }
    Ok(event)
}

/// Turns `draft` into the event at `next`.
pub(crate) fn from_draft(draft: &Draft, next: Seq, now_ms: u64) -> Result<Event, Refusal> {
    let members = json::scan_object(&draft.data).map_err(|error| json_refusal(error, next))?;
    // What `read` says of an envelope whose values come as text.
    let (op, sources) = if draft.kind.node().is_some() {
        if draft.op.is_none() {
            return Err(Refusal::new(Rule::SurfaceMetadata, next, "surfaceOp", "missing on a surface type"));
        }
        check_sources(&draft.sources, next)?;
        (draft.op, (!draft.sources.is_empty()).then(|| draft.sources.clone().into()))
    } else {
        if draft.op.is_some() || !draft.sources.is_empty() {
            return Err(Refusal::new(Rule::SurfaceMetadata, next, "surfaceOp", "on a log-only type"));
        }
        (None, None)
    };
    let visible = {
        let whole = Member {
            parent: NONE,
            key: Span { start: 0, end: 0 },
            value: Span { start: 0, end: draft.data.len() as u32 },
        };
        visible_span(&draft.kind, &members, &draft.data, NONE, whole)
    };
    let trimmed = draft.data.trim_ascii();
    if trimmed.len() != draft.data.len() {
        let mut tight = draft.clone();
        tight.data = draft.data.slice_ref(trimmed);
        return from_draft(&tight, next, now_ms);
    }
    let mut event = Event {
        seq: next,
        time_ms: draft.time_ms.unwrap_or(now_ms),
        kind: draft.kind.clone(),
        op,
        sources,
        ignorable: draft.ignorable,
        data: draft.data.clone(),
        visible,
        shape: Shape::Order(KeyOrder(0)),
    };
    if event.time_ms >= 1 << 53 {
        return Err(Refusal::new(Rule::Envelope, next, "time", "no safe non-negative integer"));
    }
    event.shape = Shape::Order(own_order(&event));
    Ok(event)
}

fn json_refusal(error: JsonError, next: Seq) -> Refusal {
    let (rule, why) = match error.fault {
        Fault::NotUtf8 => (Rule::Json, "not UTF-8"),
        Fault::NotAnObject => (Rule::Json, "no JSON object"),
        Fault::Grammar(what) => (Rule::Json, what),
        Fault::TooDeep => (Rule::JsonDepth, "deeper than 128 levels"),
        Fault::DuplicateKey => (Rule::JsonDuplicateKey, "a key stands twice in one object"),
    };
    Refusal::new(rule, next, "", why).at(error.offset)
}

/// The span, inside the data, of the text that reaches the model.
fn visible_span(kind: &Kind, members: &Members, line: &[u8], data_index: u32, data: Member) -> Option<Span> {
    let key = match kind {
        Kind::UserMessage => {
            return Some(Span { start: 0, end: data.value.end - data.value.start });
        }
        Kind::SystemMessage | Kind::AssistantMessage | Kind::ToolResult => "message",
        Kind::LogOnly(LogOnly::RequestHeader) => "header",
        _ => return None,
    };
    let (_, member) = members.get(line, data_index, key)?;
    Some(Span { start: member.value.start - data.value.start, end: member.value.end - data.value.start })
}

fn read_op(raw: &[u8], next: Seq) -> Result<SurfaceOp, Refusal> {
    if json::as_text(raw).as_deref() == Some("append") {
        return Ok(SurfaceOp::Append);
    }
    let refusal = || {
        Refusal::new(
            Rule::SurfaceOp,
            next,
            "surfaceOp",
            "neither \"append\" nor {op:\"replace\",startSeq,endSeq}",
        )
    };
    let (mut op, mut start, mut end) = (None, None, None);
    let members = json::object_members(raw);
    for (key, value) in &members {
        let value = value.of(raw);
        match &*json::string_value(key.of(raw)) {
            b"op" => op = json::as_text(value),
            b"startSeq" => start = json::as_safe_integer(value),
            b"endSeq" => end = json::as_safe_integer(value),
            _ => return Err(refusal()),
        }
    }
    match (op.as_deref(), start, end) {
        (Some("replace"), Some(start), Some(end)) => {
            Ok(SurfaceOp::Replace { start: Seq::new(start), end: Seq::new(end) })
        }
        _ => Err(refusal()),
    }
}

fn read_sources(raw: &[u8], next: Seq) -> Result<Arc<[Seq]>, Refusal> {
    if raw.first() != Some(&b'[') {
        return Err(Refusal::new(Rule::SourceSeqs, next, "sourceEventSeqs", "no list"));
    }
    let mut seqs = Vec::new();
    for item in json::array_items(raw) {
        match json::as_safe_integer(item) {
            Some(seq) => seqs.push(Seq::new(seq)),
            None => return Err(Refusal::new(Rule::SourceSeqs, next, "sourceEventSeqs", "an item is no seq")),
        }
    }
    if seqs.is_empty() {
        return Err(Refusal::new(Rule::SourceSeqs, next, "sourceEventSeqs", "an empty list"));
    }
    check_sources(&seqs, next)?;
    Ok(seqs.into())
}

fn check_sources(seqs: &[Seq], next: Seq) -> Result<(), Refusal> {
    let refuse = |why: &str| Err(Refusal::new(Rule::SourceSeqs, next, "sourceEventSeqs", why));
    if seqs.iter().any(|seq| *seq >= next) {
        return refuse("cites an event that is not earlier");
    }
    // Most lists ascend; only others pay for a sorted copy.
    if !seqs.is_sorted_by(|a, b| a < b) {
        let mut sorted = seqs.to_vec();
        sorted.sort_unstable();
        if !sorted.is_sorted_by(|a, b| a < b) {
            return refuse("cites an event twice");
        }
    }
    Ok(())
}

/// The order in which the store itself writes the keys that `event` has.
pub(crate) fn own_order(event: &Event) -> KeyOrder {
    let present = [true, true, true, true, event.op.is_some(), event.sources.is_some(), event.ignorable];
    let mut order = 0;
    let mut shift = 0;
    for (code, _) in present.iter().enumerate().filter(|(_, present)| **present) {
        order |= (code as u32 + 1) << shift;
        shift += 4;
    }
    KeyOrder(order)
}

fn renders_to(event: &Event, line: &[u8]) -> bool {
    let mut out = Vec::with_capacity(line.len());
    let Shape::Order(order) = event.shape else { return false };
    // The data is the line's own text: comparing what stands around it is enough.
    let mut behind = Vec::new();
    let found_data = write_around(event, order, &mut out, &mut behind);
    found_data
        && line.len() == out.len() + event.data.len() + behind.len()
        && line.starts_with(&out)
        && line.ends_with(&behind)
}

/// Writes the line of `event`.
pub(crate) fn write(event: &Event, out: &mut Vec<u8>) {
    match &event.shape {
        Shape::Order(order) => {
            let mut behind = Vec::with_capacity(64);
            write_around(event, *order, out, &mut behind);
            out.extend_from_slice(&event.data);
            out.extend_from_slice(&behind);
        }
        Shape::Verbatim { before, behind } => {
            out.extend_from_slice(before);
            out.extend_from_slice(&event.data);
            out.extend_from_slice(behind);
        }
    }
}

/// Length of the event's line in bytes, without a line feed.
pub(crate) fn length(event: &Event) -> u64 {
    let around = match &event.shape {
        Shape::Order(order) => {
            let (mut before, mut behind) = (Counted(0), Counted(0));
            write_around(event, *order, &mut before, &mut behind);
            before.0 + behind.0
        }
        Shape::Verbatim { before, behind } => before.len() + behind.len(),
    };
    (around + event.data.len()) as u64
}

/// Where a line's bytes go.
pub(crate) trait Out {
    fn push(&mut self, byte: u8);
    fn extend_from_slice(&mut self, bytes: &[u8]);
}

impl Out for Vec<u8> {
    fn push(&mut self, byte: u8) {
        self.push(byte);
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Only counts, so that a length costs no copy.
struct Counted(usize);

impl Out for Counted {
    fn push(&mut self, _: u8) {
        self.0 += 1;
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// Writes what stands before the data to `before` and what stands behind it to `behind`; `false`
/// where the order has no data.
fn write_around<O: Out>(event: &Event, order: KeyOrder, before: &mut O, behind: &mut O) -> bool {
    let mut out = &mut *before;
    let mut codes = order.0;
    let mut found_data = false;
    let mut lead = b'{';
    while codes != 0 {
        let code = codes & 15;
        codes >>= 4;
        out.push(lead);
        lead = b',';
        match code {
            1 => {
                out.extend_from_slice(b"\"type\":");
                write_string(event.kind.name(), out);
            }
            2 => {
                out.extend_from_slice(b"\"seq\":");
                write_number(event.seq.value(), out);
            }
            3 => {
                out.extend_from_slice(b"\"time\":");
                write_number(event.time_ms, out);
            }
            DATA => {
                out.extend_from_slice(b"\"data\":");
                found_data = true;
                out = &mut *behind;
            }
            5 => {
                out.extend_from_slice(b"\"surfaceOp\":");
                match event.op {
                    Some(SurfaceOp::Replace { start, end }) => {
                        out.extend_from_slice(b"{\"op\":\"replace\",\"startSeq\":");
                        write_number(start.value(), out);
                        out.extend_from_slice(b",\"endSeq\":");
                        write_number(end.value(), out);
                        out.push(b'}');
                    }
                    Some(SurfaceOp::Append) => out.extend_from_slice(b"\"append\""),
                    // A foreign type's metadata is not understood, so its line stays verbatim.
                    None => return false,
                }
            }
            6 => {
                out.extend_from_slice(b"\"sourceEventSeqs\":[");
                for (index, seq) in event.source_event_seqs().iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    write_number(seq.value(), out);
                }
                out.push(b']');
            }
            _ => out.extend_from_slice(b"\"ignorable\":true"),
        }
    }
    out.push(b'}');
    found_data
}

fn write_number(mut value: u64, out: &mut impl Out) {
    let mut digits = [0_u8; 20];
    let mut length = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
        length += 1;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(digits.len() - length..).unwrap_or_default());
}

/// Writes `text` as a JSON string: quotes, backslashes and control characters escaped, all else as
/// it is.
pub(crate) fn write_string(text: &str, out: &mut impl Out) {
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// The first line of a log: which session it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderLine {
    pub(crate) text: Arc<str>,
    pub(crate) id: crate::ids::SessionId,
    pub(crate) created_at_ms: u64,
    pub(crate) cwd: Option<Arc<str>>,
    pub(crate) parent: Option<Arc<str>>,
    pub(crate) is_seeded: bool,
}

/// The version of the line format that the store reads and writes.
pub(crate) const FORMAT_VERSION: u64 = 3;

impl HeaderLine {
    /// Reads a log's first line.
    ///
    /// # Errors
    ///
    /// Rules `json`, `json-depth`, `json-duplicate-key`, `envelope`, and `version` for a header of
    /// another version of the format; the refusal's text says whether it is older or newer.
    pub fn read(line: &str) -> Result<Self, Refusal> {
        let refuse = |rule, field: &str, why: &str| Err(Refusal::new(rule, Seq::FIRST, field, why));
        let bytes = line.as_bytes();
        let members = json::scan_object(bytes).map_err(|error| json_refusal(error, Seq::FIRST))?;
        let raw = |key: &str| members.get(bytes, NONE, key).map(|(_, member)| member.value.of(bytes));
        let string = |key: &str| raw(key).and_then(json::as_text);
        if string("type").as_deref() != Some("session") {
            return refuse(Rule::Envelope, "type", "the first line is no session header");
        }
        let Some(version) = raw("version").and_then(json::as_safe_integer) else {
            return refuse(Rule::Envelope, "version", "missing, or no whole number");
        };
        if version < FORMAT_VERSION {
            return refuse(
                Rule::Version,
                "version",
                &format!("version {version} is older than {FORMAT_VERSION}, the version that is read here"),
            );
        }
        if version > FORMAT_VERSION {
            return refuse(
                Rule::Version,
                "version",
                &format!("version {version} is newer than {FORMAT_VERSION}, the version that is read here"),
            );
        }
        let Some(id) = string("id").and_then(|id| crate::ids::SessionId::new(&id)) else {
            return refuse(Rule::Envelope, "id", "missing, empty, longer than 512 bytes, or no string");
        };
        let Some(created_at_ms) = raw("createdAt").and_then(json::as_safe_integer) else {
            return refuse(Rule::Envelope, "createdAt", "missing, or no safe non-negative integer");
        };
        let is_seeded = match raw("isSeeded") {
            Some(b"true") => true,
            Some(b"false") | None => false,
            Some(_) => return refuse(Rule::Envelope, "isSeeded", "neither true nor false"),
        };
        for key in ["cwd", "parentSession"] {
            if raw(key).is_some_and(|value| json::as_text(value).is_none()) {
                return refuse(Rule::Envelope, key, "no string");
            }
        }
        Ok(Self {
            text: line.into(),
            id,
            created_at_ms,
            cwd: string("cwd").map(|text| (&*text).into()),
            parent: string("parentSession").map(|text| (&*text).into()),
            is_seeded,
        })
    }

    /// Builds the first line of a new log.
    pub(crate) fn build(
        id: &crate::ids::SessionId,
        created_at_ms: u64,
        cwd: Option<&str>,
        parent: Option<&str>,
        is_seeded: bool,
    ) -> Self {
        let mut out = b"{\"type\":\"session\",\"version\":3,\"id\":".to_vec();
        write_string(id.as_str(), &mut out);
        out.extend_from_slice(b",\"createdAt\":");
        write_number(created_at_ms, &mut out);
        if let Some(cwd) = cwd {
            out.extend_from_slice(b",\"cwd\":");
            write_string(cwd, &mut out);
        }
        out.extend_from_slice(if is_seeded { b",\"isSeeded\":true" } else { b",\"isSeeded\":false" });
        if let Some(parent) = parent {
            out.extend_from_slice(b",\"parentSession\":");
            write_string(parent, &mut out);
        }
        out.push(b'}');
        Self {
            text: String::from_utf8(out).unwrap_or_default().into(),
            id: id.clone(),
            created_at_ms,
            cwd: cwd.map(Into::into),
            parent: parent.map(Into::into),
            is_seeded,
        }
    }

    /// The line, verbatim and without a line feed.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The session's name.
    pub fn id(&self) -> &crate::ids::SessionId {
        &self.id
    }

    /// When the session was created, in milliseconds since the epoch.
    pub fn created_at_ms(&self) -> u64 {
        self.created_at_ms
    }

    /// The folder that the session works in.
    pub fn cwd(&self) -> Option<&str> {
        self.cwd.as_deref()
    }

    /// The name of the session that this one was made from.
    pub fn parent_session(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    /// Whether the log begins with inherited events.
    pub fn is_seeded(&self) -> bool {
        self.is_seeded
    }
}

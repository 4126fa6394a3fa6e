//! Admission: the one door through which an event enters a log.
//!
//! Owns the rules that need more than the event's own line: the surface, the header in force, the
//! types that the host registered. A live append, an import and a recovered journal all come
//! through [`admit`]. It decides and changes nothing; the fold applies what was admitted.
//!
//! The table of rules: DESIGN.md § Admission.

mod door;
mod rule;

pub(crate) use door::Door;
pub use door::Replay;
pub use rule::{Refusal, Rule};

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::event::json::{array_items, as_text, first_item, member, member_first_byte};
use crate::event::{Event, Kind, LogOnly, NodeKind, SurfaceOp};
use crate::fold::Fold;
use crate::types::TypeRegistry;

/// Who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A host, through the public append.
    Host,
    /// The engine or the step protocol; or a log that is imported or recovered.
    Store,
}

/// Decides whether `event`, which was read at the fold's next seq, may be appended.
pub(crate) fn admit(event: &Event, fold: &Fold, types: &TypeRegistry, origin: Origin) -> Result<(), Refusal> {
    debug_assert_eq!(event.seq, fold.next_seq(), "a line is read at the seq that is due");
    let refuse = |rule, field: &str, why: &str| Err(Refusal::new(rule, event.seq, field, why));
    match &event.kind {
        Kind::Foreign(name) => {
            if &**name == "request/header-delta" {
                return refuse(Rule::Legacy, "type", "request/header-delta belongs to an older format");
            }
            if !event.ignorable && !types.contains(name) {
                return refuse(
                    Rule::UnknownType,
                    "type",
                    &format!("{name} is neither known nor registered, and not ignorable"),
                );
            }
            return Ok(());
        }
        Kind::LogOnly(log_only) => {
            if origin == Origin::Host
                && matches!(log_only, LogOnly::SessionEndSeed | LogOnly::RequestDispatch)
            {
                return refuse(
                    Rule::Reserved,
                    "type",
                    &format!("{} is written by the store alone", log_only.name()),
                );
            }
            return if *log_only == LogOnly::RequestHeader { check_header(event) } else { Ok(()) };
        }
        _ => {}
    }
    let Some(node) = event.kind.node() else { return Ok(()) };
    if node == NodeKind::Assistant && (event.sources.is_some() || event.op != Some(SurfaceOp::Append)) {
        return refuse(
            Rule::SourceSeqs,
            "sourceEventSeqs",
            "an assistant/message cites nothing and shadows nothing",
        );
    }
    if let Some(SurfaceOp::Replace { start, end }) = event.op {
        check_replace(event, node, start, end, fold)?;
    }
    if node == NodeKind::ToolResult {
        check_tool_error(event)?;
    }
    check_payload(event, node)
}

fn check_payload(event: &Event, node: NodeKind) -> Result<(), Refusal> {
    let refuse = |field: &str, why: &str| Err(Refusal::new(Rule::Payload, event.seq, field, why));
    let Some(message) =
        event.visible.map(|span| span.of(&event.data)).filter(|raw| raw.first() == Some(&b'{'))
    else {
        return refuse("data.message", "missing, or no object");
    };
    if member_first_byte(message, "content") != Some(b'[') {
        return refuse("content", "the message has no content array");
    }
    if node == NodeKind::Assistant {
        let source = member(message, "source");
        for key in ["provider", "model"] {
            let name = source.and_then(|source| member(source, key)).and_then(as_text);
            if name.is_none_or(|name| name.is_empty()) {
                return refuse(
                    &format!("message.source.{key}"),
                    "an assistant message names its provider and model",
                );
            }
        }
    }
    Ok(())
}

fn check_tool_error(event: &Event) -> Result<(), Refusal> {
    // Most results are no errors; finding that out costs two searches.
    static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("error"));
    static ESCAPED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\\u"));
    if ERROR.find(&event.data).is_none() && ESCAPED.find(&event.data).is_none() {
        return Ok(());
    }
    if member(&event.data, "error").is_none() {
        return Ok(());
    }
    let says_error = |raw: &[u8]| member(raw, "isError") == Some(b"true");
    let message = event.visible.map(|span| span.of(&event.data)).unwrap_or_default();
    let first = member(message, "content").and_then(first_item);
    if says_error(message) || first.is_some_and(says_error) {
        return Ok(());
    }
    Err(Refusal::new(Rule::ToolError, event.seq, "data.error", "the message does not say isError: true"))
}

fn check_replace(
    event: &Event,
    node: NodeKind,
    start: crate::Seq,
    end: crate::Seq,
    fold: &Fold,
) -> Result<(), Refusal> {
    let refuse = |rule, field: &str, why: String| Err(Refusal::new(rule, event.seq, field, &why));
    for (field, seq) in [("surfaceOp.startSeq", start), ("surfaceOp.endSeq", end)] {
        if seq >= event.seq {
            return refuse(Rule::SurfaceOp, field, format!("{seq} is not earlier"));
        }
        if fold.surface().get(seq).is_none() {
            return refuse(Rule::SurfaceOp, field, format!("{seq} is not on the surface now"));
        }
    }
    let Some(range) = fold.surface().range(start, end) else {
        return refuse(Rule::SurfaceOp, "surfaceOp", format!("{start} stands behind {end} on the surface"));
    };
    let covers_head = range.start == 0;
    let head_is_system = fold.surface().first().is_some_and(|head| head.kind() == NodeKind::System);
    if covers_head && head_is_system && !(node == NodeKind::System && range.len() == 1) {
        return refuse(Rule::SystemHead, "surfaceOp", "node 0 is the system prompt".into());
    }
    let mut cited = event.source_event_seqs().to_vec();
    cited.sort_unstable();
    for shadowed in fold.surface().slice(range.clone()) {
        if cited.binary_search(&shadowed.seq()).is_err() {
            return refuse(
                Rule::SourceSeqs,
                "sourceEventSeqs",
                format!("the shadowed node {} is not cited", shadowed.seq()),
            );
        }
    }
    if node == NodeKind::ToolResult {
        let mut shadowed = fold.surface().slice(range.clone());
        let only = shadowed.next().filter(|_| range.len() == 1);
        let Some(only) = only.filter(|only| only.kind() == NodeKind::ToolResult) else {
            return refuse(
                Rule::ToolRewrite,
                "surfaceOp",
                "a tool/result takes the place of exactly one tool/result".into(),
            );
        };
        if only.rest_digest() != Some(crate::fold::rest_digest(event)) {
            return refuse(
                Rule::ToolRewrite,
                "data",
                "a rewritten tool/result may differ in its content alone".into(),
            );
        }
    }
    Ok(())
}

fn check_header(event: &Event) -> Result<(), Refusal> {
    let refuse = |rule, field: &str, why: &str| Err(Refusal::new(rule, event.seq, field, why));
    let reason = member(&event.data, "reason").and_then(as_text);
    match reason.as_deref() {
        Some("initial" | "resume" | "change" | "series") => {}
        Some("fallback") => return refuse(Rule::Legacy, "reason", "fallback belongs to an older format"),
        _ => return refuse(Rule::Header, "reason", "none of initial, resume, change, series"),
    }
    if member(&event.data, "startsSeries").is_some_and(|value| value != b"true") {
        return refuse(Rule::Header, "startsSeries", "anything but true");
    }
    let Some(header) =
        event.visible.map(|span| span.of(&event.data)).filter(|raw| raw.first() == Some(&b'{'))
    else {
        return refuse(Rule::Header, "header", "missing, or no object");
    };
    if member(header, "system").is_some() {
        return refuse(Rule::Header, "header.system", "the system prompt stands on the surface");
    }
    let config = member(header, "config");
    for key in ["provider", "model"] {
        let name = config.and_then(|config| member(config, key)).and_then(as_text);
        if name.is_none() {
            return refuse(Rule::Header, &format!("header.config.{key}"), "missing, or no string");
        }
    }
    if let Some(tools) = member(header, "tools")
        && (tools.first() != Some(&b'[') || array_items(tools).is_empty())
    {
        return refuse(Rule::Header, "header.tools", "empty, or no list: without tools the key is left out");
    }
    if let Some(defaults) = member(header, "adapterDefaults")
        && (defaults.first() != Some(&b'{') || crate::event::json::object_members(defaults).is_empty())
    {
        return refuse(
            Rule::Header,
            "header.adapterDefaults",
            "empty, or no object: without defaults the key is left out",
        );
    }
    Ok(())
}

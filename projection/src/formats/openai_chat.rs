//! OpenAI Chat Completions, and its DeepSeek dialect: one message a node.
//!
//! Rules: FORMATS.md § OpenAI Chat. Shapes: the official Python SDK's parameter types; the
//! dialect's `reasoning_content` and plain string contents: api-docs.deepseek.com.

use super::error::{FormatError, Rule};
use super::fold::{Phase, Route, Writer, put_base64};
use super::json;
use super::message::{Block, Header, Kind, Message, Role};
use super::settings::{Settings, ToolChoice, put_fields, put_list, put_text};
use super::{BodyOptions, Dialect, Format, Head, Object, cache};

pub(super) fn head(
    route: &Route,
    header: &Header<'_>,
    settings: &Settings<'_>,
    options: &BodyOptions,
    tree_id: &str,
    head: &mut Head,
) -> Result<(), FormatError> {
    let format = Format::OpenAiChat;
    Settings::refuse(format, &[("topK", settings.top_k)])?;
    if settings.stop.len() > 4 {
        return Settings::refuse(format, &[("stop", settings.stop.get(4).copied())]);
    }
    let deepseek = route.dialect == Dialect::DeepSeek;
    let out = &mut head.bytes;
    out.extend_from_slice(b"{\"model\":");
    json::put_string(out, &header.model);
    let max = if deepseek { "max_tokens" } else { "max_completion_tokens" };
    put_fields(
        out,
        &[
            (max, settings.max_tokens),
            ("temperature", settings.temperature),
            ("top_p", settings.top_p),
            ("frequency_penalty", settings.frequency_penalty),
            ("presence_penalty", settings.presence_penalty),
            ("seed", settings.seed),
            ("stream", options.stream.then_some("true")),
            ("stream_options", options.stream.then_some("{\"include_usage\":true}")),
        ],
    );
    if !settings.stop.is_empty() {
        out.extend_from_slice(b",\"stop\":");
        put_list(out, &mut head.rules, "stop", &settings.stop);
    }
    if let Some(effort) = settings.effort.as_deref() {
        let text = match (deepseek, effort) {
            (true, "none" | "off") => ",\"thinking\":{\"type\":\"disabled\"}".to_owned(),
            (true, "low" | "medium" | "high" | "xhigh" | "max") => {
                format!(",\"thinking\":{{\"type\":\"enabled\"}},\"reasoning_effort\":\"{effort}\"")
            }
            (false, "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max") => {
                format!(",\"reasoning_effort\":\"{effort}\"")
            }
            (false, "off") => ",\"reasoning_effort\":\"none\"".to_owned(),
            _ => return Settings::refuse(format, &[("reasoningEffort", Some(effort))]),
        };
        out.extend_from_slice(text.as_bytes());
    }
    match &settings.tool_choice {
        None => {}
        Some(ToolChoice::Auto) => put_fields(out, &[("tool_choice", Some("\"auto\""))]),
        Some(ToolChoice::None) => put_fields(out, &[("tool_choice", Some("\"none\""))]),
        Some(ToolChoice::Required) => put_fields(out, &[("tool_choice", Some("\"required\""))]),
        Some(ToolChoice::Tool(name)) => {
            out.extend_from_slice(b",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":");
            put_text(out, &mut head.rules, "toolChoice", name);
            out.extend_from_slice(b"}}");
        }
    }
    let parallel = settings.parallel.map(|yes| if yes { "true" } else { "false" });
    put_fields(out, &[("parallel_tool_calls", parallel)]);
    cache::put_openai_fields(out, &route.rule, options, tree_id);
    for (index, tool) in header.tools.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b",\"tools\":[" } else { b"," });
        out.extend_from_slice(b"{\"type\":\"function\",\"function\":{\"name\":");
        put_text(out, &mut head.rules, "tools", tool.name);
        if let Some(description) = tool.description {
            out.extend_from_slice(b",\"description\":");
            put_text(out, &mut head.rules, "tools", description);
        }
        put_fields(out, &[("strict", tool.strict)]);
        if let Some(parameters) = tool.parameters {
            out.extend_from_slice(b",\"parameters\":");
            put_text(out, &mut head.rules, "tools", parameters);
        }
        out.extend_from_slice(b"}}");
    }
    if !header.tools.is_empty() {
        out.push(b']');
    }
    out.extend_from_slice(b",\"messages\":[");
    Ok(())
}

pub(super) fn write(w: &mut Writer<'_>, message: &Message<'_>) -> Result<(), FormatError> {
    match message.role {
        Role::Assistant => assistant(w, message),
        Role::System => {
            let head = w.open.role.is_none();
            let parts: Vec<&Block<'_>> = message.blocks.iter().collect();
            said(w, message.seq, "system", &parts, head)
        }
        Role::User => {
            w.open.role = Some("user");
            let mut parts = Vec::new();
            for block in &message.blocks {
                match &block.kind {
                    Kind::Result { call, content, is_error } => {
                        result(w, message.seq, block.index, call, content, *is_error)?;
                    }
                    _ => parts.push(block),
                }
            }
            if let Some(held) = w.release() {
                let start = next(w);
                w.out.bytes.extend_from_slice(&held);
                w.out.put("]");
                w.out.mark(start, false, Phase::Messages);
                w.out.object_tokens(held.len());
                w.out.put("}");
            }
            if parts.is_empty() { Ok(()) } else { said(w, message.seq, "user", &parts, false) }
        }
    }
}

/// Starts a message: the comma between it and the one before.
pub(super) fn next(w: &mut Writer<'_>) -> usize {
    if w.open.phase == Phase::Messages {
        w.out.put(",");
    }
    w.open.phase = Phase::Messages;
    w.out.bytes.len()
}

/// A system or user message.
fn said(
    w: &mut Writer<'_>,
    seq: u64,
    role: &str,
    parts: &[&Block<'_>],
    head: bool,
) -> Result<(), FormatError> {
    let start = next(w);
    w.out.put("{\"role\":\"");
    w.out.put(role);
    w.out.put("\",\"content\":");
    if w.route.dialect == Dialect::DeepSeek {
        let texts = only_texts(w, seq, parts)?;
        w.put_joined(seq, &texts, "");
        w.out.mark(start, false, if head { Phase::System } else { Phase::Messages });
    } else {
        w.out.put("[");
        for (position, block) in parts.iter().enumerate() {
            if position > 0 {
                w.out.put(",");
            }
            part(w, seq, block, role == "user", head)?;
        }
        w.out.put("]");
    }
    w.out.put("}");
    Ok(())
}

fn only_texts<'b>(
    w: &Writer<'_>,
    seq: u64,
    parts: &[&'b Block<'_>],
) -> Result<Vec<(usize, &'b str)>, FormatError> {
    let text = |block: &&'b Block<'_>| match block.kind {
        Kind::Text { text, .. } => Ok((block.index, text)),
        _ => Err(w.misplaced(seq, block)),
    };
    parts.iter().map(text).collect()
}

/// One content part.
fn part(
    w: &mut Writer<'_>,
    seq: u64,
    block: &Block<'_>,
    objects: bool,
    head: bool,
) -> Result<(), FormatError> {
    let start = w.out.bytes.len();
    let mut encoded = 0;
    match &block.kind {
        Kind::Text { text, .. } => {
            w.out.put("{\"type\":\"text\",\"text\":");
            w.out.put_json(seq, block.index, text);
        }
        Kind::Image { reference } if objects => {
            let object = w.object(seq, block, reference)?;
            w.out.put("{\"type\":\"image_url\",\"image_url\":{\"url\":");
            encoded = put_url(w, &object);
            w.out.put("}");
        }
        Kind::File { reference, name } if objects => {
            let object = w.object(seq, block, reference)?;
            if matches!(object, Object::Url { .. }) {
                return Err(w.misplaced(seq, block));
            }
            w.out.put("{\"type\":\"file\",\"file\":{\"filename\":");
            w.out.put_json(seq, block.index, name.unwrap_or("\"file\""));
            w.out.put(",\"file_data\":");
            encoded = put_url(w, &object);
            w.out.put("}");
        }
        _ => return Err(w.misplaced(seq, block)),
    }
    w.out.mark(start, true, if head { Phase::System } else { Phase::Messages });
    if encoded > 0 {
        w.out.object_tokens(encoded);
    }
    w.out.put("}");
    Ok(())
}

/// Appends a URL, or a data URL; gives its length.
pub(super) fn put_url(w: &mut Writer<'_>, object: &Object) -> usize {
    let before = w.out.bytes.len();
    match object {
        Object::Url { url, .. } => json::put_string(&mut w.out.bytes, url),
        Object::Bytes { media_type, bytes } => {
            w.out.put("\"data:");
            w.out.put(media_type);
            w.out.put(";base64,");
            put_base64(&mut w.out.bytes, bytes);
            w.out.put("\"");
        }
    }
    w.out.bytes.len() - before
}

fn assistant(w: &mut Writer<'_>, message: &Message<'_>) -> Result<(), FormatError> {
    let seq = message.seq;
    let (mut texts, mut calls, mut thoughts) = (Vec::new(), Vec::new(), Vec::new());
    for block in &message.blocks {
        match &block.kind {
            Kind::Text { text, .. } => {
                if !calls.is_empty() {
                    w.out.rule(seq, Rule::Reordered, block.index);
                }
                texts.push((block.index, *text));
            }
            Kind::Call(call) => calls.push((block.index, *call)),
            Kind::Reasoning(reasoning) => {
                if w.route.dialect != Dialect::DeepSeek {
                    w.out.rule(seq, Rule::ReasoningNotCarried, block.index);
                } else if w.made_by(message).0 {
                    thoughts.push((block.index, reasoning.text));
                } else {
                    w.out.rule(seq, Rule::ForeignReasoning, block.index);
                }
            }
            _ => return Err(w.misplaced(seq, block)),
        }
    }
    if texts.is_empty() && calls.is_empty() {
        w.out.rules.push(super::Applied { seq: Some(seq), rule: Rule::EmptyMessage, detail: None });
        return Ok(());
    }
    w.open.role = Some("assistant");
    let start = next(w);
    w.out.put("{\"role\":\"assistant\",\"content\":");
    match texts.as_slice() {
        [] => w.out.put(if w.route.dialect == Dialect::DeepSeek { "\"\"" } else { "null" }),
        [(index, text)] => w.out.put_json(seq, *index, text),
        many if w.route.dialect == Dialect::DeepSeek => w.put_joined(seq, many, ""),
        many => {
            for (position, (index, text)) in many.iter().enumerate() {
                w.out.put(if position == 0 { "[" } else { "," });
                w.out.put("{\"type\":\"text\",\"text\":");
                w.out.put_json(seq, *index, text);
                w.out.put("}");
            }
            w.out.put("]");
        }
    }
    if !thoughts.is_empty() {
        w.out.put(",\"reasoning_content\":");
        w.put_joined(seq, &thoughts, "");
    }
    for (position, (index, call)) in calls.iter().enumerate() {
        w.out.put(if position == 0 { ",\"tool_calls\":[" } else { "," });
        w.out.put("{\"id\":");
        w.put_call_id(seq, *index, call.id);
        w.out.put(",\"type\":\"function\",\"function\":{\"name\":");
        w.out.put_json(seq, *index, call.name);
        w.out.put(",\"arguments\":");
        w.out.put_json(seq, *index, call.arguments);
        w.out.put("}}");
    }
    if !calls.is_empty() {
        w.out.put("]");
    }
    w.out.mark(start, false, Phase::Messages);
    w.out.put("}");
    Ok(())
}

/// A tool message; images and files of results wait for the last one and follow as a user message.
fn result(
    w: &mut Writer<'_>,
    seq: u64,
    index: usize,
    call: &str,
    content: &[Block<'_>],
    is_error: Option<bool>,
) -> Result<(), FormatError> {
    let mut texts = Vec::new();
    for block in content {
        match &block.kind {
            Kind::Text { text, .. } => texts.push((block.index, *text)),
            Kind::Image { .. } | Kind::File { .. } if w.route.dialect == Dialect::OpenAi => {
                let from = w.out.bytes.len();
                let marks = w.out.marks.len();
                part(w, seq, block, true, false)?;
                w.out.marks.truncate(marks);
                let bytes = w.out.bytes.split_off(from);
                let first = w.open.pending.as_ref().is_none_or(|pending| pending.held.is_empty());
                w.hold(if first { b"{\"role\":\"user\",\"content\":[" } else { b"," });
                w.hold(&bytes);
                w.out.rule(seq, Rule::ObjectAfterResults, block.index);
            }
            _ => return Err(w.misplaced(seq, block)),
        }
    }
    let start = next(w);
    w.out.put("{\"role\":\"tool\",\"tool_call_id\":");
    w.put_call_id(seq, index, call);
    w.out.put(",\"content\":");
    let failed = is_error == Some(true);
    if failed {
        w.out.rule(seq, Rule::ErrorAsText, index);
    }
    w.put_joined(seq, &texts, if failed { "[error] " } else { "" });
    w.out.mark(start, false, Phase::Messages);
    w.out.put("}");
    Ok(())
}

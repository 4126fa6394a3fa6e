//! Anthropic Messages: tools, then the system array, then messages of alternating roles.
//!
//! Rules: FORMATS.md § Anthropic. Neighbouring nodes of one role share a message, which stays open
//! until another role speaks, so that parallel results stand in one user message and each body
//! still extends the one before it. Shapes: the official Python SDK's parameter types.

use super::cache::Effort;
use super::error::{FormatError, Rule};
use super::fold::{Phase, Route, Writer, put_base64};
use super::json;
use super::message::{Block, Header, Kind, Message, Reasoning, Role};
use super::settings::{Settings, ToolChoice, put_fields, put_list, put_text};
use super::{BodyOptions, Format, Head, Object};

pub(super) fn head(
    route: &Route,
    header: &Header<'_>,
    settings: &Settings<'_>,
    options: &BodyOptions,
    head: &mut Head,
) -> Result<(), FormatError> {
    let format = Format::Anthropic;
    Settings::refuse(
        format,
        &[
            ("frequencyPenalty", settings.frequency_penalty),
            ("presencePenalty", settings.presence_penalty),
            ("seed", settings.seed),
        ],
    )?;
    if !route.rule.sampling {
        Settings::refuse(
            format,
            &[("temperature", settings.temperature), ("topP", settings.top_p), ("topK", settings.top_k)],
        )?;
    }
    let max_tokens = head.max_tokens(settings, options);
    let out = &mut head.bytes;
    out.extend_from_slice(b"{\"model\":");
    json::put_string(out, &header.model);
    let stream = options.stream.then_some("true");
    put_fields(
        out,
        &[
            ("max_tokens", Some(&max_tokens)),
            ("stream", stream),
            ("temperature", settings.temperature),
            ("top_p", settings.top_p),
            ("top_k", settings.top_k),
        ],
    );
    if let Some(blank) = settings.stop.iter().find(|span| json::is_blank(span)) {
        return Settings::refuse(format, &[("stop", Some(blank))]);
    }
    if !settings.stop.is_empty() {
        out.extend_from_slice(b",\"stop_sequences\":");
        put_list(out, &mut head.rules, "stop", &settings.stop);
    }
    if let Some(effort) = settings.effort.as_deref() {
        let text = effort_text(route.rule.effort, effort, &max_tokens).ok_or_else(|| {
            FormatError::Setting { format, field: "reasoningEffort".to_owned(), value: effort.to_owned() }
        })?;
        out.extend_from_slice(text.as_bytes());
    }
    let one = if settings.parallel == Some(false) { ",\"disable_parallel_tool_use\":true" } else { "" };
    match &settings.tool_choice {
        None if one.is_empty() => {}
        None | Some(ToolChoice::Auto) => {
            out.extend_from_slice(format!(",\"tool_choice\":{{\"type\":\"auto\"{one}}}").as_bytes());
        }
        Some(ToolChoice::None) => out.extend_from_slice(b",\"tool_choice\":{\"type\":\"none\"}"),
        Some(ToolChoice::Required) => {
            out.extend_from_slice(format!(",\"tool_choice\":{{\"type\":\"any\"{one}}}").as_bytes());
        }
        Some(ToolChoice::Tool(name)) => {
            out.extend_from_slice(b",\"tool_choice\":{\"type\":\"tool\",\"name\":");
            put_text(out, &mut head.rules, "toolChoice", name);
            out.extend_from_slice(one.as_bytes());
            out.push(b'}');
        }
    }
    for (index, tool) in header.tools.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b",\"tools\":[" } else { b"," });
        out.extend_from_slice(b"{\"name\":");
        put_text(out, &mut head.rules, "tools", tool.name);
        if let Some(description) = tool.description {
            out.extend_from_slice(b",\"description\":");
            put_text(out, &mut head.rules, "tools", description);
        }
        put_fields(out, &[("strict", tool.strict)]);
        out.extend_from_slice(b",\"input_schema\":");
        put_text(out, &mut head.rules, "tools", tool.parameters.unwrap_or("{\"type\":\"object\"}"));
        head.last_tool = Some(out.len());
        out.push(b'}');
    }
    if !header.tools.is_empty() {
        out.push(b']');
    }
    Ok(())
}

fn effort_text(style: Effort, effort: &str, max_tokens: &str) -> Option<String> {
    if matches!(effort, "none" | "off") {
        return Some(",\"thinking\":{\"type\":\"disabled\"}".to_owned());
    }
    let known = matches!(effort, "low" | "medium" | "high" | "xhigh" | "max");
    match style {
        Effort::Adaptive if known => Some(format!(
            ",\"thinking\":{{\"type\":\"adaptive\"}},\"output_config\":{{\"effort\":\"{effort}\"}}"
        )),
        Effort::Plain if known => Some(format!(",\"output_config\":{{\"effort\":\"{effort}\"}}")),
        Effort::Budget => {
            let budget = match effort {
                "minimal" => 1_024_u64,
                "low" => 2_048,
                "medium" => 8_192,
                "high" => 16_384,
                "xhigh" | "max" => 32_000,
                _ => return None,
            };
            let fits = max_tokens.parse::<u64>().is_ok_and(|max| budget < max);
            fits.then(|| format!(",\"thinking\":{{\"type\":\"enabled\",\"budget_tokens\":{budget}}}"))
        }
        Effort::Adaptive | Effort::Plain => None,
    }
}

pub(super) fn write(w: &mut Writer<'_>, message: &Message<'_>) -> Result<(), FormatError> {
    let leading = message.role == Role::System && w.open.phase != Phase::Messages;
    // In history the API takes a system message only after a user turn.
    let in_place =
        w.route.rule.system_in_history && !w.route.system_as_user && w.open.role != Some("assistant");
    let role = match message.role {
        Role::Assistant => "assistant",
        Role::System if in_place => "system",
        Role::System | Role::User => "user",
    };
    for block in &message.blocks {
        let seq = message.seq;
        match (&block.kind, message.role) {
            (Kind::Text { text, .. }, _) if json::is_blank(text) => {
                w.out.rule(seq, Rule::BlankText, block.index);
            }
            (Kind::Text { text, .. }, Role::System) if !leading && role == "user" => {
                let start = enter(w, false, role);
                w.out.rule(seq, Rule::SystemAsUser, block.index);
                w.out.put("{\"type\":\"text\",\"text\":");
                w.put_joined(seq, &[(block.index, &tagged(text))], "");
                close(w, start, true);
            }
            (Kind::Text { text, .. }, _) => {
                let start = enter(w, leading, role);
                w.out.put("{\"type\":\"text\",\"text\":");
                w.out.put_json(seq, block.index, text);
                close(w, start, true);
            }
            (Kind::Reasoning(reasoning), Role::Assistant) => thinking(w, message, block.index, reasoning),
            (Kind::Call(call), Role::Assistant) => {
                let start = enter(w, false, role);
                w.out.put("{\"type\":\"tool_use\",\"id\":");
                w.put_call_id(seq, block.index, call.id);
                w.out.put(",\"name\":");
                w.out.put_json(seq, block.index, call.name);
                w.out.put(",\"input\":");
                w.put_arguments(seq, block.index, call.arguments);
                close(w, start, true);
            }
            (Kind::Result { call, content, is_error }, Role::User) => {
                let start = enter(w, false, role);
                let encoded = result(w, seq, block.index, call, content, *is_error)?;
                close(w, start, true);
                if encoded > 0 {
                    w.out.object_tokens(encoded);
                }
            }
            (Kind::Image { .. } | Kind::File { .. }, Role::User) => {
                let start = enter(w, false, role);
                let encoded = put_object(w, seq, block)?;
                close(w, start, true);
                w.out.object_tokens(encoded);
            }
            _ => return Err(w.misplaced(seq, block)),
        }
    }
    Ok(())
}

/// Opens the place of the next block: the system array, or a message of `role`. Gives its offset.
fn enter(w: &mut Writer<'_>, leading: bool, role: &'static str) -> usize {
    match (w.open.phase, leading) {
        (Phase::Start, true) => w.out.put(",\"system\":["),
        (Phase::System, true) => w.out.put(","),
        (Phase::Messages, _) if w.open.role == Some(role) => w.out.put(","),
        (phase, _) => {
            w.out.put(match phase {
                Phase::Start => ",\"messages\":[",
                Phase::System => "],\"messages\":[",
                Phase::Messages => "]},",
            });
            w.out.put("{\"role\":\"");
            w.out.put(role);
            w.out.put("\",\"content\":[");
        }
    }
    if leading {
        w.open.phase = Phase::System;
    } else {
        w.open.phase = Phase::Messages;
        w.open.role = Some(role);
    }
    w.out.bytes.len()
}

fn close(w: &mut Writer<'_>, start: usize, markable: bool) {
    let phase = w.open.phase;
    w.out.mark(start, markable, phase);
    w.out.put("}");
}

/// An in-history system prompt as user text, still a JSON string span.
pub(super) fn tagged(text: &str) -> String {
    format!("\"<system>\\n{}\\n</system>\"", json::inside(text))
}

/// Signed reasoning goes back to the model that made it, word for word; the rest is left out.
fn thinking(w: &mut Writer<'_>, message: &Message<'_>, index: usize, reasoning: &Reasoning<'_>) {
    let seq = message.seq;
    let (provider, model) = w.made_by(message);
    let signature = reasoning.signature.filter(|span| !json::is_blank(span));
    if !provider {
        w.out.rule(seq, Rule::ForeignReasoning, index);
    } else if signature.is_none() && reasoning.redacted.is_none() {
        w.out.rule(seq, Rule::UnsignedReasoning, index);
    } else if !model {
        w.out.rule(seq, Rule::ForeignSignature, index);
    } else {
        let start = enter(w, false, "assistant");
        if let Some(data) = reasoning.redacted {
            w.out.put("{\"type\":\"redacted_thinking\",\"data\":");
            w.out.put_json(seq, index, data);
        } else if let Some(signature) = signature {
            w.out.put("{\"type\":\"thinking\",\"thinking\":");
            w.out.put_json(seq, index, reasoning.text);
            w.out.put(",\"signature\":");
            w.out.put_json(seq, index, signature);
        }
        close(w, start, false);
    }
}

fn result(
    w: &mut Writer<'_>,
    seq: u64,
    index: usize,
    call: &str,
    content: &[Block<'_>],
    is_error: Option<bool>,
) -> Result<usize, FormatError> {
    w.out.put("{\"type\":\"tool_result\",\"tool_use_id\":");
    w.put_call_id(seq, index, call);
    let mut encoded = 0;
    let mut any = false;
    for block in content {
        if matches!(&block.kind, Kind::Text { text, .. } if json::is_blank(text)) {
            w.out.rule(seq, Rule::BlankText, block.index);
            continue;
        }
        w.out.put(if any { "," } else { ",\"content\":[" });
        any = true;
        match &block.kind {
            Kind::Text { text, .. } => {
                w.out.put("{\"type\":\"text\",\"text\":");
                w.out.put_json(seq, block.index, text);
            }
            Kind::Image { .. } | Kind::File { .. } => encoded += put_object(w, seq, block)?,
            _ => return Err(w.misplaced(seq, block)),
        }
        w.out.put("}");
    }
    if any {
        w.out.put("]");
    } else if is_error == Some(true) {
        w.out.rule(seq, Rule::EmptyError, index);
        w.out.put(",\"content\":[{\"type\":\"text\",\"text\":\"(no output)\"}]");
    }
    match is_error {
        Some(true) => w.out.put(",\"is_error\":true"),
        Some(false) => w.out.put(",\"is_error\":false"),
        None => {}
    }
    Ok(encoded)
}

/// Appends an image or document block without its closing brace; gives the length of the data.
fn put_object(w: &mut Writer<'_>, seq: u64, block: &Block<'_>) -> Result<usize, FormatError> {
    let (reference, name, image) = match &block.kind {
        Kind::Image { reference } => (*reference, None, true),
        Kind::File { reference, name } => (*reference, *name, false),
        _ => return Err(w.misplaced(seq, block)),
    };
    let object = w.object(seq, block, reference)?;
    w.out.put(if image { "{\"type\":\"image\",\"source\":" } else { "{\"type\":\"document\",\"source\":" });
    let before = w.out.bytes.len();
    match object {
        Object::Url { url, .. } => {
            w.out.put("{\"type\":\"url\",\"url\":");
            json::put_string(&mut w.out.bytes, &url);
        }
        Object::Bytes { media_type, bytes } if !image && media_type == "text/plain" => {
            w.out.put("{\"type\":\"text\",\"media_type\":\"text/plain\",\"data\":");
            json::put_string(&mut w.out.bytes, &String::from_utf8_lossy(&bytes));
        }
        Object::Bytes { media_type, .. } if !image && media_type != "application/pdf" => {
            return Err(w.misplaced(seq, block));
        }
        Object::Bytes { media_type, bytes } => {
            w.out.put("{\"type\":\"base64\",\"media_type\":");
            json::put_string(&mut w.out.bytes, &media_type);
            w.out.put(",\"data\":\"");
            put_base64(&mut w.out.bytes, &bytes);
            w.out.put("\"");
        }
    }
    let encoded = w.out.bytes.len() - before;
    w.out.put("}");
    if let Some(name) = name {
        w.out.put(",\"title\":");
        w.out.put_json(seq, block.index, name);
    }
    Ok(encoded)
}

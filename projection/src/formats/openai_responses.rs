//! OpenAI Responses: a list of typed items.
//!
//! Rules: FORMATS.md § OpenAI Responses. The store keeps the history, so `store` is false and
//! reasoning travels encrypted. Shapes: the official Python SDK's parameter types.

use super::error::{FormatError, Rule};
use super::fold::{Phase, Route, Writer};
use super::json;
use super::message::{Block, Header, Kind, Message, Reasoning, Role};
use super::openai_chat::{next, put_url};
use super::settings::{Settings, ToolChoice, put_fields, put_text};
use super::{BodyOptions, Format, Head, Object, cache};

pub(super) fn head(
    route: &Route,
    header: &Header<'_>,
    settings: &Settings<'_>,
    options: &BodyOptions,
    tree_id: &str,
    head: &mut Head,
) -> Result<(), FormatError> {
    let format = Format::OpenAiResponses;
    Settings::refuse(
        format,
        &[
            ("topK", settings.top_k),
            ("frequencyPenalty", settings.frequency_penalty),
            ("presencePenalty", settings.presence_penalty),
            ("seed", settings.seed),
            ("stop", settings.stop.first().copied()),
        ],
    )?;
    let out = &mut head.bytes;
    out.extend_from_slice(b"{\"model\":");
    json::put_string(out, &header.model);
    put_fields(
        out,
        &[
            ("store", Some("false")),
            ("include", Some("[\"reasoning.encrypted_content\"]")),
            ("max_output_tokens", settings.max_tokens),
            ("temperature", settings.temperature),
            ("top_p", settings.top_p),
            ("stream", options.stream.then_some("true")),
        ],
    );
    if let Some(effort) = settings.effort.as_deref() {
        let effort = match effort {
            "off" | "none" => "none",
            "minimal" | "low" | "medium" | "high" | "xhigh" | "max" => effort,
            _ => return Settings::refuse(format, &[("reasoningEffort", Some(effort))]),
        };
        out.extend_from_slice(format!(",\"reasoning\":{{\"effort\":\"{effort}\"}}").as_bytes());
    }
    match &settings.tool_choice {
        None => {}
        Some(ToolChoice::Auto) => put_fields(out, &[("tool_choice", Some("\"auto\""))]),
        Some(ToolChoice::None) => put_fields(out, &[("tool_choice", Some("\"none\""))]),
        Some(ToolChoice::Required) => put_fields(out, &[("tool_choice", Some("\"required\""))]),
        Some(ToolChoice::Tool(name)) => {
            out.extend_from_slice(b",\"tool_choice\":{\"type\":\"function\",\"name\":");
            put_text(out, &mut head.rules, "toolChoice", name);
            out.push(b'}');
        }
    }
    let parallel = settings.parallel.map(|yes| if yes { "true" } else { "false" });
    put_fields(out, &[("parallel_tool_calls", parallel)]);
    cache::put_openai_fields(out, &route.rule, options, tree_id);
    for (index, tool) in header.tools.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b",\"tools\":[" } else { b"," });
        out.extend_from_slice(b"{\"type\":\"function\",\"name\":");
        put_text(out, &mut head.rules, "tools", tool.name);
        if let Some(description) = tool.description {
            out.extend_from_slice(b",\"description\":");
            put_text(out, &mut head.rules, "tools", description);
        }
        put_fields(out, &[("strict", Some(tool.strict.unwrap_or("false")))]);
        out.extend_from_slice(b",\"parameters\":");
        put_text(out, &mut head.rules, "tools", tool.parameters.unwrap_or("null"));
        out.push(b'}');
    }
    if !header.tools.is_empty() {
        out.push(b']');
    }
    out.extend_from_slice(b",\"input\":[");
    Ok(())
}

pub(super) fn write(w: &mut Writer<'_>, message: &Message<'_>) -> Result<(), FormatError> {
    let seq = message.seq;
    let head = message.role == Role::System && w.open.role.is_none();
    if message.role != Role::System {
        w.open.role = Some("said");
    }
    let mut parts = Vec::new();
    for block in &message.blocks {
        match (&block.kind, message.role) {
            (Kind::Text { text, .. }, Role::Assistant) => {
                let start = next(w);
                w.out.put("{\"type\":\"message\",\"role\":\"assistant\",\"content\":");
                w.out.put_json(seq, block.index, text);
                close(w, start);
            }
            (Kind::Reasoning(reasoning), Role::Assistant) => think(w, message, block.index, reasoning),
            (Kind::Call(call), Role::Assistant) => {
                let start = next(w);
                w.out.put("{\"type\":\"function_call\",\"call_id\":");
                w.put_call_id(seq, block.index, call.id);
                w.out.put(",\"name\":");
                w.out.put_json(seq, block.index, call.name);
                w.out.put(",\"arguments\":");
                w.out.put_json(seq, block.index, call.arguments);
                close(w, start);
            }
            (Kind::Result { call, content, is_error }, Role::User) => {
                result(w, seq, block.index, call, content, *is_error)?;
            }
            (_, Role::Assistant) => return Err(w.misplaced(seq, block)),
            _ => parts.push(block),
        }
    }
    if parts.is_empty() {
        return Ok(());
    }
    next(w);
    let system = message.role == Role::System;
    w.out.put("{\"type\":\"message\",\"role\":\"");
    w.out.put(if system { "system" } else { "user" });
    w.out.put("\",\"content\":[");
    for (position, block) in parts.iter().enumerate() {
        if position > 0 {
            w.out.put(",");
        }
        part(w, seq, block, !system, head)?;
    }
    w.out.put("]}");
    Ok(())
}

/// Ends an item that takes no breakpoint.
fn close(w: &mut Writer<'_>, start: usize) {
    w.out.mark(start, false, Phase::Messages);
    w.out.put("}");
}

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
            w.out.put("{\"type\":\"input_text\",\"text\":");
            w.out.put_json(seq, block.index, text);
        }
        Kind::Image { reference } if objects => {
            let object = w.object(seq, block, reference)?;
            w.out.put("{\"type\":\"input_image\",\"detail\":\"auto\",\"image_url\":");
            encoded = put_url(w, &object);
        }
        Kind::File { reference, name } if objects => {
            let object = w.object(seq, block, reference)?;
            w.out.put("{\"type\":\"input_file\"");
            if let Object::Url { .. } = object {
                w.out.put(",\"file_url\":");
            } else {
                w.out.put(",\"filename\":");
                w.out.put_json(seq, block.index, name.unwrap_or("\"file\""));
                w.out.put(",\"file_data\":");
            }
            encoded = put_url(w, &object);
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

/// Encrypted reasoning goes back to the model that made it; the rest is left out.
fn think(w: &mut Writer<'_>, message: &Message<'_>, index: usize, reasoning: &Reasoning<'_>) {
    let seq = message.seq;
    let (provider, model) = w.made_by(message);
    let sealed = reasoning.encrypted.zip(reasoning.id).filter(|(data, _)| !json::is_blank(data));
    match sealed {
        _ if !provider => w.out.rule(seq, Rule::ForeignReasoning, index),
        None => w.out.rule(seq, Rule::UnsignedReasoning, index),
        Some(_) if !model => w.out.rule(seq, Rule::ForeignSignature, index),
        Some((data, id)) => {
            let start = next(w);
            w.out.put("{\"type\":\"reasoning\",\"id\":");
            w.out.put_json(seq, index, id);
            w.out.put(",\"summary\":[");
            if !json::is_blank(reasoning.text) {
                w.out.put("{\"type\":\"summary_text\",\"text\":");
                w.out.put_json(seq, index, reasoning.text);
                w.out.put("}");
            }
            w.out.put("],\"encrypted_content\":");
            w.out.put_json(seq, index, data);
            close(w, start);
        }
    }
}

fn result(
    w: &mut Writer<'_>,
    seq: u64,
    index: usize,
    call: &str,
    content: &[Block<'_>],
    is_error: Option<bool>,
) -> Result<(), FormatError> {
    let start = next(w);
    w.out.put("{\"type\":\"function_call_output\",\"call_id\":");
    w.put_call_id(seq, index, call);
    w.out.put(",\"output\":");
    let failed = is_error == Some(true);
    if failed {
        w.out.rule(seq, Rule::ErrorAsText, index);
    }
    let texts: Option<Vec<_>> = content
        .iter()
        .map(|block| match block.kind {
            Kind::Text { text, .. } => Some((block.index, text)),
            _ => None,
        })
        .collect();
    match texts {
        Some(texts) if texts.len() < 2 => {
            w.put_joined(seq, &texts, if failed { "[error] " } else { "" });
        }
        _ => {
            w.out.put("[");
            if failed {
                w.out.put("{\"type\":\"input_text\",\"text\":\"[error] \"},");
            }
            for (position, block) in content.iter().enumerate() {
                if position > 0 {
                    w.out.put(",");
                }
                let marks = w.out.marks.len();
                part(w, seq, block, true, false)?;
                w.out.marks.truncate(marks);
            }
            w.out.put("]");
        }
    }
    close(w, start);
    Ok(())
}

//! Gemini `generateContent`: a system instruction, then contents of alternating roles.
//!
//! Rules: FORMATS.md § Gemini. The model's name stands in the URL, not in the body. Neighbouring
//! nodes of one role share a content, which stays open until another role speaks. Shapes: the
//! types of the published Python SDK.

use std::sync::Arc;

use super::anthropic::tagged;
use super::error::{FormatError, Rule};
use super::fold::{Phase, Writer, put_base64};
use super::json;
use super::message::{Block, Header, Kind, Message, Role};
use super::settings::{Settings, ToolChoice, put_list, put_text};
use super::{BodyOptions, Format, Head, Object};

/// What Google documents for a call that carries no signature of its own.
const PLACEHOLDER: &str = "\"skip_thought_signature_validator\"";

pub(super) fn head(
    header: &Header<'_>,
    settings: &Settings<'_>,
    _options: &BodyOptions,
    head: &mut Head,
) -> Result<(), FormatError> {
    let format = Format::Gemini;
    if settings.stop.len() > 5 {
        return Settings::refuse(format, &[("stop", settings.stop.get(5).copied())]);
    }
    if settings.parallel == Some(false) {
        return Settings::refuse(format, &[("parallelToolCalls", Some("false"))]);
    }
    let out = &mut head.bytes;
    out.extend_from_slice(b"{\"generationConfig\":{");
    let mut first = true;
    let mut comma = |out: &mut Vec<u8>, key: &str| {
        out.extend_from_slice(if first { b"\"" } else { b",\"" });
        first = false;
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":");
    };
    for (key, value) in [
        ("maxOutputTokens", settings.max_tokens),
        ("temperature", settings.temperature),
        ("topP", settings.top_p),
        ("topK", settings.top_k),
        ("frequencyPenalty", settings.frequency_penalty),
        ("presencePenalty", settings.presence_penalty),
        ("seed", settings.seed),
    ] {
        if let Some(value) = value {
            comma(out, key);
            out.extend_from_slice(value.as_bytes());
        }
    }
    if !settings.stop.is_empty() {
        comma(out, "stopSequences");
        put_list(out, &mut head.rules, "stop", &settings.stop);
    }
    if let Some(effort) = settings.effort.as_deref() {
        let text = match effort {
            "none" | "off" => "{\"thinkingBudget\":0}".to_owned(),
            "minimal" | "low" | "medium" | "high" | "xhigh" => {
                format!("{{\"includeThoughts\":true,\"thinkingLevel\":\"{}\"}}", effort.to_ascii_uppercase())
            }
            _ => return Settings::refuse(format, &[("reasoningEffort", Some(effort))]),
        };
        comma(out, "thinkingConfig");
        out.extend_from_slice(text.as_bytes());
    }
    out.push(b'}');
    let mode = match &settings.tool_choice {
        None => None,
        Some(ToolChoice::Auto) => Some("AUTO"),
        Some(ToolChoice::None) => Some("NONE"),
        Some(ToolChoice::Required | ToolChoice::Tool(_)) => Some("ANY"),
    };
    if let Some(mode) = mode {
        out.extend_from_slice(
            format!(",\"toolConfig\":{{\"functionCallingConfig\":{{\"mode\":\"{mode}\"").as_bytes(),
        );
        if let Some(ToolChoice::Tool(name)) = settings.tool_choice {
            out.extend_from_slice(b",\"allowedFunctionNames\":");
            put_list(out, &mut head.rules, "toolChoice", &[name]);
        }
        out.extend_from_slice(b"}}");
    }
    for (index, tool) in header.tools.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b",\"tools\":[{\"functionDeclarations\":[" } else { b"," });
        out.extend_from_slice(b"{\"name\":");
        put_text(out, &mut head.rules, "tools", tool.name);
        if let Some(description) = tool.description {
            out.extend_from_slice(b",\"description\":");
            put_text(out, &mut head.rules, "tools", description);
        }
        if let Some(parameters) = tool.parameters {
            out.extend_from_slice(b",\"parametersJsonSchema\":");
            put_text(out, &mut head.rules, "tools", parameters);
        }
        if tool.strict.is_some() {
            head.rules.push(super::Applied {
                seq: None,
                rule: Rule::KeyNotSent,
                detail: Some("tools.strict".to_owned()),
            });
        }
        out.push(b'}');
    }
    if !header.tools.is_empty() {
        out.extend_from_slice(b"]}]");
    }
    Ok(())
}

pub(super) fn write(w: &mut Writer<'_>, message: &Message<'_>) -> Result<(), FormatError> {
    let seq = message.seq;
    let leading = message.role == Role::System && w.open.phase != Phase::Messages;
    let role = if message.role == Role::Assistant { "model" } else { "user" };
    let (_, own) = w.made_by(message);
    let mut signed_call = false;
    for block in &message.blocks {
        match (&block.kind, message.role) {
            (Kind::Text { text, signature }, _)
                if json::is_blank(text) && !(own && signature.is_some_and(is_base64)) =>
            {
                w.out.rule(seq, Rule::BlankText, block.index);
            }
            (Kind::Text { text, signature }, _) => {
                let start = enter(w, leading, role);
                w.out.put("{\"text\":");
                if message.role == Role::System && !leading {
                    w.out.rule(seq, Rule::SystemAsUser, block.index);
                    w.out.put_json(seq, block.index, &tagged(text));
                } else {
                    w.out.put_json(seq, block.index, text);
                }
                sign(w, seq, block.index, own, *signature);
                close(w, start);
            }
            (Kind::Reasoning(reasoning), Role::Assistant) => {
                let (provider, _) = w.made_by(message);
                match reasoning.signature.filter(|span| !json::is_blank(span)) {
                    _ if !provider => w.out.rule(seq, Rule::ForeignReasoning, block.index),
                    None => w.out.rule(seq, Rule::UnsignedReasoning, block.index),
                    Some(span) if !own || !is_base64(span) => {
                        w.out.rule(seq, Rule::ForeignSignature, block.index);
                    }
                    Some(_) => {
                        let start = enter(w, false, role);
                        w.out.put("{\"thought\":true,\"text\":");
                        w.out.put_json(seq, block.index, reasoning.text);
                        sign(w, seq, block.index, own, reasoning.signature);
                        close(w, start);
                    }
                }
            }
            (Kind::Call(call), Role::Assistant) => {
                let start = enter(w, false, role);
                w.out.put("{\"functionCall\":{\"id\":");
                w.put_call_id(seq, block.index, call.id);
                w.out.put(",\"name\":");
                w.out.put_json(seq, block.index, call.name);
                w.out.put(",\"args\":");
                w.put_arguments(seq, block.index, call.arguments);
                w.out.put("}");
                if own && call.signature.is_some_and(is_base64) {
                    sign(w, seq, block.index, own, call.signature);
                } else if !signed_call && w.route.model.starts_with("gemini-3") {
                    w.out.rule(seq, Rule::SignaturePlaceholder, block.index);
                    w.out.put(",\"thoughtSignature\":");
                    w.out.put(PLACEHOLDER);
                } else {
                    sign(w, seq, block.index, own, call.signature);
                }
                signed_call = true;
                close(w, start);
            }
            (Kind::Result { call, content, is_error }, Role::User) => {
                result(w, seq, block.index, call, content, *is_error)?;
            }
            (Kind::Image { .. } | Kind::File { .. }, Role::User) => {
                let start = enter(w, false, role);
                let encoded = put_object(w, seq, block)?;
                close(w, start);
                w.out.object_tokens(encoded);
            }
            _ => return Err(w.misplaced(seq, block)),
        }
    }
    if let Some(held) = w.release() {
        let start = w.out.bytes.len();
        w.out.bytes.extend_from_slice(&held);
        w.out.mark(start, false, Phase::Messages);
        w.out.object_tokens(held.len());
    }
    Ok(())
}

fn enter(w: &mut Writer<'_>, leading: bool, role: &'static str) -> usize {
    match (w.open.phase, leading) {
        (Phase::Start, true) => w.out.put(",\"systemInstruction\":{\"parts\":["),
        (Phase::System, true) => w.out.put(","),
        (Phase::Messages, _) if w.open.role == Some(role) => w.out.put(","),
        (phase, _) => {
            w.out.put(match phase {
                Phase::Start => ",\"contents\":[",
                Phase::System => "]},\"contents\":[",
                Phase::Messages => "]},",
            });
            w.out.put("{\"role\":\"");
            w.out.put(role);
            w.out.put("\",\"parts\":[");
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

fn close(w: &mut Writer<'_>, start: usize) {
    let phase = w.open.phase;
    w.out.mark(start, false, phase);
    w.out.put("}");
}

/// Whether a signature can be one of this provider's, which are bytes in base64.
fn is_base64(span: &str) -> bool {
    let text = json::inside(span);
    let digits = text.trim_end_matches('=');
    let digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte);
    let padding = text.len() - digits.len();
    digits.bytes().all(digit) && text.len().is_multiple_of(4) && padding <= 2 && !digits.is_empty()
}

/// A part's signature goes back to the model that made it.
fn sign(w: &mut Writer<'_>, seq: u64, index: usize, own: bool, signature: Option<&str>) {
    match signature {
        Some(signature) if own && is_base64(signature) => {
            w.out.put(",\"thoughtSignature\":");
            w.out.put_json(seq, index, signature);
        }
        Some(_) => w.out.rule(seq, Rule::ForeignSignature, index),
        None => {}
    }
}

/// A function response; images and files of results follow the last one.
fn result(
    w: &mut Writer<'_>,
    seq: u64,
    index: usize,
    call: &str,
    content: &[Block<'_>],
    is_error: Option<bool>,
) -> Result<(), FormatError> {
    let start = enter(w, false, "user");
    let id = json::unquote(call);
    let answered = w.answered.as_ref().map(Arc::clone);
    let name = answered.as_ref().and_then(|pending| pending.tool(&id)).unwrap_or("\"\"");
    w.out.put("{\"functionResponse\":{\"id\":");
    w.put_call_id(seq, index, call);
    w.out.put(",\"name\":");
    w.out.put_json(seq, index, name);
    w.out.put(",\"response\":{");
    w.out.put(if is_error == Some(true) { "\"error\":" } else { "\"output\":" });
    let mut texts = Vec::new();
    for block in content {
        match &block.kind {
            Kind::Text { text, .. } => texts.push((block.index, *text)),
            Kind::Image { .. } | Kind::File { .. } => {
                let from = w.out.bytes.len();
                put_object(w, seq, block)?;
                w.out.put("}");
                let bytes = w.out.bytes.split_off(from);
                w.hold(b",");
                w.hold(&bytes);
                w.out.rule(seq, Rule::ObjectAfterResults, block.index);
            }
            _ => return Err(w.misplaced(seq, block)),
        }
    }
    w.put_joined(seq, &texts, "");
    w.out.put("}}");
    close(w, start);
    Ok(())
}

/// Appends an object's part without its closing brace; gives the length of the data.
fn put_object(w: &mut Writer<'_>, seq: u64, block: &Block<'_>) -> Result<usize, FormatError> {
    let (Kind::Image { reference } | Kind::File { reference, .. }) = &block.kind else {
        return Err(w.misplaced(seq, block));
    };
    let object = w.object(seq, block, reference)?;
    let before = w.out.bytes.len();
    match object {
        Object::Url { media_type, url } => {
            w.out.put("{\"fileData\":{\"mimeType\":");
            json::put_string(&mut w.out.bytes, &media_type);
            w.out.put(",\"fileUri\":");
            json::put_string(&mut w.out.bytes, &url);
        }
        Object::Bytes { media_type, bytes } => {
            w.out.put("{\"inlineData\":{\"mimeType\":");
            json::put_string(&mut w.out.bytes, &media_type);
            w.out.put(",\"data\":\"");
            put_base64(&mut w.out.bytes, &bytes);
            w.out.put("\"");
        }
    }
    w.out.put("}");
    Ok(w.out.bytes.len() - before)
}

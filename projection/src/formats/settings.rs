//! The call config of a header, sorted into what formats can send.
//!
//! Owns the config fields that formats know: `maxTokens`, `reasoningEffort`, `stop`,
//! `temperature`, `topP`, `topK`, `frequencyPenalty`, `presencePenalty`, `seed`, `toolChoice`,
//! `parallelToolCalls`. Any other field is named as [`Rule::ConfigNotSent`]. `null` is absent.

use std::borrow::Cow;

use super::Format;
use super::error::{Applied, FormatError, Rule};
use super::json;
use super::message::Header;

/// What the model may do with its tools.
pub(super) enum ToolChoice<'a> {
    Auto,
    None,
    Required,
    /// The tool's name, as a JSON string span.
    Tool(&'a str),
}

/// The config, as spans.
#[derive(Default)]
pub(super) struct Settings<'a> {
    pub(super) max_tokens: Option<&'a str>,
    pub(super) effort: Option<Cow<'a, str>>,
    pub(super) stop: Vec<&'a str>,
    pub(super) temperature: Option<&'a str>,
    pub(super) top_p: Option<&'a str>,
    pub(super) top_k: Option<&'a str>,
    pub(super) frequency_penalty: Option<&'a str>,
    pub(super) presence_penalty: Option<&'a str>,
    pub(super) seed: Option<&'a str>,
    pub(super) tool_choice: Option<ToolChoice<'a>>,
    pub(super) parallel: Option<bool>,
}

impl<'a> Settings<'a> {
    pub(super) fn read(header: &Header<'a>, rules: &mut Vec<Applied>) -> Result<Self, FormatError> {
        let mut settings = Self::default();
        for (key, value) in &header.config {
            let (key, value) = (&**key, *value);
            let bad = |why| FormatError::Header { field: format!("config.{key}"), why };
            if value == "null" {
                continue;
            }
            let number = || {
                if json::is_number(value) { Ok(Some(value)) } else { Err(bad("is no number")) }
            };
            match key {
                "provider" | "model" => {}
                "maxTokens" => settings.max_tokens = number()?,
                "temperature" => settings.temperature = number()?,
                "topP" => settings.top_p = number()?,
                "topK" => settings.top_k = number()?,
                "frequencyPenalty" => settings.frequency_penalty = number()?,
                "presencePenalty" => settings.presence_penalty = number()?,
                "seed" => settings.seed = number()?,
                "reasoningEffort" if json::is_string(value) => settings.effort = Some(json::unquote(value)),
                "reasoningEffort" => return Err(bad("is no string")),
                "stop" if json::is_string(value) => settings.stop = vec![value],
                "stop" => {
                    settings.stop = json::elements(value).map_err(|_| bad("is no array"))?;
                    if !settings.stop.iter().all(|span| json::is_string(span)) {
                        return Err(bad("holds what is no string"));
                    }
                }
                "parallelToolCalls" => {
                    settings.parallel = match value {
                        "true" => Some(true),
                        "false" => Some(false),
                        _ => return Err(bad("is neither true nor false")),
                    }
                }
                "toolChoice" => settings.tool_choice = Some(choice(value).ok_or_else(|| bad("is unknown"))?),
                _ => {
                    rules.push(Applied {
                        seq: None,
                        rule: Rule::ConfigNotSent,
                        detail: Some(key.to_owned()),
                    });
                }
            }
        }
        Ok(settings)
    }

    /// Refuses each setting that is there and not in the format.
    pub(super) fn refuse(format: Format, settings: &[(&str, Option<&str>)]) -> Result<(), FormatError> {
        match settings.iter().find_map(|(field, value)| Some((field, (*value)?))) {
            None => Ok(()),
            Some((field, value)) => {
                Err(FormatError::Setting { format, field: (*field).to_owned(), value: value.to_owned() })
            }
        }
    }
}

fn choice(value: &str) -> Option<ToolChoice<'_>> {
    match value {
        "\"auto\"" => Some(ToolChoice::Auto),
        "\"none\"" => Some(ToolChoice::None),
        "\"required\"" | "\"any\"" => Some(ToolChoice::Required),
        object if object.starts_with('{') => {
            let name = json::member(object, "name").ok()??;
            (json::is_string(name) && !json::is_blank(name)).then_some(ToolChoice::Tool(name))
        }
        _ => None,
    }
}

/// Appends `,"key":value` for each value that is there.
pub(super) fn put_fields(out: &mut Vec<u8>, fields: &[(&str, Option<&str>)]) {
    for (key, value) in fields {
        if let Some(value) = value {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(b"\":");
            out.extend_from_slice(value.as_bytes());
        }
    }
}

/// Appends JSON text with lone surrogates replaced, and says so.
pub(super) fn put_text(out: &mut Vec<u8>, rules: &mut Vec<Applied>, field: &str, span: &str) {
    let text = json::scalar_text(span);
    if let Cow::Owned(_) = text {
        rules.push(Applied { seq: None, rule: Rule::LoneSurrogate, detail: Some(field.to_owned()) });
    }
    out.extend_from_slice(text.as_bytes());
}

/// Appends string spans as an array.
pub(super) fn put_list(out: &mut Vec<u8>, rules: &mut Vec<Applied>, field: &str, spans: &[&str]) {
    out.push(b'[');
    for (index, span) in spans.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        put_text(out, rules, field, span);
    }
    out.push(b']');
}

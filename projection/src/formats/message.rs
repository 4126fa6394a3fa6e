//! What a message and a header say, as spans of their verbatim text.
//!
//! Owns the reading of the log's block types (text, reasoning, tool-call, tool-result, image,
//! file). Knows no provider. Values stay spelled as they were admitted.

use std::borrow::Cow;

use super::error::{Applied, FormatError, Rule};
use super::json::{self, Malformed};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    System,
    User,
    Assistant,
}

/// A message of the log.
pub(super) struct Message<'a> {
    pub(super) seq: u64,
    pub(super) role: Role,
    pub(super) provider: Option<Cow<'a, str>>,
    pub(super) model: Option<Cow<'a, str>>,
    pub(super) blocks: Vec<Block<'a>>,
}

/// One content block, and its index in its message.
pub(super) struct Block<'a> {
    pub(super) index: usize,
    pub(super) kind: Kind<'a>,
}

/// What a block holds; every `&str` is a span of JSON text.
pub(super) enum Kind<'a> {
    Text { text: &'a str, signature: Option<&'a str> },
    Reasoning(Reasoning<'a>),
    Call(Call<'a>),
    Result { call: &'a str, content: Vec<Block<'a>>, is_error: Option<bool> },
    Image { reference: &'a str },
    File { reference: &'a str, name: Option<&'a str> },
}

/// Reasoning, with what its provider needs to read it again.
#[derive(Clone, Copy)]
pub(super) struct Reasoning<'a> {
    pub(super) text: &'a str,
    pub(super) signature: Option<&'a str>,
    pub(super) redacted: Option<&'a str>,
    pub(super) encrypted: Option<&'a str>,
    pub(super) id: Option<&'a str>,
}

/// A tool call.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
    pub(super) signature: Option<&'a str>,
}

impl Kind<'_> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Text { .. } => "text",
            Self::Reasoning(_) => "reasoning",
            Self::Call(_) => "tool-call",
            Self::Result { .. } => "tool-result",
            Self::Image { .. } => "image",
            Self::File { .. } => "file",
        }
    }
}

/// Reads the message of node `seq`; keys that no format knows go to `rules`.
pub(super) fn read<'a>(
    seq: u64,
    text: &'a str,
    rules: &mut Vec<Applied>,
) -> Result<Message<'a>, FormatError> {
    let bad = |what| move |Malformed| FormatError::Malformed { seq, what };
    let text = json::check(text).map_err(bad("no JSON"))?;
    let (mut role, mut content, mut source) = (None, None, None);
    for (key, value) in json::members(text).map_err(bad("no object"))? {
        match &*key {
            "role" => role = Some(json::unquote(value)),
            "content" => content = Some(value),
            "source" => source = Some(value),
            "id" => {}
            _ => rules.push(Applied { seq: Some(seq), rule: Rule::KeyNotSent, detail: Some(key.into()) }),
        }
    }
    let role = match role.as_deref() {
        Some("system") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        _ => return Err(FormatError::Malformed { seq, what: "a role of system, user or assistant" }),
    };
    let source = Source::read(source.filter(|span| span.starts_with('{'))).map_err(bad("its source"))?;
    let content = json::elements(content.unwrap_or("null")).map_err(bad("a content array"))?;
    let blocks = read_blocks(seq, &content, &source.replay, rules)?;
    Ok(Message { seq, role, provider: source.provider, model: source.model, blocks })
}

#[derive(Default)]
struct Source<'a> {
    provider: Option<Cow<'a, str>>,
    model: Option<Cow<'a, str>>,
    /// What the provider's adapter kept beside each block, by the block's index.
    replay: Vec<&'a str>,
}

impl<'a> Source<'a> {
    fn read(span: Option<&'a str>) -> Result<Self, Malformed> {
        let mut source = Self::default();
        for (key, value) in span.map_or(Ok(Vec::new()), json::members)? {
            match &*key {
                "provider" => source.provider = Some(json::unquote(value)),
                "model" => source.model = Some(json::unquote(value)),
                "replayState" if value.starts_with('{') => {
                    if let Some(blocks) = json::member(value, "blocks")?.filter(|span| span.starts_with('['))
                    {
                        source.replay = json::elements(blocks)?;
                    }
                }
                _ => {}
            }
        }
        Ok(source)
    }
}

fn read_blocks<'a>(
    seq: u64,
    content: &[&'a str],
    replay: &[&'a str],
    rules: &mut Vec<Applied>,
) -> Result<Vec<Block<'a>>, FormatError> {
    let mut blocks = Vec::with_capacity(content.len());
    for (index, span) in content.iter().enumerate() {
        let kind = read_block(seq, index, span, replay.get(index).copied(), rules)?;
        blocks.push(Block { index, kind });
    }
    Ok(blocks)
}

fn read_block<'a>(
    seq: u64,
    index: usize,
    span: &'a str,
    replay: Option<&'a str>,
    rules: &mut Vec<Applied>,
) -> Result<Kind<'a>, FormatError> {
    let bad = |what| FormatError::Malformed { seq, what };
    let mut fields: Vec<(Cow<'a, str>, &'a str)> =
        json::members(span).map_err(|Malformed| bad("a block is no object"))?;
    let mut take = |name: &str| {
        let at = fields.iter().position(|(key, _)| key == name)?;
        Some(fields.swap_remove(at).1)
    };
    let mut string = |name: &str| take(name).filter(|span| json::is_string(span));
    let kind = string("type").map(json::unquote);
    let kind = match kind.as_deref() {
        Some("text") => Kind::Text {
            text: string("text").ok_or_else(|| bad("a text block has no text"))?,
            signature: string("signature"),
        },
        Some("reasoning") => Kind::Reasoning(Reasoning {
            text: string("text").unwrap_or("\"\""),
            signature: string("signature"),
            redacted: string("redacted"),
            encrypted: string("encryptedContent"),
            id: string("itemId"),
        }),
        Some("tool-call") => Kind::Call(Call {
            id: string("id").unwrap_or("\"\""),
            name: string("name").unwrap_or("\"\""),
            arguments: string("arguments").ok_or_else(|| bad("a call has no arguments text"))?,
            signature: string("signature"),
        }),
        Some("tool-result") => {
            let call = string("toolCallId").unwrap_or("\"\"");
            let content = take("content").unwrap_or("[]");
            let content = if json::is_string(content) {
                vec![Block { index: 0, kind: Kind::Text { text: content, signature: None } }]
            } else {
                let content = json::elements(content).map_err(|Malformed| bad("a result's content"))?;
                read_blocks(seq, &content, &[], rules)?
            };
            let is_error = take("isError").map(|span| span == "true");
            Kind::Result { call, content, is_error }
        }
        Some("image") => Kind::Image { reference: take("attachment").unwrap_or(span) },
        Some("file") => Kind::File { name: string("name"), reference: take("attachment").unwrap_or(span) },
        other => {
            let kind = other.unwrap_or("").to_owned();
            return Err(FormatError::UnknownBlock { seq, index, kind });
        }
    };
    // An image or file that is its own reference keeps its keys for the object store.
    if !matches!(&kind, Kind::Image { reference } | Kind::File { reference, .. } if *reference == span) {
        fields.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (key, _) in fields {
            let detail = Some(format!("{index}.{key}"));
            rules.push(Applied { seq: Some(seq), rule: Rule::KeyNotSent, detail });
        }
    }
    replayed(kind, replay).map_err(|Malformed| bad("its source"))
}

/// Adds what the adapter kept beside a block; the block's own keys win.
fn replayed<'a>(mut kind: Kind<'a>, replay: Option<&'a str>) -> Result<Kind<'a>, Malformed> {
    let Some(replay) = replay.filter(|span| span.starts_with('{')) else { return Ok(kind) };
    for (key, value) in json::members(replay)? {
        if !json::is_string(value) {
            continue;
        }
        let slot = match (&mut kind, &*key) {
            (
                Kind::Reasoning(Reasoning { signature, .. })
                | Kind::Text { signature, .. }
                | Kind::Call(Call { signature, .. }),
                "signature",
            ) => signature,
            (Kind::Reasoning(Reasoning { redacted, .. }), "redacted") => redacted,
            (Kind::Reasoning(Reasoning { encrypted, .. }), "encryptedContent") => encrypted,
            (Kind::Reasoning(Reasoning { id, .. }), "itemId") => id,
            _ => continue,
        };
        slot.get_or_insert(value);
    }
    Ok(kind)
}

/// A header, as spans.
pub(super) struct Header<'a> {
    pub(super) provider: Cow<'a, str>,
    pub(super) model: Cow<'a, str>,
    pub(super) config: Vec<(Cow<'a, str>, &'a str)>,
    pub(super) tools: Vec<Tool<'a>>,
}

/// A tool's schema, as spans.
pub(super) struct Tool<'a> {
    pub(super) name: &'a str,
    pub(super) description: Option<&'a str>,
    pub(super) parameters: Option<&'a str>,
    pub(super) strict: Option<&'a str>,
}

impl<'a> Header<'a> {
    /// Reads a header; tool keys that no format knows go to `rules`.
    pub(super) fn read(text: &'a str, rules: &mut Vec<Applied>) -> Result<Self, FormatError> {
        let bad = |field: &str, why| FormatError::Header { field: field.to_owned(), why };
        let text = json::check(text).map_err(|Malformed| bad("header", "is no JSON"))?;
        let (mut config, mut tools) = (Vec::new(), Vec::new());
        for (key, value) in json::members(text).map_err(|Malformed| bad("header", "is no object"))? {
            match &*key {
                "config" => {
                    config = json::members(value).map_err(|Malformed| bad("config", "is no object"))?;
                }
                "tools" => {
                    for span in json::elements(value).map_err(|Malformed| bad("tools", "is no array"))? {
                        tools.push(Tool::read(span, rules)?);
                    }
                }
                _ => {} // adapterDefaults says where config came from; other keys are not for the wire
            }
        }
        let named = |name: &str| {
            config
                .iter()
                .find(|(key, value)| key == name && json::is_string(value))
                .map(|(_, value)| json::unquote(value))
                .ok_or_else(|| bad(&format!("config.{name}"), "is missing"))
        };
        Ok(Self { provider: named("provider")?, model: named("model")?, config, tools })
    }
}

impl<'a> Tool<'a> {
    fn read(span: &'a str, rules: &mut Vec<Applied>) -> Result<Self, FormatError> {
        let bad = |why| FormatError::Header { field: "tools".to_owned(), why };
        let mut tool = Self { name: "\"\"", description: None, parameters: None, strict: None };
        for (key, value) in json::members(span).map_err(|Malformed| bad("holds no objects"))? {
            match &*key {
                "name" if json::is_string(value) => tool.name = value,
                "description" if json::is_string(value) => tool.description = Some(value),
                "parameters" if value.starts_with('{') => tool.parameters = Some(value),
                "strict" => tool.strict = Some(value),
                _ => rules.push(Applied {
                    seq: None,
                    rule: Rule::KeyNotSent,
                    detail: Some(format!("tools.{key}")),
                }),
            }
        }
        if json::is_blank(tool.name) { Err(bad("holds a tool without a name")) } else { Ok(tool) }
    }
}

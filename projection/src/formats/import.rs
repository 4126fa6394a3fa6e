//! The other direction: the body that a host logged becomes events, so that a host can adopt the
//! store in the middle of its life.
//!
//! Owns the reading of Anthropic, OpenAI Chat, OpenAI Responses and Gemini bodies into drafts of
//! events. Numbers, key order and escapes are kept as they were spelled. What a draft cannot hold
//! is named in [`Imported::left_out`]; a block that no draft can hold is an [`ImportError`]. The
//! drafts, appended in order and projected in the same format, give the messages that were read.

use std::borrow::Cow;

use super::error::ObjectError;
use super::json::{self, Malformed};
use super::{Format, Object};

/// Where the images and files of an imported body go.
pub trait ObjectSink {
    /// Keeps an object and gives the JSON text of the reference that stands for it.
    ///
    /// # Errors
    ///
    /// [`ObjectError`], by which the import fails as a whole.
    fn keep(&mut self, object: Object) -> Result<String, ObjectError>;
}

/// An event to append: messages with `surfaceOp: "append"`, the header without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The event's type.
    pub event_type: &'static str,
    /// The JSON text of its `data`.
    pub data: String,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The events, the header last.
    pub drafts: Vec<Draft>,
    /// Paths of what no draft holds.
    pub left_out: Vec<String>,
}

/// Why a body cannot be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The body is not of the format. Name the right one.
    #[error("{path} is not {expected}")]
    Shape {
        /// Where.
        path: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A block that no event can hold. Take it out of the body first.
    #[error("{path}: unknown type `{kind}`")]
    Unknown {
        /// Where.
        path: String,
        /// The type.
        kind: String,
    },
    /// An image or file cannot be kept. See the source.
    #[error("{path}: the object cannot be kept")]
    Object {
        /// Where.
        path: String,
        /// Why.
        source: ObjectError,
    },
}

type Read<T> = Result<T, ImportError>;

/// Reads a body into drafts. `provider` and `model` are those of the messages that a model said;
/// `model` counts only where the body names none (Gemini).
///
/// # Cost
///
/// One pass over the body, and a copy of it.
///
/// # Errors
///
/// Each variant of [`ImportError`]; a canonical body is no provider's and is a `Shape`.
pub fn import(
    format: Format,
    body: &str,
    provider: &str,
    model: &str,
    objects: &mut dyn ObjectSink,
) -> Result<Imported, ImportError> {
    let body = json::check(body).map_err(|Malformed| shape("the body", "JSON"))?;
    let fields = Fields::read(body, "")?;
    let model = fields.string("model").map_or(Cow::Borrowed(model), json::unquote);
    let mut reader = Reader {
        provider: quoted(provider),
        model: quoted(&model),
        objects,
        out: Imported::default(),
        said: Vec::new(),
        config: Vec::new(),
        tools: Vec::new(),
        calls: Vec::new(),
        messages: 0,
    };
    match format {
        Format::Anthropic => reader.anthropic(&fields)?,
        Format::OpenAiChat => reader.chat(&fields)?,
        Format::OpenAiResponses => reader.responses(&fields)?,
        Format::Gemini => reader.gemini(&fields)?,
        Format::Canonical => return Err(shape("the format", "a provider's")),
    }
    reader.settle();
    reader.header();
    Ok(reader.out)
}

fn shape(path: &str, expected: &'static str) -> ImportError {
    ImportError::Shape { path: path.to_owned(), expected }
}

fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::put_string(&mut out, text);
    String::from_utf8(out).unwrap_or_default()
}

/// The members of an object, and where it stands.
struct Fields<'a> {
    path: String,
    members: Vec<(Cow<'a, str>, &'a str)>,
}

impl<'a> Fields<'a> {
    fn read(span: &'a str, path: &str) -> Read<Self> {
        let members = json::members(span).map_err(|Malformed| shape(path, "an object"))?;
        Ok(Self { path: path.to_owned(), members })
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.members.iter().find(|(name, value)| name == key && *value != "null").map(|(_, value)| *value)
    }

    fn string(&self, key: &str) -> Option<&'a str> {
        self.get(key).filter(|span| json::is_string(span))
    }

    fn need(&self, key: &str, expected: &'static str) -> Read<&'a str> {
        self.string(key).ok_or_else(|| shape(&format!("{}.{key}", self.path), expected))
    }

    fn object(&self, key: &str) -> Read<Option<Fields<'a>>> {
        self.get(key).map(|span| Self::read(span, &format!("{}.{key}", self.path))).transpose()
    }

    fn list(&self, key: &str) -> Read<Vec<Fields<'a>>> {
        let path = format!("{}.{key}", self.path);
        let Some(span) = self.get(key) else { return Ok(Vec::new()) };
        let spans = json::elements(span).map_err(|Malformed| shape(&path, "an array"))?;
        spans.iter().enumerate().map(|(at, span)| Self::read(span, &format!("{path}[{at}]"))).collect()
    }

    fn kind(&self) -> Cow<'a, str> {
        self.string("type").map(json::unquote).unwrap_or_default()
    }

    fn unknown(&self) -> ImportError {
        ImportError::Unknown { path: self.path.clone(), kind: self.kind().into_owned() }
    }
}

/// A text block.
fn text(span: &str) -> String {
    format!(r#"{{"type":"text","text":{span}}}"#)
}

struct Reader<'o> {
    provider: String,
    model: String,
    objects: &'o mut dyn ObjectSink,
    out: Imported,
    /// The blocks of the answer that is being read.
    said: Vec<String>,
    config: Vec<String>,
    tools: Vec<String>,
    /// Calls without ids of their own that wait (Gemini): name and id given.
    calls: Vec<(String, String)>,
    messages: usize,
}

impl Reader<'_> {
    fn id(&mut self) -> usize {
        self.messages += 1;
        self.messages
    }

    /// Ends the answer that is being read.
    fn settle(&mut self) {
        if self.said.is_empty() {
            return;
        }
        let blocks = std::mem::take(&mut self.said).join(",");
        let (id, provider, model) = (self.id(), &self.provider, &self.model);
        let data = format!(
            r#"{{"message":{{"id":"import-{id}","role":"assistant","source":{{"kind":"model","provider":{provider},"model":{model}}},"content":[{blocks}]}}}}"#
        );
        self.out.drafts.push(Draft { event_type: "assistant/message", data });
    }

    fn system(&mut self, blocks: &[String]) {
        self.settle();
        let (id, blocks) = (self.id(), blocks.join(","));
        let data = format!(r#"{{"message":{{"id":"import-{id}","role":"system","content":[{blocks}]}}}}"#);
        self.out.drafts.push(Draft { event_type: "system/message", data });
    }

    fn user(&mut self, blocks: &[String]) {
        self.settle();
        let (id, blocks) = (self.id(), blocks.join(","));
        let data = format!(
            r#"{{"id":"import-{id}","role":"user","source":{{"kind":"user"}},"content":[{blocks}]}}"#
        );
        self.out.drafts.push(Draft { event_type: "user/message", data });
    }

    fn result(&mut self, call: &str, blocks: &[String], is_error: Option<bool>) {
        self.settle();
        let (id, blocks) = (self.id(), blocks.join(","));
        let flag = is_error.map_or(String::new(), |is_error| format!(r#","isError":{is_error}"#));
        let data = format!(
            r#"{{"message":{{"id":"import-{id}","role":"user","source":{{"kind":"tool","callId":{call}}},"content":[{{"type":"tool-result","toolCallId":{call},"content":[{blocks}]{flag}}}]}}}}"#
        );
        self.out.drafts.push(Draft { event_type: "tool/result", data });
    }

    fn call(&mut self, id: &str, name: &str, arguments: &str, rest: &str) {
        self.said
            .push(format!(r#"{{"type":"tool-call","id":{id},"name":{name},"arguments":{arguments}{rest}}}"#));
    }

    fn header(&mut self) {
        let (provider, model) = (&self.provider, &self.model);
        let mut config = vec![format!(r#""provider":{provider},"model":{model}"#)];
        config.append(&mut self.config);
        let config = config.join(",");
        let tools = match self.tools.join(",") {
            tools if tools.is_empty() => tools,
            tools => format!(r#","tools":[{tools}]"#),
        };
        let data = format!(r#"{{"header":{{"config":{{{config}}}{tools}}},"reason":"initial"}}"#);
        self.out.drafts.push(Draft { event_type: "request/header", data });
    }

    /// Sorts fields into the config; the rest is left out, by name, but for `read` ones.
    fn settings(&mut self, fields: &Fields<'_>, known: &[(&str, &str)], read: &[&str]) {
        for (key, value) in fields.members.iter().filter(|(_, value)| *value != "null") {
            match known.iter().find(|(name, _)| name == key) {
                Some((_, ours)) => self.config.push(format!(r#""{ours}":{value}"#)),
                None if read.contains(&&**key) => {}
                None => self.out.left_out.push(format!("{}.{key}", fields.path)),
            }
        }
    }

    /// One tool, from the object that holds its name.
    fn tool(&mut self, fields: &Fields<'_>, parameters: &str) -> Read<()> {
        let mut tool = vec![format!(r#""name":{}"#, fields.need("name", "a name")?)];
        for (theirs, ours) in
            [("description", "description"), (parameters, "parameters"), ("strict", "strict")]
        {
            if let Some(value) = fields.get(theirs) {
                tool.push(format!(r#""{ours}":{value}"#));
            }
        }
        self.tools.push(format!("{{{}}}", tool.join(",")));
        Ok(())
    }

    fn keep(&mut self, path: &str, kind: &str, object: Object, name: Option<&str>) -> Read<String> {
        let kept = self.objects.keep(object);
        let reference = kept.map_err(|source| ImportError::Object { path: path.to_owned(), source })?;
        let name = name.map_or(String::new(), |name| format!(r#","name":{name}"#));
        Ok(format!(r#"{{"type":"{kind}"{name},"attachment":{reference}}}"#))
    }

    // ---- Anthropic ----

    fn anthropic(&mut self, body: &Fields<'_>) -> Read<()> {
        self.settings(
            body,
            &[
                ("max_tokens", "maxTokens"),
                ("temperature", "temperature"),
                ("top_p", "topP"),
                ("top_k", "topK"),
                ("stop_sequences", "stop"),
            ],
            &["model", "stream", "tools", "system", "messages", "tool_choice", "output_config", "thinking"],
        );
        let thinking = body.object("thinking")?;
        let effort = body.object("output_config")?.and_then(|fields| fields.string("effort"));
        match (thinking.map(|fields| fields.kind()).as_deref(), effort) {
            (_, Some(effort)) => self.config.push(format!(r#""reasoningEffort":{effort}"#)),
            (Some("disabled"), None) => self.config.push(r#""reasoningEffort":"off""#.to_owned()),
            (Some(_), None) => self.out.left_out.push(".thinking".to_owned()),
            (None, None) => {}
        }
        if let Some(choice) = body.object("tool_choice")? {
            match &*choice.kind() {
                "auto" => self.config.push(r#""toolChoice":"auto""#.to_owned()),
                "none" => self.config.push(r#""toolChoice":"none""#.to_owned()),
                "any" => self.config.push(r#""toolChoice":"required""#.to_owned()),
                "tool" => self.config.push(format!(
                    r#""toolChoice":{{"type":"tool","name":{}}}"#,
                    choice.need("name", "a name")?
                )),
                _ => return Err(choice.unknown()),
            }
            if choice.get("disable_parallel_tool_use") == Some("true") {
                self.config.push(r#""parallelToolCalls":false"#.to_owned());
            }
        }
        for tool in body.list("tools")? {
            if tool.get("input_schema").is_none() {
                return Err(tool.unknown()); // a tool that the provider runs
            }
            self.tool(&tool, "input_schema")?;
        }
        match body.get("system") {
            Some(span) if json::is_string(span) => self.system(&[text(span)]),
            Some(_) => {
                let blocks = self.anthropic_blocks(&body.list("system")?)?;
                self.system(&blocks);
            }
            None => {}
        }
        for message in body.list("messages")? {
            self.anthropic_message(&message)?;
        }
        Ok(())
    }

    fn anthropic_message(&mut self, message: &Fields<'_>) -> Read<()> {
        let role = json::unquote(message.need("role", "a role")?);
        let content = match message.string("content") {
            Some(span) => vec![text(span)],
            None if role == "user" => return self.anthropic_user(&message.list("content")?),
            None => self.anthropic_blocks(&message.list("content")?)?,
        };
        match &*role {
            "system" => self.system(&content),
            "user" => self.user(&content),
            "assistant" => {
                self.said = content;
                self.settle();
            }
            _ => return Err(shape(&message.path, "a message of system, user or assistant")),
        }
        Ok(())
    }

    fn anthropic_user(&mut self, blocks: &[Fields<'_>]) -> Read<()> {
        let (results, rest): (Vec<_>, Vec<_>) =
            blocks.iter().partition(|block| block.kind() == "tool_result");
        for block in results {
            let content = match block.string("content") {
                Some(span) => vec![text(span)],
                None => self.anthropic_blocks(&block.list("content")?)?,
            };
            let is_error = block.get("is_error").map(|span| span == "true");
            self.result(block.need("tool_use_id", "a call id")?, &content, is_error);
        }
        let mut content = Vec::new();
        for block in rest {
            content.extend(self.anthropic_blocks(std::slice::from_ref(block))?);
        }
        if !content.is_empty() {
            self.user(&content);
        }
        Ok(())
    }

    fn anthropic_blocks(&mut self, blocks: &[Fields<'_>]) -> Read<Vec<String>> {
        let mut found = Vec::with_capacity(blocks.len());
        for block in blocks {
            found.push(match &*block.kind() {
                "text" => text(block.need("text", "a text")?),
                "thinking" => format!(
                    r#"{{"type":"reasoning","text":{},"signature":{}}}"#,
                    block.need("thinking", "a text")?,
                    block.need("signature", "a signature")?
                ),
                "redacted_thinking" => {
                    format!(r#"{{"type":"reasoning","text":"","redacted":{}}}"#, block.need("data", "data")?)
                }
                "tool_use" => {
                    let input = block.get("input").unwrap_or("{}");
                    format!(
                        r#"{{"type":"tool-call","id":{},"name":{},"arguments":{}}}"#,
                        block.need("id", "an id")?,
                        block.need("name", "a name")?,
                        quoted(input)
                    )
                }
                kind @ ("image" | "document") => {
                    let source = block
                        .object("source")?
                        .ok_or_else(|| shape(&block.path, "an object with a source"))?;
                    let media = source.string("media_type").map(json::unquote);
                    let object = match &*source.kind() {
                        "base64" => Object::Bytes {
                            media_type: media.unwrap_or_default().into_owned(),
                            bytes: base64(&source, "data")?.into(),
                        },
                        "text" => Object::Bytes {
                            media_type: "text/plain".to_owned(),
                            bytes: json::unquote(source.need("data", "a text")?).into_owned().into(),
                        },
                        "url" => Object::Url {
                            media_type: if kind == "image" { "image/*" } else { "application/pdf" }
                                .to_owned(),
                            url: json::unquote(source.need("url", "a URL")?).into_owned(),
                        },
                        _ => return Err(source.unknown()),
                    };
                    let ours = if kind == "image" { "image" } else { "file" };
                    self.keep(&block.path, ours, object, block.string("title"))?
                }
                _ => return Err(block.unknown()),
            });
        }
        Ok(found)
    }

    // ---- OpenAI Chat ----

    fn chat(&mut self, body: &Fields<'_>) -> Read<()> {
        self.settings(
            body,
            &[
                ("max_completion_tokens", "maxTokens"),
                ("max_tokens", "maxTokens"),
                ("temperature", "temperature"),
                ("top_p", "topP"),
                ("frequency_penalty", "frequencyPenalty"),
                ("presence_penalty", "presencePenalty"),
                ("seed", "seed"),
                ("stop", "stop"),
                ("reasoning_effort", "reasoningEffort"),
                ("parallel_tool_calls", "parallelToolCalls"),
            ],
            &[
                "model",
                "stream",
                "stream_options",
                "tools",
                "messages",
                "tool_choice",
                "thinking",
                "prompt_cache_key",
                "prompt_cache_options",
            ],
        );
        if body.object("thinking")?.is_some_and(|fields| fields.kind() == "disabled") {
            self.config.push(r#""reasoningEffort":"off""#.to_owned());
        }
        self.openai_choice(body)?;
        for tool in body.list("tools")? {
            let function = tool.object("function")?.ok_or_else(|| tool.unknown())?;
            self.tool(&function, "parameters")?;
        }
        for message in body.list("messages")? {
            let role = json::unquote(message.need("role", "a role")?);
            match &*role {
                "system" | "developer" => {
                    let blocks = self.openai_parts(&message, "content")?;
                    self.system(&blocks);
                }
                "user" => {
                    let blocks = self.openai_parts(&message, "content")?;
                    self.user(&blocks);
                }
                "tool" => {
                    let blocks = self.openai_parts(&message, "content")?;
                    self.openai_result(message.need("tool_call_id", "a call id")?, blocks);
                }
                "assistant" => {
                    self.settle();
                    if let Some(span) = message.string("reasoning_content") {
                        self.said.push(format!(r#"{{"type":"reasoning","text":{span}}}"#));
                    }
                    let calls = message.list("tool_calls")?;
                    // Beside calls DeepSeek spells "no text" as an empty one.
                    let none = !calls.is_empty()
                        && self.provider.starts_with("\"deepseek")
                        && message.string("content") == Some("\"\"");
                    if !none {
                        let blocks = self.openai_parts(&message, "content")?;
                        self.said.extend(blocks);
                    }
                    for call in calls {
                        let function = call.object("function")?.ok_or_else(|| call.unknown())?;
                        let (id, name) = (call.need("id", "an id")?, function.need("name", "a name")?);
                        self.call(id, name, function.need("arguments", "a text")?, "");
                    }
                    self.settle();
                }
                _ => return Err(shape(&message.path, "a message of a known role")),
            }
        }
        Ok(())
    }

    fn openai_choice(&mut self, body: &Fields<'_>) -> Read<()> {
        match body.get("tool_choice") {
            None => {}
            Some(span) if json::is_string(span) => self.config.push(format!(r#""toolChoice":{span}"#)),
            Some(_) => {
                let choice = body.object("tool_choice")?.ok_or_else(|| shape(".tool_choice", "an object"))?;
                let name = match choice.object("function")? {
                    Some(function) => function.need("name", "a name")?,
                    None => choice.need("name", "a name")?,
                };
                self.config.push(format!(r#""toolChoice":{{"type":"tool","name":{name}}}"#));
            }
        }
        Ok(())
    }

    /// A result whose text begins with `[error] ` failed: the rule that the formats write by.
    fn openai_result(&mut self, call: &str, mut blocks: Vec<String>) {
        const FAILED: &str = r#"{"type":"text","text":"[error] "#;
        let failed = blocks.first().is_some_and(|block| block.starts_with(FAILED));
        if failed {
            if let Some(first) = blocks.first_mut() {
                *first = first.replacen("[error] ", "", 1);
            }
            if blocks.first().is_some_and(|block| block == &text("\"\"")) {
                blocks.remove(0);
            }
        } else if blocks == [text("\"\"")] {
            blocks.clear();
        }
        self.result(call, &blocks, failed.then_some(true));
    }

    /// Content as a string, or as a list of parts; of both wires.
    fn openai_parts(&mut self, message: &Fields<'_>, key: &str) -> Read<Vec<String>> {
        if let Some(span) = message.string(key) {
            return Ok(vec![text(span)]);
        }
        let mut blocks = Vec::new();
        for part in message.list(key)? {
            blocks.push(match &*part.kind() {
                "text" | "input_text" | "output_text" => text(part.need("text", "a text")?),
                "refusal" => text(part.need("refusal", "a text")?),
                "image_url" => {
                    let image = part.object("image_url")?.ok_or_else(|| part.unknown())?;
                    let object = located(&image, "url", "image/*")?;
                    self.keep(&part.path, "image", object, None)?
                }
                "input_image" => {
                    let object = located(&part, "image_url", "image/*")?;
                    self.keep(&part.path, "image", object, None)?
                }
                "file" => {
                    let file = part.object("file")?.ok_or_else(|| part.unknown())?;
                    let object = located(&file, "file_data", "application/pdf")?;
                    self.keep(&part.path, "file", object, file.string("filename"))?
                }
                "input_file" => {
                    let key = if part.get("file_url").is_some() { "file_url" } else { "file_data" };
                    let object = located(&part, key, "application/pdf")?;
                    self.keep(&part.path, "file", object, part.string("filename"))?
                }
                _ => return Err(part.unknown()),
            });
        }
        Ok(blocks)
    }

    // ---- OpenAI Responses ----

    fn responses(&mut self, body: &Fields<'_>) -> Read<()> {
        self.settings(
            body,
            &[
                ("max_output_tokens", "maxTokens"),
                ("temperature", "temperature"),
                ("top_p", "topP"),
                ("parallel_tool_calls", "parallelToolCalls"),
            ],
            &[
                "model",
                "store",
                "include",
                "stream",
                "tools",
                "input",
                "instructions",
                "tool_choice",
                "reasoning",
                "prompt_cache_key",
                "prompt_cache_options",
            ],
        );
        if let Some(effort) = body.object("reasoning")?.and_then(|fields| fields.string("effort")) {
            self.config.push(format!(r#""reasoningEffort":{effort}"#));
        }
        self.openai_choice(body)?;
        for tool in body.list("tools")? {
            if tool.kind() != "function" {
                return Err(tool.unknown());
            }
            self.tool(&tool, "parameters")?;
        }
        if let Some(span) = body.string("instructions") {
            self.system(&[text(span)]);
        }
        if let Some(span) = body.string("input") {
            self.user(&[text(span)]);
            return Ok(());
        }
        for item in body.list("input")? {
            match &*item.kind() {
                "message" | "" => {
                    let role = json::unquote(item.need("role", "a role")?);
                    let blocks = self.openai_parts(&item, "content")?;
                    match &*role {
                        "system" | "developer" => self.system(&blocks),
                        "user" => self.user(&blocks),
                        _ => self.said.extend(blocks),
                    }
                }
                "reasoning" => {
                    let mut block = vec![r#""type":"reasoning""#.to_owned()];
                    let summary = item.list("summary")?;
                    let first = summary.first().and_then(|part| part.string("text")).unwrap_or("\"\"");
                    block.push(format!(r#""text":{first}"#));
                    if summary.len() > 1 {
                        self.out.left_out.push(format!("{}.summary[1..]", item.path));
                    }
                    for (theirs, ours) in [("id", "itemId"), ("encrypted_content", "encryptedContent")] {
                        if let Some(span) = item.string(theirs) {
                            block.push(format!(r#""{ours}":{span}"#));
                        }
                    }
                    self.said.push(format!("{{{}}}", block.join(",")));
                }
                "function_call" => {
                    let (id, name) = (item.need("call_id", "an id")?, item.need("name", "a name")?);
                    self.call(id, name, item.need("arguments", "a text")?, "");
                }
                "function_call_output" => {
                    let blocks = self.openai_parts(&item, "output")?;
                    self.openai_result(item.need("call_id", "an id")?, blocks);
                }
                _ => return Err(item.unknown()),
            }
        }
        Ok(())
    }

    // ---- Gemini ----

    fn gemini(&mut self, body: &Fields<'_>) -> Read<()> {
        self.settings(
            body,
            &[],
            &["generationConfig", "tools", "toolConfig", "systemInstruction", "contents"],
        );
        if let Some(config) = body.object("generationConfig")? {
            self.settings(
                &config,
                &[
                    ("maxOutputTokens", "maxTokens"),
                    ("temperature", "temperature"),
                    ("topP", "topP"),
                    ("topK", "topK"),
                    ("frequencyPenalty", "frequencyPenalty"),
                    ("presencePenalty", "presencePenalty"),
                    ("seed", "seed"),
                    ("stopSequences", "stop"),
                ],
                &["thinkingConfig"],
            );
            if let Some(thinking) = config.object("thinkingConfig")? {
                if let Some(level) = thinking.string("thinkingLevel") {
                    self.config.push(format!(r#""reasoningEffort":{}"#, level.to_ascii_lowercase()));
                } else if thinking.get("thinkingBudget") == Some("0") {
                    self.config.push(r#""reasoningEffort":"off""#.to_owned());
                } else {
                    self.out.left_out.push(thinking.path);
                }
            }
        }
        if let Some(calling) = body
            .object("toolConfig")?
            .map(|fields| fields.object("functionCallingConfig"))
            .transpose()?
            .flatten()
        {
            let name = calling
                .get("allowedFunctionNames")
                .and_then(|span| json::elements(span).ok()?.first().copied());
            self.config.push(match (calling.string("mode"), name) {
                (Some("\"ANY\""), Some(name)) => format!(r#""toolChoice":{{"type":"tool","name":{name}}}"#),
                (Some("\"ANY\""), None) => r#""toolChoice":"required""#.to_owned(),
                (Some("\"NONE\""), _) => r#""toolChoice":"none""#.to_owned(),
                _ => r#""toolChoice":"auto""#.to_owned(),
            });
        }
        for tools in body.list("tools")? {
            for tool in tools.list("functionDeclarations")? {
                let key =
                    if tool.get("parameters").is_some() { "parameters" } else { "parametersJsonSchema" };
                self.tool(&tool, key)?;
            }
            self.settings(&tools, &[], &["functionDeclarations"]);
        }
        if let Some(system) = body.object("systemInstruction")? {
            let mut blocks = Vec::new();
            for part in system.list("parts")? {
                blocks.push(text(part.need("text", "a text")?));
            }
            self.system(&blocks);
        }
        for content in body.list("contents")? {
            if content.string("role") == Some("\"model\"") {
                self.gemini_answer(&content)?;
            } else {
                self.gemini_user(&content)?;
            }
        }
        Ok(())
    }

    fn gemini_answer(&mut self, content: &Fields<'_>) -> Read<()> {
        for part in content.list("parts")? {
            let rest = match part.string("thoughtSignature") {
                Some("\"skip_thought_signature_validator\"") | None => String::new(),
                Some(signature) => format!(r#","signature":{signature}"#),
            };
            if let Some(call) = part.object("functionCall")? {
                let name = call.need("name", "a name")?;
                let id = if let Some(id) = call.string("id") {
                    id.to_owned()
                } else {
                    let id = format!("\"call-{}-{}\"", self.messages + 1, self.said.len());
                    self.calls.push((name.to_owned(), id.clone()));
                    id
                };
                let arguments = quoted(call.get("args").unwrap_or("{}"));
                self.call(&id, name, &arguments, &rest);
            } else if let Some(span) = part.string("text") {
                let kind = if part.get("thought") == Some("true") { "reasoning" } else { "text" };
                self.said.push(format!(r#"{{"type":"{kind}","text":{span}{rest}}}"#));
            } else {
                return Err(shape(&part.path, "a text or a function call"));
            }
        }
        self.settle();
        Ok(())
    }

    fn gemini_user(&mut self, content: &Fields<'_>) -> Read<()> {
        let mut blocks = Vec::new();
        for part in content.list("parts")? {
            if let Some(response) = part.object("functionResponse")? {
                let name = response.need("name", "a name")?;
                let given = self.calls.iter().position(|(called, _)| called == name);
                let id = match response.string("id") {
                    Some(id) => id.to_owned(),
                    None => given
                        .map(|at| self.calls.remove(at).1)
                        .ok_or_else(|| shape(&part.path, "an answer to a call"))?,
                };
                let answer = response.get("response").unwrap_or("{}");
                let fields = Fields::read(answer, &response.path)?;
                let (blocks, is_error) =
                    match (fields.members.as_slice(), fields.string("output"), fields.string("error")) {
                        ([_], Some("\"\""), _) => (Vec::new(), None),
                        ([_], Some(span), _) => (vec![text(span)], None),
                        ([_], _, Some("\"\"")) => (Vec::new(), Some(true)),
                        ([_], _, Some(span)) => (vec![text(span)], Some(true)),
                        _ => (vec![text(&quoted(answer))], None),
                    };
                self.result(&id, &blocks, is_error);
            } else if let Some(span) = part.string("text") {
                blocks.push(text(span));
            } else if let Some(data) = part.object("inlineData")? {
                let media_type = json::unquote(data.need("mimeType", "a media type")?).into_owned();
                let kind = if media_type.starts_with("image/") { "image" } else { "file" };
                let object = Object::Bytes { media_type, bytes: base64(&data, "data")?.into() };
                blocks.push(self.keep(&part.path, kind, object, None)?);
            } else if let Some(data) = part.object("fileData")? {
                let media_type = data.string("mimeType").map(json::unquote).unwrap_or_default().into_owned();
                let kind = if media_type.starts_with("image/") { "image" } else { "file" };
                let url = json::unquote(data.need("fileUri", "a URL")?).into_owned();
                blocks.push(self.keep(&part.path, kind, Object::Url { media_type, url }, None)?);
            } else {
                return Err(shape(&part.path, "a known part"));
            }
        }
        if !blocks.is_empty() {
            self.user(&blocks);
        }
        Ok(())
    }
}

/// What a URL or data URL stands for.
fn located(fields: &Fields<'_>, key: &str, media: &str) -> Read<Object> {
    let path = format!("{}.{key}", fields.path);
    let url = json::unquote(fields.need(key, "a URL")?);
    let Some(data) = url.strip_prefix("data:") else {
        return Ok(Object::Url { media_type: media.to_owned(), url: url.into_owned() });
    };
    let (kind, data) = data.split_once(";base64,").ok_or_else(|| shape(&path, "a base64 data URL"))?;
    let bytes = decode_base64(data).ok_or_else(|| shape(&path, "base64"))?;
    Ok(Object::Bytes { media_type: kind.to_ascii_lowercase(), bytes: bytes.into() })
}

fn base64(fields: &Fields<'_>, key: &str) -> Read<Vec<u8>> {
    let text = json::unquote(fields.need(key, "base64")?);
    decode_base64(&text).ok_or_else(|| shape(&format!("{}.{key}", fields.path), "base64"))
}

/// Base64 in either alphabet; white space and missing padding are forgiven.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0_u32);
    let mut padded = false;
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => {
                padded = true;
                continue;
            }
            _ => return None,
        };
        if padded {
            return None;
        }
        bits = (bits << 6) | u32::from(digit);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xFF) as u8);
        }
    }
    (held < 6).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_forgives_line_breaks_and_padding_and_nothing_else() {
        for text in ["Zm9vYg==", "Zm9vYg", "Zm9v\r\nYg==", " Zm9vYg= ="] {
            assert_eq!(decode_base64(text).as_deref(), Some(&b"foob"[..]), "{text}");
        }
        for text in ["Z", "Zm9v*", "Zg==Zg"] {
            assert_eq!(decode_base64(text), None, "{text}");
        }
    }
}

//! Requests to test with: hand-written, from logs, and random.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use proptest::prelude::*;
use rederive_projection::formats::{Format, ImageSource, MessageView, Object, ObjectError, RequestView};
use serde_json::{Value, json};

/// A request in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub header: String,
    pub messages: Vec<(u64, String)>,
    pub tree: String,
}

impl RequestView for Sample {
    fn header(&self) -> &str {
        &self.header
    }
    fn len(&self) -> usize {
        self.messages.len()
    }
    fn message(&self, index: usize) -> MessageView<'_> {
        let (seq, text) = &self.messages[index];
        MessageView { seq: *seq, text }
    }
    fn tree_id(&self) -> &str {
        &self.tree
    }
}

impl Sample {
    pub fn new(header: &str, messages: &[&str]) -> Self {
        let messages = messages.iter().zip(2..).map(|(text, seq)| (seq, (*text).to_owned())).collect();
        Self { header: header.to_owned(), messages, tree: "tree-1".to_owned() }
    }

    pub fn first(&self, count: usize) -> Self {
        Self { messages: self.messages[..count].to_vec(), ..self.clone() }
    }
}

/// Whose model a format talks to in these tests.
pub fn route(format: Format) -> (&'static str, &'static str) {
    match format {
        Format::Canonical => ("p", "m"),
        Format::Anthropic => ("anthropic", "claude-opus-4-8"),
        Format::OpenAiChat | Format::OpenAiResponses => ("openai", "gpt-5.6"),
        Format::Gemini => ("google", "gemini-3-pro-preview"),
    }
}

pub fn header(format: Format) -> String {
    let (provider, model) = route(format);
    format!(
        r#"{{"config":{{"provider":"{provider}","model":"{model}","maxTokens":4096}},"tools":[{{"name":"t","description":"does it","parameters":{{"type":"object","properties":{{"q":{{"type":"string"}},"n":{{"type":"number","maximum":1.0}}}}}}}}]}}"#
    )
}

/// Every reference is this small object; `"url"` in the reference gives an address, `"lost"` none.
pub struct Objects;

impl ImageSource for Objects {
    fn resolve(&self, reference: &str) -> Result<Object, ObjectError> {
        let value: Value = serde_json::from_str(reference).unwrap();
        let media_type = value["mediaType"].as_str().unwrap_or("image/png").to_owned();
        if value["lost"] == true {
            return Err(ObjectError::Missing);
        }
        if let Some(url) = value["url"].as_str() {
            return Ok(Object::Url { media_type, url: url.to_owned() });
        }
        let bytes = if media_type == "text/plain" {
            Bytes::from("say \"hi\"\n")
        } else {
            Bytes::from("\u{1}png\u{2}")
        };
        Ok(Object::Bytes { media_type, bytes })
    }
}

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = root.ancestors().map(|folder| folder.join("shared").join(path)).find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: no shared/{path}");
    }
    found
}

/// A message, with the model that made it where a model did.
pub fn said(role: &str, content: &Value, maker: Option<(&str, &str)>) -> String {
    match maker {
        Some((provider, model)) => {
            json!({"role": role, "source": {"kind": "model", "provider": provider, "model": model}, "content": content})
        }
        None => json!({"role": role, "content": content}),
    }
    .to_string()
}

/// A step of a random conversation.
#[derive(Clone, Debug)]
pub enum Step {
    User(Vec<Value>),
    System(Vec<Value>),
    /// Blocks of an answer, whether the model is the request's, and the results' contents.
    Answer(Vec<Value>, bool, Vec<(Value, Option<bool>)>),
}

fn text() -> impl Strategy<Value = Value> {
    let piece = prop_oneof![
        4 => "[a-z \"\\\\\n]{1,20}",
        1 => Just(" ".to_owned()),
        1 => Just(String::new()),
        1 => Just("é😀\u{7f}\t".to_owned()),
    ];
    piece.prop_map(|text| json!({"type": "text", "text": text}))
}

fn image() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(
            json!({"type": "image", "attachment": {"id": "a", "mediaType": "image/png", "width": 3, "height": 4}})
        ),
        Just(
            json!({"type": "image", "attachment": {"url": "https://e.org/a.png", "mediaType": "image/png"}})
        ),
    ]
}

fn reasoning() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"type": "reasoning", "text": "hm"})),
        Just(json!({"type": "reasoning", "text": "hm", "signature": "c2ln"})),
        Just(json!({"type": "reasoning", "text": "hm", "itemId": "rs_1", "encryptedContent": "eA=="})),
        Just(json!({"type": "reasoning", "text": "", "redacted": "ZGF0YQ=="})),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let said = prop_oneof![4 => text(), 1 => image()];
    let result = prop::collection::vec(prop_oneof![4 => text(), 1 => image()], 0..3)
        .prop_map(|content| json!(content));
    let result = (result, prop::option::of(any::<bool>()));
    let answer = prop::collection::vec(prop_oneof![3 => text(), 1 => reasoning()], 0..3);
    let calls = prop_oneof![4 => prop::collection::vec(result.clone(), 0..4), 1 => prop::collection::vec(result, 30..45)];
    prop_oneof![
        3 => prop::collection::vec(said, 0..3).prop_map(Step::User),
        1 => prop::collection::vec(text(), 0..2).prop_map(Step::System),
        4 => (answer, any::<bool>(), calls).prop_map(|(blocks, own, results)| Step::Answer(blocks, own, results)),
    ]
}

/// A conversation, and the lengths at which a request could be sent.
pub fn conversation() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..10)
}

/// Lays a conversation out for a format. The second value: lengths at which no call waits.
pub fn lay_out(steps: &[Step], format: Format) -> (Sample, Vec<usize>) {
    let (provider, model) = route(format);
    let mut messages = vec![
        said("system", &json!([{"type": "text", "text": "Be brief. ".repeat(900)}]), None),
        said("user", &json!([{"type": "text", "text": "hello"}]), None),
    ];
    let mut cuts = vec![messages.len()];
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::User(content) => messages.push(said("user", &json!(content), None)),
            Step::System(content) => messages.push(said("system", &json!(content), None)),
            Step::Answer(blocks, own, results) => {
                let mut blocks = blocks.clone();
                for index in 0..results.len() {
                    let arguments = if index % 3 == 2 { "not json" } else { "{\"q\": \"x\", \"n\": 1.0}" };
                    blocks.push(json!({"type": "tool-call", "id": format!("call.{at}:{index}"), "name": "t", "arguments": arguments}));
                }
                let maker = if *own { (provider, model) } else { ("elsewhere", "other") };
                messages.push(said("assistant", &json!(blocks), Some(maker)));
                for (index, (content, is_error)) in results.iter().enumerate() {
                    let mut result = json!({"type": "tool-result", "toolCallId": format!("call.{at}:{index}"), "content": content});
                    if let Some(is_error) = is_error {
                        result["isError"] = json!(is_error);
                    }
                    messages.push(said("user", &json!([result]), None));
                }
            }
        }
        cuts.push(messages.len());
    }
    let texts: Vec<&str> = messages.iter().map(String::as_str).collect();
    (Sample::new(&header(format), &texts), cuts)
}

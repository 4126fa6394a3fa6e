//! A logged body becomes events, and the events give the body again.

use std::collections::HashMap;

use proptest::prelude::*;
use rederive_projection::formats::import::{Draft, Imported, ObjectSink, import};
use rederive_projection::formats::{BodyOptions, Format, ImageSource, Object, ObjectError, body};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::golden;
use super::sample::{Objects, Sample, Step, conversation, lay_out, route};

#[derive(Default)]
struct Store(HashMap<String, Object>);

impl ObjectSink for Store {
    fn keep(&mut self, object: Object) -> Result<String, ObjectError> {
        let reference = format!("{{\"id\":{}}}", self.0.len());
        self.0.insert(reference.clone(), object);
        Ok(reference)
    }
}

impl ImageSource for Store {
    fn resolve(&self, reference: &str) -> Result<Object, ObjectError> {
        self.0.get(reference).cloned().ok_or(ObjectError::Missing)
    }
}

#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    header: Option<&'a RawValue>,
}

/// The request that the drafts give, once appended.
fn appended(drafts: &[Draft]) -> Sample {
    let mut sample = Sample { header: String::new(), messages: Vec::new(), tree: "tree-1".to_owned() };
    for (draft, seq) in drafts.iter().zip(0..) {
        let wrapped: Wrapped<'_> = serde_json::from_str(&draft.data).unwrap();
        match draft.event_type {
            "request/header" => wrapped.header.unwrap().get().clone_into(&mut sample.header),
            "user/message" => sample.messages.push((seq, draft.data.clone())),
            _ => sample.messages.push((seq, wrapped.message.unwrap().get().to_owned())),
        }
    }
    sample
}

#[track_caller]
fn read(format: Format, text: &str, store: &mut Store) -> Imported {
    let (provider, model) = route(format);
    // The body of a DeepSeek model says so by its name alone.
    let provider = if text.contains("\"model\":\"deepseek") { "deepseek-official" } else { provider };
    import(format, text, provider, model, store).unwrap()
}

#[track_caller]
fn check_round_trip(format: Format, options: &BodyOptions, text: &str, name: &str) {
    let mut store = Store::default();
    let imported = read(format, text, &mut store);
    assert_eq!(imported.left_out, [""; 0], "{name}");
    let again = body(&appended(&imported.drafts), options, &store).unwrap();
    assert_eq!(String::from_utf8(again.to_vec()).unwrap(), text, "{format}: {name}");
}

const PROVIDERS: [Format; 4] =
    [Format::Anthropic, Format::OpenAiChat, Format::OpenAiResponses, Format::Gemini];

#[test]
fn golden_bodies_come_back() {
    for format in PROVIDERS {
        for (name, request, options) in golden::features(format) {
            if let Ok(body) = body(&request, &options, &Objects) {
                check_round_trip(format, &options, &String::from_utf8(body.to_vec()).unwrap(), name);
            }
        }
    }
}

fn check_random(steps: &[Step]) {
    for format in PROVIDERS {
        let (sample, _) = lay_out(steps, format);
        let options = BodyOptions::new(format);
        let text = String::from_utf8(body(&sample, &options, &Objects).unwrap().to_vec()).unwrap();
        let mut store = Store::default();
        let imported = read(format, &text, &mut store);
        let again = body(&appended(&imported.drafts), &options.breakpoints(false), &store).unwrap();
        let plain = body(&sample, &BodyOptions::new(format).breakpoints(false), &Objects).unwrap();
        let (again, plain) = (again.to_vec(), plain.to_vec());
        let common = again.iter().zip(&plain).take_while(|(a, b)| a == b).count();
        let rest = |bytes: &[u8]| String::from_utf8_lossy(&bytes[common.saturating_sub(80)..]).into_owned();
        assert!(again == plain, "{format}\n{}\n{}", rest(&again), rest(&plain));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bodies_come_back(steps in conversation()) {
        check_random(&steps);
    }
}

#[test]
fn what_hosts_write_in_other_ways_is_read_too() {
    let mut store = Store::default();
    let text = r#"{"model":"claude-opus-4-8","max_tokens":1E2,"metadata":{"user_id":"u"},"system":"S","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ok\ud83d"}]}"#;
    let imported = read(Format::Anthropic, text, &mut store);
    assert_eq!(imported.left_out, [".metadata"]);
    let types: Vec<&str> = imported.drafts.iter().map(|draft| draft.event_type).collect();
    assert_eq!(types, ["system/message", "user/message", "assistant/message", "request/header"]);
    assert!(imported.drafts[2].data.contains(r#""text":"ok\ud83d""#));
    assert_eq!(
        imported.drafts[3].data,
        r#"{"header":{"config":{"provider":"anthropic","model":"claude-opus-4-8","maxTokens":1E2}},"reason":"initial"}"#
    );

    let text = r#"{"contents":[{"parts":[{"text":"go"}]},{"role":"model","parts":[{"functionCall":{"name":"t","args":{"id":18446744073709551616}}},{"functionCall":{"name":"t","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"t","response":{"a":1.0}}},{"functionResponse":{"name":"t","response":{"output":"x"}}}]}]}"#;
    let imported = read(Format::Gemini, text, &mut store);
    assert!(body(&appended(&imported.drafts), &BodyOptions::new(Format::Gemini), &store).is_ok());
    assert!(imported.drafts[1].data.contains(r#"{\"id\":18446744073709551616}"#));

    for (format, text) in [
        (Format::Anthropic, r#"{"messages":[{"role":"user","content":[{"type":"hologram"}]}]}"#),
        (Format::OpenAiChat, r#"{"messages":[{"role":"bard","content":"x"}]}"#),
        (Format::OpenAiResponses, r#"{"input":[{"type":"web_search_call","id":"x"}]}"#),
        (Format::Gemini, r#"{"contents":[{"parts":[{"executableCode":{}}]}]}"#),
        (Format::Canonical, "{}"),
        (Format::Anthropic, "{"),
    ] {
        assert!(import(format, text, "p", "m", &mut store).is_err(), "{text}");
    }
}

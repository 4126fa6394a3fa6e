//! Strict output: every body parses into valid Unicode, and numbers are never respelled.

use std::collections::HashMap;

use proptest::prelude::*;
use rederive_projection::formats::{BodyOptions, Dialect, Format, Rule, body};
use serde_json::value::RawValue;

use super::sample::{Objects, Sample, conversation, header, lay_out};

/// Parses with strings into `String` and keys unique; numbers stay text, whatever their size.
pub fn parse_strictly(text: &str) -> usize {
    let raw: &RawValue = serde_json::from_str(text).unwrap();
    let text = raw.get();
    match text.as_bytes()[0] {
        b'"' => {
            let _: String = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
            1
        }
        b'{' => {
            let members: HashMap<String, &RawValue> = serde_json::from_str(text).unwrap();
            members.values().map(|value| parse_strictly(value.get())).sum()
        }
        b'[' => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).unwrap();
            elements.iter().map(|value| parse_strictly(value.get())).sum()
        }
        _ => 0,
    }
}

const PROVIDERS: [Format; 4] =
    [Format::Anthropic, Format::OpenAiChat, Format::OpenAiResponses, Format::Gemini];

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_body_parses_strictly(steps in conversation()) {
        for format in PROVIDERS {
            let (sample, cuts) = lay_out(&steps, format);
            for cut in cuts {
                let body = body(&sample.first(cut), &BodyOptions::new(format), &Objects).unwrap();
                prop_assert!(parse_strictly(&String::from_utf8(body.to_vec()).unwrap()) > 3);
            }
        }
    }
}

fn text_of(sample: &Sample, options: &BodyOptions) -> (String, Vec<Rule>) {
    let body = body(sample, options, &Objects).unwrap();
    let rules = body.rules().map(|applied| applied.rule).collect();
    (String::from_utf8(body.to_vec()).unwrap(), rules)
}

#[test]
fn half_an_emoji_is_replaced_and_named() {
    let messages = [
        r#"{"role":"user","content":[{"type":"text","text":"U"}]}"#,
        r#"{"role":"assistant","source":{"kind":"model","provider":"p","model":"m"},"content":[{"type":"text","text":"ok \ud83d end"},{"type":"tool-call","id":"c1","name":"t","arguments":"{\"q\":\"\\ud83d\",\"r\":\"\ud83d\"}"}]}"#,
        r#"{"role":"user","content":[{"type":"tool-result","toolCallId":"c1","content":[{"type":"text","text":"\udc00"}]}]}"#,
    ];
    for format in PROVIDERS {
        let sample = Sample::new(&header(format), &messages);
        let (text, rules) = text_of(&sample, &BodyOptions::new(format));
        assert!(parse_strictly(&text) > 3);
        assert!(text.contains(r"ok \ufffd end"), "{text}");
        assert!(rules.contains(&Rule::LoneSurrogate));
        let arguments = match format {
            // As an object the same rule holds inside; as text only the outer level is touched.
            Format::Anthropic | Format::Gemini => "{\"q\":\"\\ufffd\",\"r\":\"\u{fffd}\"}",
            _ => r#"{\"q\":\"\\ud83d\",\"r\":\"\ufffd\"}"#,
        };
        assert!(text.contains(arguments), "{format}: {text}");
    }
    let sample = Sample::new(&header(Format::Canonical), &messages);
    let (text, rules) = text_of(&sample, &BodyOptions::new(Format::Canonical));
    assert!(text.contains(r"ok \ud83d end") && rules.is_empty());
}

#[test]
fn numbers_leave_as_they_were_spelled() {
    let messages = [
        r#"{"role":"user","content":[{"type":"text","text":"U"}]}"#,
        r#"{"role":"assistant","source":{"kind":"model","provider":"p","model":"m"},"content":[{"type":"tool-call","id":"c1","name":"t","arguments":"{\"id\":4611686018427387905,\"r\":1.0,\"e\":1e999,\"z\":-0}"}]}"#,
        r#"{"role":"user","content":[{"type":"tool-result","toolCallId":"c1","content":[{"type":"text","text":"9007199254740993"}],"row":{"id":9007199254740993}}]}"#,
    ];
    for format in PROVIDERS {
        let header = header(format).replace("4096", "4096.0").replace("1.0}", "18446744073709551616}");
        let sample = Sample::new(&header, &messages);
        let (text, rules) = text_of(&sample, &BodyOptions::new(format));
        let plain = text.replace("\\\"", "\"");
        assert!(plain.contains(r#"{"id":4611686018427387905,"r":1.0,"e":1e999,"z":-0}"#), "{text}");
        assert!(text.contains("18446744073709551616") && text.contains(":4096.0"), "{text}");
        assert!(rules.contains(&Rule::KeyNotSent), "the result's foreign key is named");
    }
}

#[test]
fn deepseek_gets_strings_and_its_own_reasoning() {
    let header = r#"{"config":{"provider":"deepseek-official","model":"deepseek-v4-flash","maxTokens":9,"reasoningEffort":"max"}}"#;
    let messages = [
        r#"{"role":"system","content":[{"type":"text","text":"S"}]}"#,
        r#"{"role":"user","content":[{"type":"text","text":"U"},{"type":"text","text":"V"}]}"#,
        r#"{"role":"assistant","source":{"kind":"model","provider":"deepseek-official","model":"x"},"content":[{"type":"reasoning","text":"hm"},{"type":"text","text":"A"}]}"#,
        r#"{"role":"user","content":[{"type":"text","text":"W"}]}"#,
    ];
    let sample = Sample::new(header, &messages);
    let (text, rules) = text_of(&sample, &BodyOptions::new(Format::OpenAiChat));
    assert_eq!(
        text,
        r#"{"model":"deepseek-v4-flash","max_tokens":9,"thinking":{"type":"enabled"},"reasoning_effort":"max","messages":[{"role":"system","content":"S"},{"role":"user","content":"U\nV"},{"role":"assistant","content":"A","reasoning_content":"hm"},{"role":"user","content":"W"}]}"#
    );
    assert_eq!(rules, [Rule::TextJoined]);
    let (text, _) = text_of(&sample, &BodyOptions::new(Format::OpenAiChat).dialect(Dialect::OpenAi));
    assert!(!text.contains("reasoning_content"));
}

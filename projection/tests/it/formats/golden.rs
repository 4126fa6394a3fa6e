//! Golden bodies: one file for each format and feature. `UPDATE_GOLDEN=1` writes them again.
//!
//! `NAME.json` is the body; `NAME.txt` holds the rules that were applied, or the error.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rederive_projection::formats::{BodyOptions, Format, FormatError, ImageLimits, Lifetime, body};

use super::sample::{Objects, Sample, header, route};

const SYSTEM: &str = r#"{"id":"s","role":"system","content":[{"type":"text","text":"Be brief."}]}"#;
const USER: &str = r#"{"id":"u","role":"user","content":[{"type":"text","text":"What is in a.txt?\n"}]}"#;
const AGAIN: &str = r#"{"id":"v","role":"user","content":[{"type":"text","text":"go on"}]}"#;

/// An answer of the request's own model (`own`), or of another.
fn answer(format: Format, own: bool, content: &str) -> String {
    let (provider, model) = if own { route(format) } else { ("elsewhere", "other") };
    format!(
        r#"{{"id":"a","role":"assistant","source":{{"kind":"model","provider":"{provider}","model":"{model}"}},"content":[{content}]}}"#
    )
}

fn result(id: &str, content: &str, rest: &str) -> String {
    format!(
        r#"{{"id":"r","role":"user","source":{{"kind":"tool","callId":"{id}"}},"content":[{{"type":"tool-result","toolCallId":"{id}","content":[{content}]{rest}}}]}}"#
    )
}

const CALL_1: &str =
    r#"{"type":"tool-call","id":"c1","name":"t","arguments":"{\"q\": \"a.txt\", \"n\": 1.0}"}"#;
const CALL_2: &str = r#"{"type":"tool-call","id":"c2","name":"t","arguments":"{}"}"#;

fn config(format: Format, fields: &str) -> String {
    let (provider, model) = route(format);
    format!(r#"{{"config":{{"provider":"{provider}","model":"{model}",{fields}}}}}"#)
}

/// The features, each as a request and its options.
#[expect(clippy::too_many_lines, reason = "a table")]
pub fn features(format: Format) -> Vec<(&'static str, Sample, BodyOptions)> {
    let options = || BodyOptions::new(format);
    let sample = |messages: &[&str]| Sample::new(&header(format), messages);
    let with = |fields: &str| Sample::new(&config(format, fields), &[SYSTEM, USER]);
    let own = |content: &str| answer(format, true, content);
    let foreign = |content: &str| answer(format, false, content);
    let long_system = SYSTEM.replace("Be brief.", &"Be brief. ".repeat(1_600));
    let text = r#"{"type":"text","text":"ok"}"#;
    let png = r#"{"type":"image","attachment":{"attachmentId":"a1","mediaType":"image/png","bytes":5,"width":3,"height":4}}"#;
    let mut forty = vec![long_system.clone(), USER.to_owned(), own(text), AGAIN.to_owned()];
    let calls: Vec<String> = (0..40)
        .map(|n| format!(r#"{{"type":"tool-call","id":"p{n}","name":"t","arguments":"{{}}"}}"#))
        .collect();
    forty.push(own(&calls.join(",")));
    forty.extend((0..40).map(|n| result(&format!("p{n}"), text, "")));
    let forty: Vec<&str> = forty.iter().map(String::as_str).collect();
    let mut features = vec![
        ("text", sample(&[SYSTEM, USER, &own(text), AGAIN]), options()),
        ("stream", sample(&[SYSTEM, USER]), options().stream(true)),
        ("no-system", sample(&[USER]), options()),
        ("two-systems", sample(&[SYSTEM, &SYSTEM.replace("brief", "kind"), USER]), options()),
        (
            "tools",
            sample(&[
                SYSTEM,
                USER,
                &own(&format!(r#"{{"type":"text","text":"looking"}},{CALL_1},{CALL_2}"#)),
                &result("c1", r#"{"type":"text","text":"one"},{"type":"text","text":"two"}"#, r#","isError":false"#),
                &result("c2", r#"{"type":"text","text":"no such file"}"#, r#","isError":true"#),
                AGAIN,
            ]),
            options(),
        ),
        (
            "results-empty",
            sample(&[
                USER,
                &own(&format!("{CALL_1},{CALL_2}")),
                &result("c1", "", ""),
                &result("c2", "", r#","isError":true"#),
            ]),
            options(),
        ),
        (
            "arguments-odd",
            sample(&[
                USER,
                &own(
                    r#"{"type":"tool-call","id":"c1","name":"t","arguments":""},{"type":"tool-call","id":"c2","name":"t","arguments":"[1"},{"type":"text","text":"after"}"#,
                ),
                &result("c1", text, ""),
                &result("c2", text, ""),
            ]),
            options(),
        ),
        (
            "call-ids-odd",
            sample(&[
                USER,
                &own(r#"{"type":"tool-call","id":"functions.t:0","name":"t","arguments":"{}"}"#),
                &result("functions.t:0", text, ""),
            ]),
            options(),
        ),
        (
            "reasoning-own",
            sample(&[
                USER,
                &own(&format!(
                    r#"{{"type":"reasoning","text":"let me see","signature":"c2ln","itemId":"rs_1","encryptedContent":"ZW5j"}},{text}"#
                )),
                AGAIN,
            ]),
            options(),
        ),
        (
            "reasoning-replay-state",
            sample(&[
                USER,
                &own(&format!(r#"{{"type":"reasoning","text":"let me see"}},{CALL_2}"#)).replace(
                    r#""kind":"model","#,
                    r#""kind":"model","replayState":{"blocks":[{"type":"reasoning","signature":"c2ln","itemId":"rs_2","encryptedContent":"ZW5j"},{"signature":"Y2Fs"}]},"#,
                ),
                &result("c2", text, ""),
            ]),
            options(),
        ),
        (
            "reasoning-emptied",
            sample(&[
                USER,
                &own(&format!(
                    r#"{{"type":"reasoning","text":"","signature":"c2ln","itemId":"rs_1","encryptedContent":"ZW5j"}},{text}"#
                )),
                AGAIN,
            ]),
            options(),
        ),
        (
            "reasoning-redacted",
            sample(&[USER, &own(&format!(r#"{{"type":"reasoning","redacted":"ZGF0YQ=="}},{text}"#)), AGAIN]),
            options(),
        ),
        (
            "reasoning-foreign",
            sample(&[
                USER,
                &foreign(&format!(r#"{{"type":"reasoning","text":"hm","signature":"c2ln"}},{text}"#)),
                AGAIN,
                &own(&format!(r#"{{"type":"reasoning","text":"no signature"}},{text}"#)),
                AGAIN,
                &own(&format!(
                    r#"{{"type":"reasoning","text":"hm","signature":"c2ln","itemId":"r","encryptedContent":"e"}},{text}"#
                ))
                .replace(route(format).1, "older-model"),
                AGAIN,
            ]),
            options(),
        ),
        (
            "reasoning-only",
            sample(&[USER, &foreign(r#"{"type":"reasoning","text":"hm"}"#), AGAIN]),
            options(),
        ),
        (
            "images",
            sample(&[
                &format!(r#"{{"role":"user","content":[{{"type":"text","text":"see"}},{png}]}}"#),
                &own(text),
                r#"{"role":"user","content":[{"type":"image","attachment":{"mediaType":"image/jpeg","url":"https://example.org/a.jpg"}}]}"#,
            ]),
            options(),
        ),
        (
            "images-in-results",
            sample(&[
                USER,
                &own(&format!("{CALL_1},{CALL_2}")),
                &result("c1", &format!("{text},{png}"), ""),
                &result("c2", png, r#","isError":true"#),
                AGAIN,
            ]),
            options(),
        ),
        (
            "image-limits",
            sample(&[&format!(r#"{{"role":"user","content":[{png},{png}]}}"#)]),
            options().images(ImageLimits { side_max_over: Some((1, 3)), ..ImageLimits::default() }),
        ),
        (
            "image-lost",
            sample(&[r#"{"role":"user","content":[{"type":"image","attachment":{"lost":true}}]}"#]),
            options(),
        ),
        (
            "files",
            sample(&[
                r#"{"role":"user","content":[{"type":"file","name":"a.pdf","attachment":{"mediaType":"application/pdf"}},{"type":"text","text":"read"}]}"#,
            ]),
            options(),
        ),
        (
            "file-text",
            sample(&[
                r#"{"role":"user","content":[{"type":"file","attachment":{"mediaType":"text/plain"}}]}"#,
            ]),
            options(),
        ),
        (
            "system-in-history",
            sample(&[
                SYSTEM,
                USER,
                &own(text),
                &SYSTEM.replace("brief", "kind"),
                AGAIN,
                &SYSTEM.replace("brief", "quick"),
                &own(text),
                AGAIN,
            ]),
            options(),
        ),
        (
            "system-as-user",
            sample(&[SYSTEM, USER, &SYSTEM.replace("brief", "kind")]),
            options().system_as_user(true),
        ),
        (
            "blanks",
            sample(&[
                r#"{"role":"system","content":[{"type":"text","text":" \n"}]}"#,
                r#"{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"x"}]}"#,
                r#"{"role":"user","content":[]}"#,
                &own(r#"{"type":"text","text":"\u00a0"}"#),
                AGAIN,
            ]),
            options(),
        ),
        (
            "surrogates",
            sample(&[
                USER,
                &own(
                    r#"{"type":"text","text":"ok \ud83d end"},{"type":"tool-call","id":"c1","name":"t","arguments":"{\"q\":\"\\ud83d\"}"}"#,
                ),
                &result("c1", r#"{"type":"text","text":"\udc00 \ud83d\ude00"}"#, ""),
            ]),
            options(),
        ),
        (
            "numbers",
            sample(&[
                USER,
                &own(
                    r#"{"type":"tool-call","id":"c1","name":"t","arguments":"{\"id\":4611686018427387905,\"r\":1.0}"}"#,
                ),
                &result("c1", r#"{"type":"text","text":"9007199254740993"}"#, ""),
            ]),
            options(),
        ),
        (
            "keys-not-sent",
            Sample::new(
                &header(format).replace("\"name\":\"t\"", "\"name\":\"t\",\"owner\":\"x\",\"strict\":true"),
                &[
                    r#"{"role":"user","meta":1,"content":[{"text":"run \n","type":"text","cache":{"ttl":"1h"}}]}"#,
                    &own(CALL_2),
                    &result("c2", text, r#","row":{"id":9007199254740993}"#),
                ],
            ),
            options(),
        ),
        ("cache-after-forty-calls", sample(&forty), options()),
        ("cache-hour", sample(&forty[..4]), options().head_lifetime(Lifetime::Hour)),
        ("cache-off", sample(&forty[..4]), options().breakpoints(false).cache_key(false)),
        ("config-effort", with(r#""maxTokens":20000,"reasoningEffort":"high""#), options()),
        ("config-effort-off", with(r#""maxTokens":20000,"reasoningEffort":"off""#), options()),
        ("config-sampling", with(r#""maxTokens":9,"temperature":0.70,"topP":1,"topK":40"#), options()),
        ("config-sampling-two", with(r#""maxTokens":9,"temperature":1.0,"topP":0.9"#), options()),
        ("config-penalties", with(r#""frequencyPenalty":0.5,"presencePenalty":0.1,"seed":7"#), options()),
        ("config-stop", with(r#""stop":["END","\n\nHuman:"],"maxTokens":9"#), options()),
        ("config-stop-empty", with(r#""stop":[],"maxTokens":9,"x-own":{"a":1}"#), options()),
        ("config-no-max", with(r#""temperature":null"#), options()),
        (
            "tool-choice",
            Sample::new(
                &header(format).replace("\"maxTokens\"", "\"toolChoice\":{\"name\":\"t\"},\"maxTokens\""),
                &[USER],
            ),
            options(),
        ),
        (
            "tool-choice-required",
            Sample::new(
                &header(format).replace("\"maxTokens\"", "\"toolChoice\":\"required\",\"maxTokens\""),
                &[USER],
            ),
            options(),
        ),
        (
            "tool-choice-serial",
            Sample::new(
                &header(format).replace("\"maxTokens\"", "\"parallelToolCalls\":false,\"maxTokens\""),
                &[USER],
            ),
            options(),
        ),
        ("unanswered", sample(&[USER, &own(CALL_1)]), options()),
    ];
    if matches!(format, Format::OpenAiChat | Format::Anthropic) {
        let deepseek = |sample: Sample| {
            let (provider, model) = route(format);
            let from = |text: &str| text.replace(provider, "deepseek-official").replace(model, "deepseek-v4");
            let messages = sample.messages.iter().map(|(seq, text)| (*seq, from(text))).collect();
            Sample { header: from(&sample.header), messages, ..sample }
        };
        let thought = r#"{"type":"reasoning","text":"let me see","signature":"c2ln"}"#;
        features.push((
            "deepseek-tools",
            deepseek(sample(&[
                SYSTEM,
                r#"{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}"#,
                &own(&format!("{thought},{CALL_1},{CALL_2}")),
                &result("c1", text, ""),
                &result("c2", text, r#","isError":true"#),
            ])),
            options(),
        ));
        let images = format!(r#"{{"role":"user","content":[{png}]}}"#);
        features.push(("deepseek-images", deepseek(sample(&[&images])), options()));
        let effort = with(r#""maxTokens":20000,"reasoningEffort":"max""#);
        features.push(("deepseek-effort", deepseek(effort), options()));
    }
    features
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/formats/v1")
}

/// An error and what caused it, in a line each.
fn chain(error: &FormatError) -> String {
    let mut text = format!("refused: {error}\n");
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = writeln!(text, "because: {cause}");
        source = cause.source();
    }
    text
}

fn check(path: &Path, given: Option<String>) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        match given {
            Some(text) => std::fs::write(path, text).unwrap(),
            None => drop(std::fs::remove_file(path)),
        }
        return;
    }
    let golden = std::fs::read_to_string(path).ok();
    assert_eq!(given, golden, "{} (UPDATE_GOLDEN=1 writes it again)", path.display());
}

fn check_format(format: Format) {
    assert_eq!(format.version(), 1, "a new version has a golden folder of its own");
    let folder = folder().join(format.name());
    std::fs::create_dir_all(&folder).unwrap();
    for (name, request, options) in features(format) {
        let (json, text) = match body(&request, &options, &Objects) {
            Ok(body) => {
                let mut text = String::new();
                for rule in body.rules() {
                    let seq = rule.seq.map_or("header".to_owned(), |seq| format!("node {seq}"));
                    let detail = rule.detail.as_deref().unwrap_or("");
                    let _ = writeln!(text, "{}", format!("{seq}: {:?} {detail}", rule.rule).trim_end());
                }
                let _ = writeln!(text, "{} bytes, {} breakpoints", body.len(), body.breakpoints());
                (Some(String::from_utf8(body.to_vec()).unwrap()), text)
            }
            Err(error) => (None, chain(&error)),
        };
        check(&folder.join(name).with_extension("json"), json);
        check(&folder.join(name).with_extension("txt"), Some(text));
    }
}

#[test]
fn canonical_bodies_are_golden() {
    check_format(Format::Canonical);
}

#[test]
fn anthropic_bodies_are_golden() {
    check_format(Format::Anthropic);
}

#[test]
fn openai_chat_bodies_are_golden() {
    check_format(Format::OpenAiChat);
}

#[test]
fn openai_responses_bodies_are_golden() {
    check_format(Format::OpenAiResponses);
}

#[test]
fn gemini_bodies_are_golden() {
    check_format(Format::Gemini);
}

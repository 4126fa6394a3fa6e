//! The sample logs have a body in each format, or a named reason why not. With `BODIES_OUT` set the
//! bodies are written there, for `.ci/validate_bodies.py`.

use std::path::Path;

use rederive_projection::formats::{BodyOptions, Format, FormatError, body};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::sample::{Objects, Sample, shared};
use super::strict::parse_strictly;

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: String,
    seq: Option<u64>,
    #[serde(borrow, rename = "data")]
    payload: Option<&'a RawValue>,
    #[serde(borrow, rename = "surfaceOp")]
    surface_op: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Replace {
    #[serde(rename = "startSeq")]
    start: u64,
    #[serde(rename = "endSeq")]
    end: u64,
}

#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    header: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Tools<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    content: Vec<&'a RawValue>,
}

/// Folds a log to its next request, slowly and plainly.
fn next_request(log: &str) -> Option<Sample> {
    let (mut header, mut surface) = (None, Vec::<(u64, String)>::new());
    for (position, line) in log.lines().skip(1).enumerate() {
        let event: Event<'_> = serde_json::from_str(line).ok()?;
        let (payload, seq) =
            (event.payload.map_or("{}", RawValue::get), event.seq.unwrap_or(position as u64));
        if event.kind == "request/header" {
            header =
                serde_json::from_str::<Wrapped<'_>>(payload).ok()?.header.map(|raw| raw.get().to_owned());
        }
        let message = match event.kind.as_str() {
            "user/message" => payload.to_owned(),
            "system/message" | "assistant/message" | "tool/result" => {
                serde_json::from_str::<Wrapped<'_>>(payload).ok()?.message?.get().to_owned()
            }
            _ => continue,
        };
        match serde_json::from_str::<Replace>(event.surface_op.map_or("null", RawValue::get)) {
            Ok(replace) => {
                let at = |seq| surface.iter().position(|node| node.0 == seq);
                let range = at(replace.start)?..=at(replace.end)?;
                surface.splice(range, [(seq, message)]);
            }
            Err(_) => surface.push((seq, message)),
        }
    }
    let said = |text: &str| {
        serde_json::from_str::<Content<'_>>(text).is_ok_and(|message| !message.content.is_empty())
    };
    surface.retain(|(_, text)| said(text) || text.contains("\"role\":\"user\""));
    // Some samples have names or placeholders where tools stood.
    let mut header = header?;
    if let Some(tools) = serde_json::from_str::<Tools<'_>>(&header).ok()?.tools
        && !tools.get().starts_with("[{")
    {
        header = header.replace(tools.get(), "[]");
    }
    Some(Sample { header, messages: surface, tree: "root".to_owned() })
}

fn check_log(path: &Path) -> usize {
    let log = std::fs::read_to_string(path).unwrap();
    let Some(sample) = next_request(&log) else { return 0 };
    let mut bodies = 0;
    for format in Format::ALL {
        // The longest start of the request in which no call waits.
        let lengths = (1..=sample.messages.len()).rev();
        let built = lengths
            .map(|len| body(&sample.first(len), &BodyOptions::new(format), &Objects))
            .find(|built| !matches!(built, Err(FormatError::Unanswered { seq, asked, .. }) if seq == asked));
        let name = path.file_stem().unwrap().to_str().unwrap();
        match built {
            // Nothing to send; a dialect without images; the vectors shuffle nodes, which breaks pairs.
            None
            | Some(Err(
                FormatError::NoMessages
                | FormatError::Setting { .. }
                | FormatError::Misplaced { format: Format::OpenAiChat, kind: "image", .. }
                | FormatError::Unanswered { .. }
                | FormatError::Orphan { .. }
                | FormatError::RepeatedCallId { .. }
                | FormatError::RepeatedResult { .. },
            )) => {}
            Some(Err(error)) => panic!("{name}, {format}: {error:?}"),
            Some(Ok(body)) => {
                let text = String::from_utf8(body.to_vec()).unwrap();
                if format != Format::Canonical {
                    assert!(parse_strictly(&text) > 1, "{name}, {format}");
                }
                if let Some(out) = std::env::var_os("BODIES_OUT") {
                    let folder = Path::new(&out).join(format.name());
                    std::fs::create_dir_all(&folder).unwrap();
                    std::fs::write(folder.join(name).with_extension("json"), text).unwrap();
                }
                bodies += 1;
            }
        }
    }
    bodies
}

#[test]
fn sample_logs_have_bodies_in_every_format() {
    for folder in ["vectors/valid", "corpus/dsh-v3"] {
        let Some(folder) = shared(folder) else { return };
        let mut bodies = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                bodies += check_log(&path);
            }
        }
        assert!(bodies > 30, "{bodies} bodies");
    }
}

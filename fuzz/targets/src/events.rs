//! Logs as operations: lines that are nearly always well-formed, and often not admissible.

use std::fmt::Write as _;

use arbitrary::{Arbitrary, Unstructured};
use rederive_engine::{Replay, TypeRegistry};
use rederive_fuzz::Model;
use rederive_projection::{Projector, canonical_bytes, digest_of};

use crate::check_fold;
use crate::lines::push;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Payload {
    User,
    System { empty: bool },
    Assistant { empty: bool, with_source: bool },
    Tool { call: u8, error: Option<bool>, flag: Option<bool>, text: u8 },
    Header { variant: u8, reason: u8, series: bool },
    Turn,
    Title,
    Foreign { ignorable: bool },
    Attempt,
    Legacy,
}

#[derive(Arbitrary, Clone, Debug)]
enum Op {
    None,
    Append,
    /// Places on the surface, or, where odd, seqs as they are.
    Replace {
        first: u8,
        last: u8,
        odd: bool,
    },
}

#[derive(Arbitrary, Clone, Debug)]
enum Sources {
    Covered,
    CoveredAnd(u8),
    Exactly(Vec<u8>),
    None,
}

#[derive(Arbitrary, Clone, Debug)]
struct Step {
    payload: Payload,
    op: Op,
    sources: Sources,
    wrong_seq: bool,
}

fn is_on_surface(payload: Payload) -> bool {
    matches!(
        payload,
        Payload::User | Payload::System { .. } | Payload::Assistant { .. } | Payload::Tool { .. }
    )
}

fn data(payload: Payload, seq: u64) -> (&'static str, String) {
    let text = |text: u64| format!("[{{\"type\":\"text\",\"text\":\"t{text}\"}}]");
    let message = |role: &str, source: &str, content: &str| {
        format!("{{\"message\":{{\"id\":\"m\",\"role\":\"{role}\"{source},\"content\":{content}}}}}")
    };
    match payload {
        Payload::User => {
            ("user/message", format!("{{\"id\":\"u{seq}\",\"role\":\"user\",\"content\":{}}}", text(seq)))
        }
        Payload::System { empty } => (
            "system/message",
            message("system", "", if empty { "[]".to_owned() } else { text(seq) }.as_str()),
        ),
        Payload::Assistant { empty, with_source } => {
            let source = if with_source {
                ",\"source\":{\"kind\":\"model\",\"provider\":\"p\",\"model\":\"m\"}"
            } else {
                ""
            };
            (
                "assistant/message",
                message("assistant", source, if empty { "[]".to_owned() } else { text(seq) }.as_str()),
            )
        }
        Payload::Tool { call, error, flag, text } => {
            let (call, text) = (call % 4, text % 4);
            let error = match error {
                Some(true) => ",\"error\":{\"name\":\"E\"}",
                Some(false) => ",\"error\":null",
                None => "",
            };
            let flag = flag.map_or(String::new(), |flag| format!("\"isError\":{flag},"));
            (
                "tool/result",
                format!(
                    "{{\"turn\":1,\"message\":{{\"role\":\"user\",\"source\":{{\"kind\":\"tool\",\"callId\":\"c{call}\"}},\"content\":[{{\"type\":\"tool-result\",\"toolCallId\":\"c{call}\",{flag}\"content\":[{{\"type\":\"text\",\"text\":\"r{text}\"}}]}}]}}{error}}}"
                ),
            )
        }
        Payload::Header { variant, reason, series } => {
            let reason = ["initial", "resume", "change", "series", "fallback"][usize::from(reason % 5)];
            let header = [
                "{\"config\":{\"provider\":\"p\",\"model\":\"m\"}}",
                "{\"config\":{\"provider\":\"p\",\"model\":\"m\",\"stop\":[]},\"tools\":[{\"name\":\"a\"}]}",
                "{\"config\":{\"provider\":\"p\",\"model\":\"m\"},\"adapterDefaults\":{\"stop\":true}}",
                "{\"config\":{\"provider\":\"p\"}}",
                "{\"config\":{\"provider\":\"p\",\"model\":\"m\"},\"tools\":[]}",
                "{\"config\":{\"provider\":\"p\",\"model\":\"m\"},\"system\":\"s\"}",
            ][usize::from(variant % 6)];
            let series = if series { ",\"startsSeries\":true" } else { "" };
            ("request/header", format!("{{\"header\":{header},\"reason\":\"{reason}\"{series}}}"))
        }
        Payload::Turn => ("turn/start", "{\"turn\":1}".to_owned()),
        Payload::Title => ("session/title", "{\"title\":\"t\"}".to_owned()),
        Payload::Foreign { .. } => ("x-host/progress", "{\"pct\":1e999}".to_owned()),
        Payload::Attempt => ("assistant/attempt", "{\"turn\":1}".to_owned()),
        Payload::Legacy => ("request/header-delta", "{}".to_owned()),
    }
}

/// The line of `step` behind what `model` holds.
fn line(step: &Step, model: &Model) -> String {
    let seq = model.next_seq();
    let (kind, data) = data(step.payload, seq);
    let mut line = format!(
        "{{\"type\":\"{kind}\",\"seq\":{},\"time\":1,\"data\":{data}",
        seq + u64::from(step.wrong_seq)
    );
    let surface = model.surface();
    let mut covered = Vec::new();
    match &step.op {
        Op::None if is_on_surface(step.payload) => line.push_str(",\"surfaceOp\":\"append\""),
        Op::None => {}
        Op::Append => line.push_str(",\"surfaceOp\":\"append\""),
        Op::Replace { first, last, odd } => {
            let (first, last) = (usize::from(*first), usize::from(*last));
            let (start, end) = if *odd || surface.is_empty() {
                (first as u64 % (seq + 1), last as u64 % (seq + 1))
            } else {
                let (first, last) = (first % surface.len(), last % surface.len());
                let (first, last) = (first.min(last), first.max(last));
                covered = surface[first..=last].to_vec();
                (surface[first], surface[last])
            };
            let _ =
                write!(line, ",\"surfaceOp\":{{\"op\":\"replace\",\"startSeq\":{start},\"endSeq\":{end}}}");
        }
    }
    let sources: Option<Vec<u64>> = match &step.sources {
        Sources::Covered => (!covered.is_empty()).then_some(covered),
        Sources::CoveredAnd(more) => {
            covered.push(u64::from(*more) % (seq + 1));
            Some(covered)
        }
        Sources::Exactly(seqs) => Some(seqs.iter().map(|seq| u64::from(*seq)).collect()),
        Sources::None => None,
    };
    if let Some(sources) = sources {
        let sources: Vec<String> = sources.iter().map(u64::to_string).collect();
        let _ = write!(line, ",\"sourceEventSeqs\":[{}]", sources.join(","));
    }
    if matches!(step.payload, Payload::Foreign { ignorable: true }) {
        line.push_str(",\"ignorable\":true");
    }
    line.push('}');
    line
}

fn steps(data: &[u8]) -> Vec<Step> {
    let mut bytes = Unstructured::new(data);
    let mut steps = Vec::new();
    while !bytes.is_empty() && steps.len() < 200 {
        let Ok(step) = Step::arbitrary(&mut bytes) else { break };
        steps.push(step);
    }
    steps
}

/// Operations through the door: admitted or refused as by the model, whose fold is equal after each.
pub fn admission_events(data: &[u8]) {
    let mut replay = Replay::new(TypeRegistry::new());
    let mut model = Model::new().without_requests();
    for step in steps(data) {
        let line = line(&step, &model);
        push(&mut replay, &mut model, line.as_bytes());
        check_fold(replay.fold(), &model);
    }
}

/// The incremental projector against the joined bytes of the fold and of the model, after each
/// operation that was admitted.
pub fn projection(data: &[u8]) {
    let mut replay = Replay::new(TypeRegistry::new());
    let mut model = Model::new().without_requests();
    let mut projector = Projector::new();
    for step in steps(data) {
        let line = line(&step, &model);
        if model.push_line(&line).is_err() {
            continue;
        }
        replay.push_line(&line).expect("the model admits it");
        match (projector.request(replay.fold()), model.next_request()) {
            (Ok(request), Some(expected)) => {
                assert_eq!(request.to_vec(), expected);
                assert_eq!(canonical_bytes(replay.fold()).expect("there is a header"), expected);
                assert_eq!(request.bytes(), expected.len() as u64);
                assert_eq!(request.digest(), digest_of(&expected));
                assert_eq!(request.message_count(), model.messages().len());
            }
            (Err(_), None) => {}
            (found, expected) => panic!("{found:?}, the model: {expected:?}"),
        }
    }
}

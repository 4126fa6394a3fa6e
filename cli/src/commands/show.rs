//! `rederive log`, `messages` and `request`: what is logged, what the model sees, what it was sent.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use rederive_engine::{
    Fold, Kind, LogOnly, NodeKind, Reader, Seq, Store, list_items, object_member, string_text,
};
use rederive_projection::{FrozenMessage, Projector};
use serde::Serialize;

use super::{Context, session_id};
use crate::failure::Failure;
use crate::output;

/// Characters of a text that a table shows.
const SHOWN: usize = 90;

pub(crate) fn log(context: &Context, id: &str, from: u64, kind: Option<&str>) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    let reader = store.read_session(&session_id(id)?)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for event in reader.events(Seq::new(from)..reader.fold().next_seq())? {
        let event = event?;
        if kind.is_some_and(|kind| kind != event.kind().name()) {
            continue;
        }
        if context.json {
            writeln!(out, "{}", event.to_line())?;
        } else {
            let (seq, time) = (event.seq().value(), output::time(event.time_ms()));
            writeln!(
                out,
                "{seq:>7}  {time}  {:<22}  {}",
                event.kind().name(),
                output::short(event.data(), SHOWN)
            )?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Message<'a> {
    seq: u64,
    role: &'static str,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a serde_json::value::RawValue>,
}

pub(crate) fn messages(
    context: &Context,
    id: &str,
    at: Option<u64>,
    closed: bool,
) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    let reader = read(&store, id, closed)?;
    let fold = match at {
        Some(at) => reader.fold_at(Seq::new(at))?,
        None => reader.fold().clone(),
    };
    let frozen: Vec<FrozenMessage> = fold.surface().nodes().filter_map(FrozenMessage::of).collect();
    if context.json {
        let rows: Vec<Message<'_>> = frozen
            .iter()
            .map(|message| Message {
                seq: message.seq().value(),
                role: role(message.kind()),
                bytes: message.text().len(),
                message: serde_json::from_str(message.text()).ok(),
            })
            .collect();
        output::json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(&["#SEQ", "WHO", "#BYTES", "SAYS"]);
    for message in &frozen {
        table.add_row([
            message.seq().to_string(),
            role(message.kind()).to_owned(),
            message.text().len().to_string(),
            output::short(&says(message.text()), SHOWN),
        ]);
    }
    output::line(table)?;
    Ok(ExitCode::SUCCESS)
}

fn role(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::System => "system",
        NodeKind::User => "user",
        NodeKind::Assistant => "assistant",
        NodeKind::ToolResult => "tool",
    }
}

/// The texts, calls and results of a message, for people.
fn says(message: &str) -> String {
    let text = |block: &str, key: &str| {
        object_member(block, key).and_then(string_text).map(std::borrow::Cow::into_owned)
    };
    let mut parts = Vec::new();
    for block in list_items(object_member(message, "content").unwrap_or_default()) {
        let kind = text(block, "type").unwrap_or_default();
        parts.push(match kind.as_str() {
            "text" => text(block, "text").unwrap_or_default(),
            "reasoning" => format!("({})", text(block, "text").unwrap_or_default()),
            "tool-call" => format!(
                "→ {} {}",
                text(block, "name").unwrap_or_default(),
                text(block, "arguments").unwrap_or_default()
            ),
            "tool-result" => format!("← {}", says(block)),
            other => format!("[{other}]"),
        });
    }
    parts.join(" ")
}

pub(crate) fn request(
    context: &Context,
    id: &str,
    seq: Option<u64>,
    next: bool,
    closed: bool,
) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    let reader = read(&store, id, closed)?;
    let fold = match seq {
        Some(seq) => fold_of_request(&reader, Seq::new(seq))?,
        None if next => reader.fold().clone(),
        None => return Err(Failure::Said("name a request: --seq N, or --next".into())),
    };
    let request = Projector::new().request(&fold)?;
    if context.json {
        output::json(&serde_json::json!({
            "headerSeq": request.header().seq().value(),
            "messages": request.message_count(),
            "bytes": request.bytes(),
            "generation": request.generation().value(),
            "blake3": request.digest().to_string(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = std::io::stdout().lock();
    request.write_to(&mut out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn read(store: &Store, id: &str, closed: bool) -> Result<Reader, Failure> {
    let reader = store.read_session(&session_id(id)?)?;
    Ok(if closed { reader.with_closers() } else { reader })
}

/// The fold right before the event that settled or dispatched a request.
fn fold_of_request(reader: &Reader, seq: Seq) -> Result<Fold, Failure> {
    let event = reader.events(seq..seq.next())?.next().transpose()?;
    match event.as_ref().map(rederive_engine::Event::kind) {
        Some(
            Kind::AssistantMessage | Kind::LogOnly(LogOnly::AssistantAttempt | LogOnly::RequestDispatch),
        ) => Ok(reader.fold_at(seq)?),
        Some(kind) => Err(Failure::Said(format!(
            "event {seq} is a {kind}; a request is named by the assistant/message or assistant/attempt that settled it, or by its request/dispatch"
        ))),
        None => {
            Err(Failure::Said(format!("there is no event {seq}; the log has {}", reader.fold().next_seq())))
        }
    }
}

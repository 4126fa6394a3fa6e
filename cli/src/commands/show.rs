//! `rederive log` and `messages`: what is logged, and what the model sees.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use rederive_engine::{NodeKind, Reader, Seq, Store, list_items, object_member, string_text};
use rederive_projection::FrozenMessage;
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

fn read(store: &Store, id: &str, closed: bool) -> Result<Reader, Failure> {
    let reader = store.read_session(&session_id(id)?)?;
    Ok(if closed { reader.with_closers() } else { reader })
}

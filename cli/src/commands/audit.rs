//! `rederive audit`, `diff` and `fork`: how requests relate, and where a conversation branches.

use std::path::Path;
use std::process::ExitCode;

use rederive_engine::{NewSession, Seq};
use rederive_projection::audit::{AuditedRequest, ProviderView, audit, audit_with, html};
use rederive_projection::formats::cache::PriceTable;
use rederive_projection::formats::{BodyOptions, Format};
use rederive_projection::{RequestRef, reconstruct};

use super::{Context, object, session_id};
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(
    context: &Context,
    id: &str,
    page: Option<&Path>,
    provider: Option<Format>,
    prices: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    let reader = store.read_session(&session_id(id)?)?;
    let audit = match provider {
        None => audit(&reader)?,
        Some(format) => {
            let objects = object::open_existing(&store)?;
            let images = object::images(objects.as_ref());
            let view =
                ProviderView::new(BodyOptions::new(format), store.tree_root(reader.header_line())?, &*images);
            let view = match prices {
                Some(path) => view.prices(read_prices(path)?),
                None => view,
            };
            audit_with(&reader, &view)?
        }
    };
    if let Some(path) = page {
        std::fs::write(path, html(&audit)).map_err(Failure::io("write", path))?;
    }
    if context.json {
        output::json(&audit)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(requests(&audit.requests))?;
    if let Some(table) = caches(&audit.requests) {
        output::line(table)?;
    }
    let summary = &audit.summary;
    output::line(format_args!(
        "{} requests, {} in all, {} kept as a prefix of the one before, {} lost in {} breaks",
        summary.requests,
        output::size(summary.bytes),
        output::size(summary.kept_bytes),
        output::size(summary.lost_bytes),
        summary.breaks
    ))?;
    if !summary.by_cause.is_empty() {
        let mut table = output::table(&["CAUSE", "#BREAKS", "#LOST"]);
        for sum in &summary.by_cause {
            table.add_row([sum.cause.to_owned(), sum.breaks.to_string(), output::size(sum.lost_bytes)]);
        }
        output::line(table)?;
    }
    for habit in &summary.habits {
        output::line(format_args!(
            "a habit: {} in {} requests in a row, events {} to {}, {} lost",
            habit.cause,
            habit.requests,
            habit.from,
            habit.to,
            output::size(habit.lost_bytes)
        ))?;
    }
    for problem in &audit.problems {
        let call = problem.call.as_deref().map(|call| format!(", call {}", output::short(call, 60)));
        output::line(format_args!("node {}{}: {}", problem.seq, call.unwrap_or_default(), problem.what))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read_prices(path: &Path) -> Result<PriceTable, Failure> {
    let text = std::fs::read_to_string(path).map_err(Failure::io("read", path))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::Said(format!("{} is no table of prices: {error}", path.display())))
}

/// What a provider's cache should have given, beside what it reported.
fn caches(requests: &[AuditedRequest]) -> Option<comfy_table::Table> {
    let mut table = output::table(&["#EVENT", "#EXPECTED", "#CACHED", "#COST", "MISS"]);
    for request in requests {
        let cache = request.cache.as_ref()?;
        let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        table.add_row([
            request.seq.to_string(),
            cache.expected_tokens.to_string(),
            number(request.cache_read_tokens),
            number(cache.cost_micros),
            cache.error.clone().unwrap_or_else(|| cache.miss.unwrap_or_default().to_owned()),
        ]);
    }
    Some(table)
}

/// A table of requests and how each relates to the one before.
pub(crate) fn requests(requests: &[AuditedRequest]) -> comfy_table::Table {
    let mut table =
        output::table(&["#EVENT", "STEP", "#MESSAGES", "#BYTES", "#KEPT", "#INPUT", "#CACHED", "RELATION"]);
    for (index, request) in requests.iter().enumerate() {
        let tokens = |tokens: Option<u64>| tokens.map(|tokens| tokens.to_string()).unwrap_or_default();
        table.add_row([
            request.seq.to_string(),
            step(request),
            request.messages.to_string(),
            request.bytes.to_string(),
            request.kept_bytes.to_string(),
            tokens(request.input_tokens),
            tokens(request.cache_read_tokens),
            relation(index, request),
        ]);
    }
    table
}

fn step(request: &AuditedRequest) -> String {
    match (request.turn, request.step) {
        (Some(turn), Some(step)) if request.attempt > 1 => format!("{turn}.{step}.{}", request.attempt),
        (Some(turn), Some(step)) => format!("{turn}.{step}"),
        _ => String::new(),
    }
}

fn relation(index: usize, request: &AuditedRequest) -> String {
    let mut text = if index == 0 {
        "first".to_owned()
    } else if request.extends {
        "extends".to_owned()
    } else {
        let place = match (request.differs_at_message, request.differs_at_seq) {
            (Some(message), Some(seq)) => format!("differs from message {message} (node {seq})"),
            (Some(message), None) => format!("ends before message {message}"),
            _ => "differs in the header".to_owned(),
        };
        let causes: Vec<String> = request
            .causes
            .iter()
            .map(|cause| {
                format!("{} {}", cause.name(), output::short(&cause.detail(), 40)).trim_end().to_owned()
            })
            .collect();
        format!("{place}: {}", causes.join(", "))
    };
    if request.series {
        text.push_str(", declared series");
    }
    if request.process_boundary {
        text.push_str(", process boundary");
    }
    text
}

pub(crate) fn diff(context: &Context, id: &str, a: RequestRef, b: RequestRef) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    let reader = store.read_session(&session_id(id)?)?;
    let (a, b) = (reconstruct(&reader, a)?, reconstruct(&reader, b)?);
    let diff = rederive_projection::diff(&a, &b);
    if context.json {
        output::json(&diff)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format_args!(
        "{} and {} bytes, {} in common from the start{}",
        a.bytes(),
        b.bytes(),
        diff.common_bytes,
        if diff.extends { ": the second extends the first" } else { "" }
    ))?;
    for field in &diff.header {
        let shown = |text: &Option<String>| {
            text.as_deref().map_or("nothing".to_owned(), |text| output::short(text, 60))
        };
        output::line(format_args!("header {}: {} -> {}", field.field, shown(&field.old), shown(&field.new)))?;
    }
    output::line(format_args!("  {} messages in common", diff.shared_before))?;
    for message in &diff.messages {
        output::line(format_args!(
            "{} {} (node {}): {}",
            message.side,
            message.index,
            message.seq,
            output::short(&message.text, 90)
        ))?;
    }
    output::line(format_args!("  {} messages in common", diff.shared_behind))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn fork(context: &Context, id: &str, at: u64, name: Option<String>) -> Result<ExitCode, Failure> {
    let store = context.change()?;
    let parent = session_id(id)?;
    let name = name.unwrap_or_else(|| format!("{id}-fork-{at}-{}", std::process::id()));
    let child = store.fork_session(&parent, Seq::new(at), NewSession::new(&*name))?;
    let events = child.fold().next_seq();
    child.close()?;
    output::line(format_args!("{name}"))?;
    if events.value() != at + 2 {
        return Err(Failure::Said(format!("the fork has {events} events, not {}", at + 2)));
    }
    Ok(ExitCode::SUCCESS)
}

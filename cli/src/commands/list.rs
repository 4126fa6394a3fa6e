//! `rederive ls` and `rederive stats`.

use std::process::ExitCode;

use rederive_engine::{ListPlace, SessionInfo, SessionState};
use serde::Serialize;

use super::{Context, session_id};
use crate::failure::Failure;
use crate::output;

#[derive(Serialize)]
struct Row {
    id: String,
    title: Option<String>,
    events: u64,
    bytes: u64,
    stored_bytes: u64,
    created_at: u64,
    last_activity: u64,
    cwd: Option<String>,
    parent: Option<String>,
    writer: Option<u32>,
    state: &'static str,
    damage: Option<String>,
}

impl Row {
    fn of(info: &SessionInfo) -> Self {
        Self {
            id: info.id().to_string(),
            title: info.title().map(Into::into),
            events: info.events(),
            bytes: info.line_bytes(),
            stored_bytes: info.stored_bytes(),
            created_at: info.created_at_ms(),
            last_activity: info.last_activity_ms(),
            cwd: info.cwd().map(Into::into),
            parent: info.parent().map(Into::into),
            writer: match info.state() {
                SessionState::Open { pid } => Some(*pid),
                _ => None,
            },
            state: match info.state() {
                SessionState::Closed => "closed",
                SessionState::Open { .. } => "open",
                SessionState::Interrupted => "interrupted",
                SessionState::Damaged { .. } => "damaged",
            },
            damage: match info.state() {
                SessionState::Damaged { why } => Some(why.clone()),
                _ => None,
            },
        }
    }
}

pub(crate) fn sessions(
    context: &Context,
    limit: usize,
    after: Option<&str>,
    place: Option<ListPlace>,
) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    let (list, next) = if let Some(after) = after {
        (store.sessions(Some(&session_id(after)?), limit)?, None)
    } else {
        let page = store.sessions_page(place, limit)?;
        let next = page.next();
        (page.into_sessions(), next)
    };
    let rows: Vec<Row> = list.iter().map(Row::of).collect();
    if context.json {
        output::json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(&["SESSION", "LAST ACTIVITY", "#EVENTS", "#SIZE", "#STORED", "TITLE"]);
    for row in &rows {
        let state = match (row.writer, row.state) {
            (Some(pid), _) => format!(" (open in {pid})"),
            (None, "closed") => String::new(),
            (None, state) => format!(" ({state})"),
        };
        table.add_row([
            output::short(&row.id, 40) + &state,
            output::time(row.last_activity),
            row.events.to_string(),
            output::size(row.bytes),
            output::size(row.stored_bytes),
            output::short(row.title.as_deref().unwrap_or_default(), 50),
        ]);
    }
    output::line(table)?;
    for row in &rows {
        if let Some(damage) = &row.damage {
            output::line(format_args!("{}: {damage}", output::short(&row.id, 40)))?;
        }
    }
    if let Some(next) = next {
        output::line(format_args!("more: --page {next}"))?;
    } else if rows.len() == limit
        && let Some(last) = rows.last()
    {
        output::line(format_args!("more: --after {}", last.id))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn stats(context: &Context) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    let stats = store.stats()?;
    let rows: [(&str, u64); 7] = [
        ("sessions", stats.sessions()),
        ("events", stats.events()),
        ("line_bytes", stats.line_bytes()),
        ("segments", stats.segments()),
        ("segment_bytes", stats.segment_bytes()),
        ("index_bytes", stats.index_bytes()),
        ("journal_bytes", stats.journal_bytes()),
    ];
    if context.json {
        let map: serde_json::Map<String, serde_json::Value> =
            rows.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        output::json(&map)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(&["WHAT", "#VALUE"]);
    for (name, value) in rows {
        let shown = if name.ends_with("bytes") { output::size(value) } else { value.to_string() };
        table.add_row([name.replace('_', " "), shown]);
    }
    let per_mille = stats.segment_bytes().saturating_mul(1000).checked_div(stats.line_bytes()).unwrap_or(0);
    table.add_row(["stored / logged".to_owned(), format!("{}.{:03}", per_mille / 1000, per_mille % 1000)]);
    output::line(table)?;
    Ok(ExitCode::SUCCESS)
}

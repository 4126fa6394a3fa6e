//! `rederive ls` and `rederive stats`.

use std::process::ExitCode;

use rederive_engine::{ListPlace, Seq, SessionInfo, SessionState, Store};
use serde::Serialize;

use super::{Context, all_sessions, object, session_id};
use crate::failure::Failure;
use crate::output;

#[derive(Serialize)]
struct Row {
    id: String,
    title: Option<String>,
    events: u64,
    bytes: u64,
    stored_bytes: u64,
    images: u64,
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
            images: info.references(),
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
    let mut table =
        output::table(&["SESSION", "LAST ACTIVITY", "#EVENTS", "#SIZE", "#STORED", "#IMAGES", "TITLE"]);
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
            row.images.to_string(),
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

pub(crate) fn stats(context: &Context, inline: bool) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    let stats = store.stats()?;
    let objects = objects(&store)?;
    let mut rows: Vec<(&str, u64)> = vec![
        ("sessions", stats.sessions()),
        ("events", stats.events()),
        ("line_bytes", stats.line_bytes()),
        ("segments", stats.segments()),
        ("segment_bytes", stats.segment_bytes()),
        ("index_bytes", stats.index_bytes()),
        ("journal_bytes", stats.journal_bytes()),
        ("objects", objects.0),
        ("object_bytes", objects.1),
    ];
    if inline {
        let (images, bytes) = inline_images(&store)?;
        rows.extend([("inline_images", images), ("inline_image_bytes", bytes)]);
    }
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

/// How many objects there are, and what their files hold.
fn objects(store: &Store) -> Result<(u64, u64), Failure> {
    let Some(objects) = object::open_existing(store)? else { return Ok((0, 0)) };
    let (mut count, mut bytes) = (0, 0);
    for digest in objects.list()? {
        count += 1;
        // One that is damaged is counted; `object verify` says what is wrong with it.
        bytes += objects.stat(&digest).map_or(0, |stat| stat.stored_bytes);
    }
    Ok((count, bytes))
}

/// Runs of base64 in all events that are long enough to be a picture, and their bytes.
fn inline_images(store: &Store) -> Result<(u64, u64), Failure> {
    let (mut images, mut bytes) = (0, 0);
    for id in all_sessions(store)? {
        let reader = store.read_session(&id)?;
        for event in reader.events(Seq::FIRST..reader.fold().next_seq())? {
            for run in base64_runs(event?.data()) {
                images += 1;
                bytes += run;
            }
        }
    }
    Ok((images, bytes))
}

/// The lengths of runs of base64 behind a data URL's mark, or in the field in which providers carry it
/// beside its media type. Line breaks within count as they are escaped.
fn base64_runs(data: &str) -> Vec<u64> {
    const MARKS: [&str; 2] = ["base64,", "\"data\":\""];
    const RUN_BYTES_MIN: usize = 256;
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=\\".contains(byte);
    let behind = MARKS.iter().flat_map(|mark| data.match_indices(mark).map(|(at, _)| at + mark.len()));
    behind
        .map(|at| data.as_bytes().iter().skip(at).take_while(|byte| is_base64(byte)).count())
        .filter(|run| RUN_BYTES_MIN <= *run)
        .map(|run| run as u64)
        .collect()
}

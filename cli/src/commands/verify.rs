//! `rederive verify`: every request again, from the log alone.
#![expect(clippy::print_stderr, reason = "the command alone prints")]

use std::process::ExitCode;

use rederive_engine::{Reader, Store};
use rederive_projection::formats::ImageSource;
use rederive_projection::verify_with_bodies;
use serde::Serialize;

use super::{Context, all_sessions, object, session_id};
use crate::failure::{Failure, chain};
use crate::output;

#[derive(Serialize)]
struct Row {
    session: String,
    events: u64,
    requests: u64,
    compared: u64,
    bodies: u64,
    ok: bool,
    error: Option<String>,
}

pub(crate) fn run(context: &Context, id: Option<&str>) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    store.check_index()?;
    let ids = match id {
        Some(id) => vec![session_id(id)?],
        None => all_sessions(&store)?,
    };
    let objects = object::open_existing(&store)?;
    let images = object::images(objects.as_ref());
    let bar = output::bar(ids.len() as u64, "verifying");
    let mut rows = Vec::with_capacity(ids.len());
    for id in ids {
        let mut row = Row {
            session: id.to_string(),
            events: 0,
            requests: 0,
            compared: 0,
            bodies: 0,
            ok: false,
            error: None,
        };
        let outcome = store
            .read_session(&id)
            .map_err(Failure::from)
            .and_then(|reader| check(&store, &reader, &*images, &mut row));
        match outcome {
            Ok(()) => row.ok = true,
            Err(failure) => row.error = Some(chain(&failure)),
        }
        rows.push(row);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let bad = rows.iter().filter(|row| !row.ok).count();
    if context.json {
        output::json(&rows)?;
    } else {
        for row in rows.iter().filter(|row| !row.ok) {
            eprintln!("rederive: session {}: {}", row.session, row.error.as_deref().unwrap_or_default());
        }
        let (events, requests) =
            rows.iter().fold((0, 0), |sum, row| (sum.0 + row.events, sum.1 + row.requests));
        output::line(format_args!(
            "{} of {} sessions verified: {events} events, {requests} requests rebuilt",
            rows.len() - bad,
            rows.len()
        ))?;
    }
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Rebuilds every request and compares it with what was recorded.
fn check(store: &Store, reader: &Reader, images: &dyn ImageSource, row: &mut Row) -> Result<(), Failure> {
    let verified = verify_with_bodies(reader, &store.tree_root(reader.header_line())?, images)?;
    row.events = verified.events;
    row.requests = verified.requests;
    row.compared = verified.compared;
    row.bodies = verified.bodies;
    match verified.mismatches.first() {
        None => Ok(()),
        Some(mismatch) => Err(Failure::Said(mismatch.to_string())),
    }
}

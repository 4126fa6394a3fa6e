//! `rederive doctor`: what state a store is in, and what can be saved of a damaged one.
#![expect(clippy::print_stderr, reason = "the command alone prints")]

use std::path::Path;
use std::process::ExitCode;

use rederive_engine::Store;

use super::{Context, options};
use crate::failure::Failure;
use crate::output;

pub(crate) fn look(context: &Context) -> Result<ExitCode, Failure> {
    let found = Store::examine(context.folder()?, options())?;
    if context.json {
        let findings: Vec<_> = found
            .findings()
            .iter()
            .map(|finding| serde_json::json!({ "damage": finding.is_damage(), "what": finding.what() }))
            .collect();
        output::json(&serde_json::json!({
            "sound": found.is_sound(),
            "sessions": found.sessions(),
            "events": found.events(),
            "segments": found.segments(),
            "segmentBytes": found.segment_bytes(),
            "journals": found.journals(),
            "findings": findings,
        }))?;
    } else {
        output::line(format_args!(
            "{} sessions with {} events read from their first event on; {} segments, {}",
            found.sessions(),
            found.events(),
            found.segments(),
            output::size(found.segment_bytes()),
        ))?;
        for journal in found.journals() {
            output::line(format_args!("journal {journal}"))?;
        }
        for finding in found.findings() {
            let kind = if finding.is_damage() { "damaged" } else { "note" };
            output::line(format_args!("{kind}: {}", finding.what()))?;
        }
    }
    if found.is_sound() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("`rederive doctor --repair DIR` saves what can be read into a new store.");
    Ok(ExitCode::FAILURE)
}

pub(crate) fn repair(context: &Context, into: &Path) -> Result<ExitCode, Failure> {
    let repaired = Store::repair_into(context.folder()?, into, options())?;
    if context.json {
        let losses: Vec<_> = repaired
            .losses()
            .iter()
            .map(|loss| serde_json::json!({ "session": loss.session(), "what": loss.what() }))
            .collect();
        output::json(&serde_json::json!({
            "sessions": repaired.sessions(),
            "events": repaired.events(),
            "losses": losses,
        }))?;
    } else {
        output::line(format_args!(
            "saved {} sessions with {} events into {}",
            repaired.sessions(),
            repaired.events(),
            into.display(),
        ))?;
        for loss in repaired.losses() {
            let session = loss.session().map(|id| format!("session {id}: ")).unwrap_or_default();
            output::line(format_args!("lost: {session}{}", loss.what()))?;
        }
    }
    Ok(if repaired.losses().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

//! `rederive rm` and `rederive gc`: deleting sessions, and leaving nothing of them.
#![expect(clippy::print_stderr, reason = "the command alone prints")]

use std::process::ExitCode;

use rederive_engine::Swept;

use super::{Context, session_id};
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(context: &Context, ids: &[String]) -> Result<ExitCode, Failure> {
    let store = context.change()?;
    for id in ids {
        let deleted = store.delete_session(&session_id(id)?)?;
        let children: Vec<&str> =
            deleted.shared_with().iter().map(rederive_engine::SessionId::as_str).collect();
        let kept = if children.is_empty() {
            String::new()
        } else {
            format!("; kept what it shares with {}", children.join(", "))
        };
        output::line(format_args!("{id}: freed {}{kept}", output::size(deleted.freed_bytes())))?;
    }
    say_sweep(context, &store.sweep()?, false)
}

pub(crate) fn sweep(context: &Context) -> Result<ExitCode, Failure> {
    let store = context.change()?;
    say_sweep(context, &store.sweep()?, true)
}

fn say_sweep(context: &Context, swept: &Swept, in_full: bool) -> Result<ExitCode, Failure> {
    if in_full && context.json {
        output::json(&serde_json::json!({
            "files": swept.files(),
            "bytes": swept.bytes(),
            "whole": swept.is_whole(),
        }))?;
    } else if in_full {
        output::line(format_args!("removed {} files, {}", swept.files(), output::size(swept.bytes())))?;
    }
    if !swept.is_whole() {
        eprintln!(
            "rederive: another process has the store open: its journal and the index can still hold \
             bytes of deleted sessions. Run `rederive gc` once it has closed the store."
        );
    }
    Ok(ExitCode::SUCCESS)
}

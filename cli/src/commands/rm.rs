//! `rederive rm`: deleting sessions.

use std::process::ExitCode;

use super::{Context, session_id};
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(context: &Context, ids: &[String]) -> Result<ExitCode, Failure> {
    let store = context.change()?;
    for id in ids {
        let deleted = store.delete_session(&session_id(id)?)?;
        let children: Vec<&str> = deleted.shared_with().iter().map(|id| id.as_str()).collect();
        let kept = if children.is_empty() {
            String::new()
        } else {
            format!("; kept what it shares with {}", children.join(", "))
        };
        output::line(format_args!("{id}: freed {}{kept}", output::size(deleted.freed_bytes())))?;
    }
    store.sweep()?;
    Ok(ExitCode::SUCCESS)
}

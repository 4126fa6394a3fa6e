//! `rederive tail`: a session's events as they come, whoever writes them.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use rederive_engine::{Event, Seq};

use super::{Context, session_id};
use crate::failure::Failure;

/// Events that are shown where none is named to begin with.
const SHOWN: u64 = 10;
/// The longest wait until it is looked whether the reader of the output is still there.
const WAIT: Duration = Duration::from_secs(1);

pub(crate) fn run(context: &Context, id: &str, follow: bool, from: Option<u64>) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    let reader = store.read_session(&session_id(id)?)?;
    let end = reader.fold().next_seq();
    let from = from.unwrap_or_else(|| end.value().saturating_sub(SHOWN));
    if !follow {
        write(&reader.events(Seq::new(from)..end)?.collect::<Result<Vec<_>, _>>()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut follower = reader.follow_from(Seq::new(from));
    drop(reader);
    loop {
        write(&follower.wait(WAIT)?)?;
    }
}

fn write(events: &[Event]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let mut line = Vec::new();
    for event in events {
        line.clear();
        event.write_line(&mut line);
        line.push(b'\n');
        out.write_all(&line)?;
    }
    Ok(out.flush()?)
}

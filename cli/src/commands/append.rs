//! `rederive append`: events from standard input.

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;

use bytes::Bytes;
use rederive_engine::{Durability, NewSession, StoreError};

use super::{Context, session_id};
use crate::args::DurabilityArg;
use crate::failure::Failure;

pub(crate) fn run(context: &Context, id: &str, durability: DurabilityArg) -> Result<ExitCode, Failure> {
    let durability = match durability {
        DurabilityArg::Buffered => Durability::Buffered,
        DurabilityArg::Synced => Durability::Synced,
    };
    let store = context.write()?;
    let id = session_id(id)?;
    let mut session = match store.open_session(&id) {
        Err(StoreError::NoSession { .. }) => store.create_session(NewSession::new(id.as_str()))?,
        opened => opened?,
    };
    let mut out = std::io::stdout().lock();
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read =
            input.read_until(b'\n', &mut line).map_err(Failure::io("read", Path::new("standard input")))?;
        if read == 0 {
            break;
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let seq = session.fold().next_seq();
        session
            .append_lines(&[Bytes::copy_from_slice(text)], durability)?
            .wait()
            .map_err(rederive_engine::AppendError::from)?;
        writeln!(out, "{seq}")?;
        out.flush()?;
    }
    session.close()?;
    Ok(ExitCode::SUCCESS)
}

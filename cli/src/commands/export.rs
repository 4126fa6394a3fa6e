//! `rederive export`: a log, byte for byte as it came.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use rederive_engine::Seq;

use super::{Context, session_id};
use crate::failure::Failure;

pub(crate) fn run(context: &Context, id: &str) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    let reader = store.read_session(&session_id(id)?)?;
    let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    writeln!(out, "{}", reader.header_line().as_str())?;
    let mut line = Vec::new();
    for event in reader.events(Seq::FIRST..reader.fold().next_seq())? {
        line.clear();
        event?.write_line(&mut line);
        line.push(b'\n');
        out.write_all(&line)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

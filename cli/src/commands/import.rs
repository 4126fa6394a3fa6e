//! `rederive import`: logs into the store, each whole or not at all.
#![expect(clippy::print_stderr, reason = "the command alone prints")]

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rederive_engine::{ImportError, Store};
use serde::Serialize;

use super::Context;
use crate::failure::{Failure, chain};
use crate::output;

#[derive(Serialize)]
struct Row {
    file: PathBuf,
    session: Option<String>,
    events: Option<u64>,
    bytes: Option<u64>,
    line: Option<u64>,
    seq: Option<u64>,
    rule: Option<&'static str>,
    error: Option<String>,
}

pub(crate) fn run(context: &Context, paths: &[PathBuf]) -> Result<ExitCode, Failure> {
    let files = logs(paths)?;
    let store = context.write()?;
    let bar = output::bar(files.len() as u64, "importing");
    let mut rows = Vec::with_capacity(files.len());
    for file in files {
        rows.push(import(&store, file)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let refused = rows.iter().filter(|row| row.error.is_some()).count();
    if context.json {
        output::json(&rows)?;
    } else {
        let mut table = output::table(&["SESSION", "#EVENTS", "#SIZE", "FILE"]);
        for row in rows.iter().filter(|row| row.error.is_none()) {
            table.add_row([
                output::short(row.session.as_deref().unwrap_or_default(), 40),
                row.events.unwrap_or(0).to_string(),
                output::size(row.bytes.unwrap_or(0)),
                row.file.display().to_string(),
            ]);
        }
        if refused < rows.len() {
            output::line(table)?;
        }
        for row in rows.iter().filter(|row| row.error.is_some()) {
            eprintln!("rederive: {}: {}", row.file.display(), row.error.as_deref().unwrap_or_default());
        }
        if refused > 0 {
            eprintln!("{refused} of {} logs were refused and left nothing behind.", rows.len());
        }
    }
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn import(store: &Store, file: PathBuf) -> Result<Row, Failure> {
    let mut row = Row {
        file,
        session: None,
        events: None,
        bytes: None,
        line: None,
        seq: None,
        rule: None,
        error: None,
    };
    let opened = File::open(&row.file).map_err(Failure::io("open", &row.file))?;
    match store.import(BufReader::with_capacity(1 << 17, opened)) {
        Ok(imported) => {
            row.session = Some(imported.id().to_string());
            row.events = Some(imported.events());
            row.bytes = Some(imported.bytes());
        }
        Err(error) => {
            if let ImportError::Refused { line, refusal } = &error {
                row.line = Some(*line);
                row.seq = Some(refusal.seq().value());
                row.rule = Some(refusal.rule().name());
            }
            row.error = Some(chain(&error));
        }
    }
    Ok(row)
}

/// The files among `paths`, and the logs (`*.jsonl`) of the folders among them, sorted.
fn logs(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            collect(path, &mut files)?;
        } else {
            files.push(path.clone());
        }
    }
    if files.is_empty() {
        return Err(Failure::Said("there is no log (*.jsonl) in the folders".into()));
    }
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Failure::io("read", folder))? {
        entries.push(entry.map_err(Failure::io("read", folder))?.path());
    }
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "jsonl") {
            files.push(path);
        }
    }
    Ok(())
}

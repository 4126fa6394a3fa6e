//! `rederive replay`: the main job, in a throwaway store.
#![expect(clippy::print_stderr, reason = "the command alone prints")]

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use rederive_engine::{Fold, HeaderLine, ImportError, Reader, Replay, Seq, Store, TypeRegistry};
use rederive_projection::audit::{AuditedRequest, audit};
use rederive_projection::{Projector, Rebuilder, Request, canonical_bytes, digest_of};
use serde::Serialize;

use super::{Context, open_or_create, options};
use crate::failure::Failure;
use crate::output;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    session: Option<String>,
    events: u64,
    admitted: bool,
    seq: Option<u64>,
    rule: Option<&'static str>,
    why: Option<String>,
    surface: Vec<u64>,
    generation: u64,
    requests: Vec<RequestRow>,
    next: Option<NextRow>,
    #[serde(skip)]
    relations: Vec<AuditedRequest>,
    #[serde(skip)]
    failure: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestRow {
    settled_by: u64,
    header_seq: u64,
    messages: usize,
    bytes: u64,
    generation: u64,
    blake3: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NextRow {
    header_seq: u64,
    messages: usize,
    bytes: u64,
    blake3: String,
}

pub(crate) fn run(context: &Context, files: &[PathBuf]) -> Result<ExitCode, Failure> {
    let mut failed = false;
    for (index, file) in files.iter().enumerate() {
        let report = replay(file)?;
        failed |= !report.admitted || report.failure.is_some();
        if context.json {
            output::json(&report)?;
        } else {
            if index > 0 {
                output::line("")?;
            }
            print(file, &report)?;
        }
        if let Some(failure) = &report.failure {
            eprintln!("rederive: {}: {failure}", file.display());
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn replay(file: &Path) -> Result<Report, Failure> {
    let folder = tempfile::tempdir().map_err(Failure::io("make a folder in", &std::env::temp_dir()))?;
    let place = folder.path().join("store");
    let opened = File::open(file).map_err(Failure::io("open", file))?;
    let store = open_or_create(&place)?;
    let imported = match store.import(BufReader::with_capacity(1 << 17, opened)) {
        Ok(imported) => imported,
        Err(ImportError::Refused { line, refusal }) => {
            let mut report = up_to_refusal(file)?;
            report.seq = Some(refusal.seq().value());
            report.rule = Some(refusal.rule().name());
            report.why = Some(format!("line {line}: {refusal}"));
            return Ok(report);
        }
        Err(source) => return Err(Failure::Import { path: file.to_owned(), source }),
    };
    store.close()?;
    let store = Store::open_with(&place, options())?;
    let reader = store.read_session(imported.id())?;
    let mut report = Report::of(reader.fold());
    report.session = Some(imported.id().to_string());
    report.admitted = true;
    report.failure = rebuild(&reader, &mut report)?;
    report.relations = audit(&reader)?.requests;
    Ok(report)
}

/// Rebuilds each request by both paths and compares; says what differs.
fn rebuild(reader: &Reader, report: &mut Report) -> Result<Option<String>, Failure> {
    let mut rebuilder = Rebuilder::new(reader.types().clone());
    for event in reader.events(Seq::FIRST..reader.fold().next_seq())? {
        let event = event?;
        // The plain path: every byte joined and hashed anew.
        let plain = event.kind().settles().then(|| canonical_bytes(rebuilder.fold()).ok()).flatten();
        let settled = match rebuilder.push(&event) {
            Ok(settled) => settled,
            Err(refusal) => return Ok(Some(format!("the stored log does not fold: {refusal}"))),
        };
        let Some(settled) = settled else { continue };
        if plain.map(|bytes| digest_of(&bytes)) != Some(settled.request.digest()) {
            return Ok(Some(format!(
                "the two paths differ in the request settled by {}",
                settled.settled_by
            )));
        }
        report.requests.push(RequestRow::of(settled.settled_by, &settled.request));
    }
    let rebuilt = rebuilder.next_request();
    let reopened = Projector::new().request(reader.fold());
    if rebuilt.as_ref().map(Request::digest) != reopened.as_ref().map(Request::digest) {
        return Ok(Some("the reopened session's next request is not that of the log".into()));
    }
    report.next = reopened.ok().map(|request| NextRow {
        header_seq: request.header().seq().value(),
        messages: request.message_count(),
        bytes: request.bytes(),
        blake3: request.digest().to_string(),
    });
    Ok(None)
}

/// What a refused log adds up to before the refused line.
fn up_to_refusal(file: &Path) -> Result<Report, Failure> {
    let bytes = Bytes::from(std::fs::read(file).map_err(Failure::io("read", file))?);
    let mut replay = Replay::new(TypeRegistry::harness());
    let mut rebuilder = Rebuilder::new(TypeRegistry::harness());
    let mut session = None;
    let mut requests = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if index == 0 {
            let header = std::str::from_utf8(line).ok().and_then(|line| HeaderLine::read(line).ok());
            session = header.map(|header| header.id().to_string());
            continue;
        }
        let Ok(event) = replay.push_bytes(&bytes.slice_ref(line)) else { break };
        if let Ok(Some(settled)) = rebuilder.push(&event) {
            requests.push(RequestRow::of(settled.settled_by, &settled.request));
        }
    }
    let mut report = Report::of(replay.fold());
    report.session = session;
    report.requests = requests;
    Ok(report)
}

impl Report {
    fn of(fold: &Fold) -> Self {
        Self {
            session: None,
            events: fold.next_seq().value(),
            admitted: false,
            seq: None,
            rule: None,
            why: None,
            surface: fold.surface().seqs().iter().map(|seq| seq.value()).collect(),
            generation: fold.surface().generation().value(),
            requests: Vec::new(),
            next: None,
            relations: Vec::new(),
            failure: None,
        }
    }
}

impl RequestRow {
    fn of(settled_by: Seq, request: &Request) -> Self {
        Self {
            settled_by: settled_by.value(),
            header_seq: request.header().seq().value(),
            messages: request.message_count(),
            bytes: request.bytes(),
            generation: request.generation().value(),
            blake3: request.digest().to_string(),
        }
    }
}

fn print(file: &Path, report: &Report) -> Result<(), Failure> {
    if let Some(why) = &report.why {
        return output::line(format_args!("{}: refused: {why}", file.display()));
    }
    let resent: u64 = report.requests.iter().map(|request| request.bytes).sum();
    output::line(format_args!(
        "{}: session {}, {} events, {} requests, {} in all",
        file.display(),
        report.session.as_deref().unwrap_or_default(),
        report.events,
        report.requests.len(),
        output::size(resent),
    ))?;
    output::line(super::audit::requests(&report.relations))?;
    if let Some(next) = &report.next {
        output::line(format_args!(
            "next: {} messages, {} bytes, {}",
            next.messages, next.bytes, next.blake3
        ))?;
    }
    Ok(())
}

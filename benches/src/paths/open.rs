//! A closed session: how soon its next request is there, beside parsing the log's lines.
//!
//! The store is closed in between, the files are in the page cache on both sides. Opening for
//! writing takes ownership and appends a marker; that is part of what a host waits for.

use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use rederive_engine::{SessionId, Store};
use rederive_fuzz::workload::{self, Lines};
use rederive_projection::{Projector, Rebuilder, Request};
use tempfile::TempDir;

use super::Settings;
use crate::data::{Log, SEED};
use crate::measure::{Rounds, micros, timed};
use crate::peers;
use crate::report::{Bound, Goal, Report, Row};
use crate::{BenchError, during};

/// A store with one closed session, and its log as a text.
#[derive(Debug)]
pub struct Closed {
    folder: TempDir,
    id: SessionId,
    text: Vec<u8>,
}

/// How long the parts of opening took.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Opening the store.
    pub store: Duration,
    /// Opening the session and building its next request.
    pub session: Duration,
}

impl Closed {
    /// Imports the log that `lines` gives.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn of(settings: &Settings, lines: Lines) -> Result<Self, BenchError> {
        let text = Log::of(lines).text();
        let folder = settings.fresh()?;
        let store = Store::create(folder.path()).map_err(during("create a store"))?;
        let imported = store.import(Cursor::new(&text)).map_err(during("import a log"))?;
        store.close().map_err(during("close a store"))?;
        Ok(Self { folder, id: imported.id().clone(), text })
    }

    /// The store's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The session.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// The log's text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Opens store and session, builds the next request, closes both.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn open(&self) -> Result<(Opening, Request), BenchError> {
        let (store_took, store) = timed(|| Store::open(self.folder.path()));
        let store = store.map_err(during("open a store"))?;
        let (session_took, opened) = timed(|| {
            let session = store.open_session(&self.id).map_err(during("open a session"))?;
            let request = Projector::new().request(&session.fold()).map_err(during("build a request"))?;
            Ok::<_, BenchError>((session, request))
        });
        let (session, request) = opened?;
        session.close().map_err(during("close a session"))?;
        store.close().map_err(during("close a store"))?;
        Ok((Opening { store: store_took, session: session_took }, request))
    }

    /// Opens the session for reading and builds the next request.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn open_for_reading(&self) -> Result<Duration, BenchError> {
        let store = Store::open_read_only(self.folder.path()).map_err(during("open a store"))?;
        let (took, request) = timed(|| {
            let reader = store.read_session(&self.id).map_err(during("open a session"))?;
            Projector::new().request(reader.fold()).map_err(during("build a request"))
        });
        request.map(|_| took)
    }

    /// Parses every line of the text into a value.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn parse(&self) -> Result<Duration, BenchError> {
        let (took, values) = timed(|| {
            let lines = self.text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
            lines.map(serde_json::from_slice::<serde_json::Value>).collect::<Result<Vec<_>, _>>()
        });
        values.map(|_| took).map_err(during("parse a line"))
    }

    /// The request at the end of the log, by the slow way.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn rebuilt(&self) -> Result<Request, BenchError> {
        let store = Store::open_read_only(self.folder.path()).map_err(during("open a store"))?;
        let reader = store.read_session(&self.id).map_err(during("open a session"))?;
        let mut rebuilder = Rebuilder::new(reader.types().clone());
        let all = rederive_engine::Seq::FIRST..reader.fold().next_seq();
        for event in reader.events(all).map_err(during("read events"))? {
            rebuilder.push(&event.map_err(during("read events"))?).map_err(during("fold an event"))?;
        }
        rebuilder.next_request().map_err(during("build a request"))
    }
}

/// Fills `report` with everything about opening.
///
/// # Errors
///
/// A [`BenchError`].
pub fn run(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    let steps = settings.pick(2_000, 200);
    one(settings, report, "steps", workload::steps(SEED, steps), 10.0, Some(40.0))?;
    let long = settings.pick(workload::long(SEED), workload::long_of(SEED, 1_500, 100, 200));
    one(settings, report, "long", long, 30.0, None)
}

fn one(
    settings: &Settings,
    report: &mut Report,
    name: &str,
    lines: Lines,
    most_ms: f64,
    faster: Option<f64>,
) -> Result<(), BenchError> {
    let closed = Closed::of(settings, lines)?;
    let due = closed.rebuilt()?.digest();
    let mut measured = Rounds::new(4);
    for _ in 0..settings.pick(11, 3) {
        let (opening, request) = closed.open()?;
        if request.digest() != due {
            return Err(BenchError::Unfit(format!("{name}: the opened session gives another request")));
        }
        let lanes = [opening.session, opening.store, closed.open_for_reading()?, closed.parse()?];
        for (lane, took) in lanes.into_iter().enumerate() {
            measured.push(lane, [micros(took) / 1000.0].into_iter().collect());
        }
    }
    let own = peers::REDERIVE.name;
    let parse = "serde_json values";
    let row = |path: &str, who: &str, lane| {
        Row::new(format!("{path}/{name}"), who, "ms", measured.all(lane))
            .against(parse, measured.ratio(lane, 3))
    };
    report.row(row("open_to_request", own, 0));
    report.row(row("open_store", own, 1));
    report.row(row("open_for_reading", own, 2));
    report.row(row("parse_log", parse, 3));
    let took = measured.all(0).median;
    report.goal(Goal::Open, name, "ms", took, Bound::AtMost(most_ms));
    if let Some(times) = faster {
        let what = format!("{name}, parsing takes so much longer");
        report.goal(Goal::Open, &what, "x", measured.ratio(3, 0).median, Bound::AtLeast(times));
    }
    Ok(())
}

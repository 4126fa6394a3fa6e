//! Appends: durable and buffered, beside every peer; and from many sessions at once.
//!
//! Rounds go from peer to peer, so that a slow moment of the disk meets all of them. The fan-out
//! compares the throughput of 64 threads with that of one.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rederive_engine::{Durability, NewSession, Session, Store, StoreOptions};
use tempfile::TempDir;

use super::Settings;
use crate::disk::CountingDisk;
use crate::measure::{Rounds, Samples, Summary, as_f64, micros, timed};
use crate::peers::{self, Commit, Held, Kind, Peer};
use crate::report::{Bound, Goal, Report, Row, figure};
use crate::{BenchError, data, during};

/// Size of a message's line, in words.
pub const EVENT: &str = "1.2KB";

/// One peer that takes batch after batch.
pub struct Lane {
    kind: Kind,
    folder: TempDir,
    peer: Box<dyn Peer>,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Lane {
    /// Opens an empty log.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn open(settings: &Settings, kind: Kind) -> Result<Self, BenchError> {
        let folder = settings.fresh()?;
        let peer = (kind.open)(folder.path())?;
        Ok(Self { kind, folder, peer })
    }

    /// Appends one batch and gives how long it took.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn append(&mut self, batch: &[Bytes], commit: Commit) -> Result<Duration, BenchError> {
        let (took, outcome) = timed(|| self.peer.append(batch, commit));
        outcome.map(|()| took)
    }

    /// Closes the log, opens it again and holds what it has against what it was given.
    ///
    /// # Errors
    ///
    /// [`BenchError::Differs`], [`BenchError::Failed`].
    pub fn check(self, due: &Held) -> Result<(), BenchError> {
        self.peer.close()?;
        (self.kind.read)(self.folder.path())?.check(self.kind.name, due)
    }
}

/// Fills `report` with everything about appends.
///
/// # Errors
///
/// A [`BenchError`].
pub fn run(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    for events in [1, 8] {
        synced(settings, report, events)?;
    }
    buffered(settings, report)?;
    fanout(settings, report)
}

fn position(kinds: &[Kind], of: Kind) -> usize {
    kinds.iter().position(|kind| kind.name == of.name).unwrap_or(0)
}

/// Appends in turns: `commits` batches of `events` events a round and peer. Gives medians and
/// ratios by lane.
fn in_turns(
    settings: &Settings,
    kinds: &[Kind],
    events: usize,
    rounds: usize,
    commits: usize,
    commit: Commit,
) -> Result<Rounds, BenchError> {
    let lines = data::messages((events * rounds * commits) as u64);
    let mut lanes = Vec::with_capacity(kinds.len());
    for kind in kinds {
        lanes.push(Lane::open(settings, *kind)?);
    }
    let mut batches: VecDeque<&[Bytes]> = lines.chunks(events).collect();
    let mut measured = Rounds::new(kinds.len());
    let mut given = Held::nothing();
    while !batches.is_empty() {
        let round: Vec<&[Bytes]> = batches.drain(..commits.min(batches.len())).collect();
        for (index, lane) in lanes.iter_mut().enumerate() {
            let mut samples = Samples::new();
            for batch in &round {
                samples.push(micros(lane.append(batch, commit)?) / as_f64(per(commit, batch.len())));
            }
            measured.push(index, samples);
        }
        round.iter().flat_map(|batch| batch.iter()).for_each(|line| given.take(line));
    }
    for lane in lanes {
        lane.check(&given)?;
    }
    Ok(measured)
}

/// By what a batch's time is divided: durable appends count by commit, buffered ones by event.
fn per(commit: Commit, events: usize) -> usize {
    match commit {
        Commit::Durable => 1,
        Commit::Buffered => events.max(1),
    }
}

fn synced(settings: &Settings, report: &mut Report, events: usize) -> Result<(), BenchError> {
    let kinds = peers::ALL;
    let (rounds, commits) = settings.pick((40, 50), (6, 20));
    let measured = in_turns(settings, &kinds, events, rounds, commits, Commit::Durable)?;
    let path = format!("append/synced/{events}x{EVENT}");
    let raw = position(&kinds, peers::RAW);
    for (index, kind) in kinds.iter().enumerate() {
        let who = if kind.durable { kind.name.to_owned() } else { format!("{} (not durable)", kind.name) };
        let row = Row::new(&path, who, "µs", measured.all(index));
        report.row(row.against(peers::RAW.name, measured.ratio(index, raw)));
    }
    let own = position(&kinds, peers::REDERIVE);
    let to_raw = measured.ratio(own, raw).median;
    let to_sqlite = measured.ratio(own, position(&kinds, peers::SQLITE_FULL)).median;
    let what = |to: &str| format!("{events} x {EVENT}, to {to}");
    report.goal(Goal::DurableAppend, &what("the raw file"), "x", to_raw, Bound::AtMost(1.25));
    report.goal(Goal::DurableAppend, &what("SQLite WAL FULL"), "x", to_sqlite, Bound::AtMost(0.75));
    Ok(())
}

fn buffered(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    // SQLite in FULL syncs every commit: it has no buffered form.
    let kinds: Vec<Kind> =
        peers::ALL.into_iter().filter(|kind| kind.name != peers::SQLITE_FULL.name).collect();
    let raw = position(&kinds, peers::RAW);
    let own = position(&kinds, peers::REDERIVE);
    for events in [1, 8] {
        let (rounds, commits) = settings.pick((30, 200), (6, 50));
        let measured = in_turns(settings, &kinds, events, rounds, commits, Commit::Buffered)?;
        let path = format!("append/buffered/{events}x{EVENT}");
        for (index, kind) in kinds.iter().enumerate() {
            let row = Row::new(&path, kind.name, "µs an event", measured.all(index));
            report.row(row.against(peers::RAW.name, measured.ratio(index, raw)));
        }
        let median = measured.all(own).median;
        report.goal(
            Goal::BufferedAppend,
            &format!("{events} x {EVENT}"),
            "µs an event",
            median,
            Bound::AtMost(3.0),
        );
    }
    Ok(())
}

/// Threads that append durably, each to a session of its own.
#[derive(Debug)]
pub struct Fanout {
    _folder: TempDir,
    store: Store,
    sessions: Vec<(Session, Vec<Bytes>)>,
    disk: Option<CountingDisk>,
}

/// What a fan-out came to.
#[derive(Clone, Copy, Debug)]
pub struct Throughput {
    /// Events a second, over all sessions.
    pub events_per_s: f64,
    /// Syncs of journals for each commit; `None` where they were not counted.
    pub syncs_per_commit: Option<f64>,
}

impl Fanout {
    /// A store with `sessions` sessions, each of which has `events` events to append.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn open(settings: &Settings, sessions: u64, events: u64, counted: bool) -> Result<Self, BenchError> {
        let folder = settings.fresh()?;
        let (disk, store) = open_store(folder.path(), counted)?;
        let mut open = Vec::new();
        for (index, lines) in data::fanout(sessions, events).enumerate() {
            let new = NewSession::new(format!("fanout-{index}"));
            let session = store.create_session(new).map_err(during("create a session"))?;
            open.push((session, lines));
        }
        Ok(Self { _folder: folder, store, sessions: open, disk })
    }

    /// Appends everything, one event a commit, all sessions at once.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`], or [`BenchError::Unfit`] where a thread panicked.
    pub fn run(self) -> Result<Throughput, BenchError> {
        let events: usize = self.sessions.iter().map(|(_, lines)| lines.len()).sum();
        let syncs_before = self.disk.as_ref().map(journal_syncs);
        let start = Arc::new(Barrier::new(self.sessions.len() + 1));
        let threads: Vec<_> = self
            .sessions
            .into_iter()
            .map(|(mut session, lines)| {
                let start = Arc::clone(&start);
                thread::spawn(move || {
                    start.wait();
                    for line in lines.chunks(1) {
                        let ticket =
                            session.append_lines(line, Durability::Synced).map_err(during("append"))?;
                        ticket.wait().map_err(during("sync"))?;
                    }
                    Ok(session)
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        let mut open = Vec::new();
        for thread in threads {
            let done = thread.join().map_err(|_| BenchError::Unfit("an appender panicked".into()))?;
            open.push(done?);
        }
        let took = began.elapsed();
        let syncs = self.disk.as_ref().map(journal_syncs).zip(syncs_before);
        drop(open);
        self.store.close().map_err(during("close a store"))?;
        Ok(Throughput {
            events_per_s: as_f64(events) / took.as_secs_f64(),
            syncs_per_commit: syncs.map(|(after, before)| as_f64((after - before) as usize) / as_f64(events)),
        })
    }
}

fn journal_syncs(disk: &CountingDisk) -> u64 {
    disk.written().get("journal").map_or(0, |written| written.syncs)
}

fn open_store(folder: &Path, counted: bool) -> Result<(Option<CountingDisk>, Store), BenchError> {
    let options = StoreOptions::default();
    if !counted {
        let store = Store::create_with(folder, options).map_err(during("create a store"))?;
        return Ok((None, store));
    }
    let disk = CountingDisk::new();
    let store =
        Store::create_on(Arc::new(disk.clone()), folder, options).map_err(during("create a store"))?;
    Ok((Some(disk), store))
}

fn fanout(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    let (rounds, events) = settings.pick((9, 100), (3, 30));
    let mut measured = Rounds::new(2);
    for _ in 0..rounds {
        let one = Fanout::open(settings, 1, events * 8, false)?.run()?;
        let many = Fanout::open(settings, 64, events, false)?.run()?;
        measured.push(0, [many.events_per_s].into_iter().collect());
        measured.push(1, [one.events_per_s].into_iter().collect());
    }
    let ratio: Summary = measured.ratio(0, 1);
    let own = peers::REDERIVE.name;
    report.row(Row::new(format!("append/synced/1_session_1x{EVENT}"), own, "events/s", measured.all(1)));
    report.row(
        Row::new(format!("append/synced/64_sessions_1x{EVENT}"), own, "events/s", measured.all(0))
            .against("1 session", ratio),
    );
    let counted = Fanout::open(settings, 64, events, true)?.run()?;
    let syncs = counted.syncs_per_commit.unwrap_or_default();
    report.row(Row::new("append/synced/64_sessions_syncs", own, "syncs a commit", figure(syncs)));
    report.goal(
        Goal::Fanout,
        "throughput of 64 sessions to that of one",
        "x",
        ratio.median,
        Bound::AtLeast(10.0),
    );
    report.goal(Goal::Fanout, "syncs a commit", "", syncs, Bound::AtMost(1.0));
    Ok(())
}

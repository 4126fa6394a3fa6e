//! Rebuilding every request of a log from its events, on one core.
//!
//! Timed from the sealed segments to the last digest: reading, admission, fold, digests. What the
//! parts cost alone is reported beside it, with BLAKE3 over the same text as the limit.

use rederive_engine::{Event, Replay, Seq, Store, TypeRegistry};
use rederive_fuzz::workload;
use rederive_projection::{Rebuilder, RequestDigest};

use super::Settings;
use super::open::Closed;
use crate::data::SEED;
use crate::measure::{Rounds, bytes_f64, timed};
use crate::peers;
use crate::report::{Bound, Goal, Report, Row};
use crate::{BenchError, during};

/// The log that is rebuilt, closed.
///
/// # Errors
///
/// [`BenchError::Failed`].
pub fn closed(settings: &Settings) -> Result<Closed, BenchError> {
    Closed::of(settings, workload::rebuild_of(SEED, settings.pick(90_000, 9_000)))
}

/// Reads all events of the session.
///
/// # Errors
///
/// [`BenchError::Failed`].
pub fn events(log: &Closed) -> Result<Vec<Event>, BenchError> {
    let store = Store::open_read_only(log.folder()).map_err(during("open a store"))?;
    let reader = store.read_session(log.id()).map_err(during("open a session"))?;
    let all = Seq::FIRST..reader.fold().next_seq();
    let events = reader.events(all).map_err(during("read events"))?;
    events.collect::<Result<Vec<_>, _>>().map_err(during("read events"))
}

/// Rebuilds every request from the store; gives how many there were, and the last one's digest.
///
/// # Errors
///
/// [`BenchError::Failed`].
pub fn rebuild(log: &Closed) -> Result<(u64, Option<RequestDigest>), BenchError> {
    let store = Store::open_read_only(log.folder()).map_err(during("open a store"))?;
    let reader = store.read_session(log.id()).map_err(during("open a session"))?;
    let mut rebuilder = Rebuilder::new(reader.types().clone());
    let (mut requests, mut last) = (0, None);
    for event in reader.events(Seq::FIRST..reader.fold().next_seq()).map_err(during("read events"))? {
        let event = event.map_err(during("read events"))?;
        if let Some(settled) = rebuilder.push(&event).map_err(during("fold an event"))? {
            requests += 1;
            last = Some(settled.request.digest());
        }
    }
    Ok((requests, last))
}

/// Folds events that were read before, and makes their requests.
///
/// # Errors
///
/// [`BenchError::Failed`].
pub fn fold_and_digest(events: &[Event]) -> Result<(), BenchError> {
    let mut rebuilder = Rebuilder::new(TypeRegistry::new());
    for event in events {
        rebuilder.push(event).map_err(during("fold an event"))?;
    }
    Ok(())
}

/// Folds events that were read before.
///
/// # Errors
///
/// [`BenchError::Failed`].
pub fn fold(events: &[Event]) -> Result<(), BenchError> {
    let mut replay = Replay::new(TypeRegistry::new());
    for event in events {
        replay.push_event(event).map_err(during("fold an event"))?;
    }
    Ok(())
}

/// Reads, admits and folds the lines of a text.
///
/// # Errors
///
/// [`BenchError::Failed`].
pub fn replay_text(text: &[u8]) -> Result<(), BenchError> {
    let text = bytes::Bytes::copy_from_slice(text);
    let mut replay = Replay::new(TypeRegistry::new());
    let lines = text.split(|&byte| byte == b'\n').skip(1).filter(|line| !line.is_empty());
    for line in lines {
        replay.push_bytes(&text.slice_ref(line)).map_err(during("fold a line"))?;
    }
    Ok(())
}

/// Fills `report` with everything about rebuilding.
///
/// # Errors
///
/// A [`BenchError`].
pub fn run(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    let log = closed(settings)?;
    let events = events(&log)?;
    let mb = bytes_f64(log.text().len() as u64) / 1e6;
    let mut measured = Rounds::new(6);
    for _ in 0..settings.pick(11, 3) {
        let (rebuilt, outcome) = timed(|| rebuild(&log));
        outcome?;
        let (read, outcome) = timed(|| self::events(&log));
        outcome?;
        let (folded, outcome) = timed(|| fold(&events));
        outcome?;
        let (digested, outcome) = timed(|| fold_and_digest(&events));
        outcome?;
        let (replayed, outcome) = timed(|| replay_text(log.text()));
        outcome?;
        let (hashed, _) = timed(|| blake3::hash(log.text()));
        let lanes = [rebuilt, read, folded, digested, replayed, hashed];
        for (lane, took) in lanes.into_iter().enumerate() {
            measured.push(lane, [mb / took.as_secs_f64()].into_iter().collect());
        }
    }
    let own = peers::REDERIVE.name;
    let names = [
        ("rebuild/requests", own),
        ("rebuild/requests/reading_alone", own),
        ("rebuild/requests/fold_alone", own),
        ("rebuild/requests/fold_and_digests", own),
        ("rebuild/from_lines/fold", own),
        ("rebuild/limit", "BLAKE3"),
    ];
    for (lane, (path, who)) in names.into_iter().enumerate() {
        report
            .row(Row::new(path, who, "MB/s", measured.all(lane)).against("BLAKE3", measured.ratio(lane, 5)));
    }
    report.goal(Goal::Rebuild, "log text, one core", "MB/s", measured.all(0).median, Bound::AtLeast(400.0));
    Ok(())
}

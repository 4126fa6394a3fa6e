//! What a log takes on disk once it is closed, in each peer.
//!
//! Every peer is given the same batches, one a step, and closed the way its users would close it;
//! what counts is the length of all its files.

use rederive_fuzz::workload::{self, Lines};

use super::Settings;
use crate::data::{Log, SEED};
use crate::measure::{as_f64, bytes_f64};
use crate::peers::{self, Commit, Held, Kind};
use crate::report::{Bound, Goal, Report, Row, figure};
use crate::{BenchError, during};

/// Bytes that `kind` takes for `log`; what it holds is checked.
///
/// # Errors
///
/// A [`BenchError`].
pub fn stored(settings: &Settings, kind: Kind, log: &Log, due: &Held) -> Result<u64, BenchError> {
    let folder = settings.fresh()?;
    let mut peer = (kind.open)(folder.path())?;
    for batch in log.batches() {
        peer.append(batch, Commit::Buffered)?;
    }
    peer.close()?;
    let bytes = peers::stored_bytes(folder.path())?;
    (kind.read)(folder.path())?.check(kind.name, due)?;
    folder.close().map_err(during("remove a folder"))?;
    Ok(bytes)
}

/// Fills `report` with the sizes of every workload.
///
/// # Errors
///
/// A [`BenchError`].
pub fn run(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    let steps = settings.pick(2_000, 200);
    let turns = settings.pick(800, 100);
    one(settings, report, "steps", workload::steps(SEED, steps), true)?;
    let long = settings.pick(workload::long(SEED), workload::long_of(SEED, 1_500, 100, 200));
    one(settings, report, "long", long, true)?;
    one(settings, report, "requests", workload::requests_of(SEED, turns), false)?;
    one(settings, report, "images", workload::images_of(SEED, turns), false)
}

fn one(
    settings: &Settings,
    report: &mut Report,
    name: &str,
    lines: Lines,
    is_goal: bool,
) -> Result<(), BenchError> {
    let log = Log::of(lines);
    let due: Held = log.events().iter().collect();
    // FULL and NORMAL leave the same file.
    let kinds =
        [peers::REDERIVE, peers::JSONL, peers::FRAMED, peers::SQLITE_NORMAL, peers::REDB, peers::FJALL];
    let mut sizes = Vec::new();
    for kind in kinds {
        sizes.push((kind, bytes_f64(stored(settings, kind, &log, &due)?)));
    }
    let of = |wanted: Kind| {
        sizes.iter().find(|(kind, _)| kind.name == wanted.name).map_or(f64::NAN, |(_, bytes)| *bytes)
    };
    let events = as_f64(log.events().len());
    for (kind, bytes) in &sizes {
        report.row(
            Row::new(format!("size/{name}"), kind.name, "bytes an event", figure(bytes / events))
                .against(peers::JSONL.name, figure(bytes / of(peers::JSONL))),
        );
    }
    if is_goal {
        let own = of(peers::REDERIVE);
        let to_framed = own / of(peers::FRAMED);
        let to_sqlite = own / of(peers::SQLITE_NORMAL);
        report.goal(
            Goal::Size,
            &format!("{name}, to JSONL in zstd frames"),
            "x",
            to_framed,
            Bound::AtMost(0.6),
        );
        report.goal(Goal::Size, &format!("{name}, to SQLite"), "x", to_sqlite, Bound::AtMost(0.25));
    }
    Ok(())
}

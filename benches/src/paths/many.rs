//! A store of many sessions: opening it and listing the newest.
//!
//! The store is made without syncs, as nothing is to be lost, and is then opened as any other.

use std::sync::Arc;
use std::time::Duration;

use rederive_engine::{Draft, Durability, NewSession, Store, StoreOptions};
use tempfile::TempDir;

use super::Settings;
use crate::disk::CountingDisk;
use crate::measure::{Samples, bytes_f64, micros, timed};
use crate::peers::{self, stored_bytes};
use crate::report::{Bound, Goal, Report, Row, figure};
use crate::{BenchError, during};

/// How many sessions a list shows at first.
const NEWEST: usize = 50;

/// A store of many small sessions, closed.
#[derive(Debug)]
pub struct Many {
    folder: TempDir,
    sessions: u64,
}

impl Many {
    /// A store of `sessions` sessions with one message each.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn of(settings: &Settings, sessions: u64) -> Result<Self, BenchError> {
        let folder = settings.fresh()?;
        let disk = Arc::new(CountingDisk::without_syncs());
        let store = Store::create_on(disk, folder.path(), StoreOptions::default())
            .map_err(during("create a store"))?;
        for number in 0..sessions {
            let time_ms = 1_760_000_000_000 + number * 1_000;
            let new = NewSession::new(format!("session-{number}")).cwd("/project").created_at_ms(time_ms);
            let mut session = store.create_session(new).map_err(during("create a session"))?;
            let title = format!("{{\"title\":\"Session number {number}\"}}");
            let batch = vec![Draft::new("session/title", title).at(time_ms)];
            let ticket = session.append(batch, Durability::Buffered).map_err(during("append"))?;
            ticket.wait().map_err(during("append"))?;
            // Dropped: sealed in the background, many in one commit.
        }
        store.close().map_err(during("close a store"))?;
        Ok(Self { folder, sessions })
    }

    /// Opens the store and lists the newest sessions; gives how long the two took.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`]; [`BenchError::Unfit`] where the list is not as long as it must be.
    pub fn open_and_list(&self) -> Result<(Duration, Duration), BenchError> {
        let (opened, store) = timed(|| Store::open(self.folder.path()));
        let store = store.map_err(during("open a store"))?;
        let (listed, page) = timed(|| store.sessions(None, NEWEST));
        let page = page.map_err(during("list sessions"))?;
        let newest = format!("session-{}", self.sessions - 1);
        if page.len() != NEWEST || page.first().is_none_or(|info| info.id().as_str() != newest) {
            return Err(BenchError::Unfit("the list does not begin with the newest session".into()));
        }
        store.close().map_err(during("close a store"))?;
        Ok((opened, listed))
    }
}

/// Fills `report` with the opening of a large store.
///
/// # Errors
///
/// A [`BenchError`].
pub fn run(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    let sessions = settings.pick(100_000, 1_000);
    let (made, many) = timed(|| Many::of(settings, sessions));
    let many = many?;
    let (mut both, mut list) = (Samples::new(), Samples::new());
    for _ in 0..settings.pick(21, 5) {
        let (opened, listed) = many.open_and_list()?;
        both.push(micros(opened + listed) / 1000.0);
        list.push_micros(listed);
    }
    let own = peers::REDERIVE.name;
    let path = format!("store/{sessions}_sessions");
    report.row(Row::new(format!("{path}/open_and_list_{NEWEST}"), own, "ms", both.summary()));
    report.row(Row::new(format!("{path}/list_{NEWEST}"), own, "µs", list.summary()));
    let each = made.as_secs_f64() * 1e6 / bytes_f64(sessions);
    report.row(Row::new(format!("{path}/create_without_syncs"), own, "µs a session", figure(each)));
    let index = std::fs::metadata(many.folder.path().join("index.redb")).map_err(during("look at a file"))?;
    let index = bytes_f64(index.len()) / bytes_f64(sessions);
    report.row(Row::new(format!("{path}/index"), own, "bytes a session", figure(index)));
    let whole = bytes_f64(stored_bytes(many.folder.path())?) / bytes_f64(sessions);
    report.row(Row::new(format!("{path}/all_files"), own, "bytes a session", figure(whole)));
    report.goal(Goal::List, "open and list", "ms", both.median(), Bound::AtMost(20.0));
    Ok(())
}

//! Listing sessions and counting what the store holds.
//!
//! Owns what a list shows. Reads the index alone, and never a session.

use std::sync::Arc;

use super::error::StoreError;
use super::session::LiveSession;
use super::{Shared, Store, catalog};
use crate::ids::SessionId;

/// What a list shows of one session.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    pub(super) id: SessionId,
    pub(super) title: Option<String>,
    pub(super) cwd: Option<String>,
    pub(super) parent: Option<String>,
    pub(super) created_at_ms: u64,
    pub(super) last_activity_ms: u64,
    pub(super) events: u64,
    pub(super) line_bytes: u64,
    pub(super) stored_bytes: u64,
    pub(super) settlements: u64,
    pub(super) references: u64,
    pub(super) owner: Option<u32>,
}

impl SessionInfo {
    /// The session's name.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Its title, from the latest `session/title`.
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// The folder that it works in.
    pub fn cwd(&self) -> Option<&str> {
        self.cwd.as_deref()
    }

    /// The session that it was made from.
    pub fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    /// When it was created, in milliseconds since the epoch.
    pub fn created_at_ms(&self) -> u64 {
        self.created_at_ms
    }

    /// When something was last appended, in milliseconds since the epoch; markers do not count, and
    /// a session without events was active when it was created. Of a session that another process
    /// writes: as of its last seal.
    pub fn last_activity_ms(&self) -> u64 {
        self.last_activity_ms
    }

    /// How many events it has; of a session that another process writes, as of its last seal.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Bytes of its lines.
    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// Bytes of its own segment files.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// How many model attempts were settled.
    pub fn settlements(&self) -> u64 {
        self.settlements
    }

    /// How many references to objects its sealed events hold.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// The process that is recorded as its writer.
    pub fn owner(&self) -> Option<u32> {
        self.owner
    }

    /// Takes over what only the live session knows yet.
    fn update(&mut self, live: &Arc<LiveSession>) {
        let state = live.lock();
        let fold = &state.fold;
        self.title = fold.title().map(Into::into);
        self.events = fold.next_seq().value();
        self.line_bytes = fold.line_bytes();
        self.settlements = fold.settlements();
        if fold.last_activity_ms() > 0 {
            self.last_activity_ms = fold.last_activity_ms();
        }
        self.owner = Some(std::process::id());
    }
}

/// What a store holds, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    pub(super) sessions: u64,
    pub(super) events: u64,
    pub(super) line_bytes: u64,
    pub(super) segments: u64,
    pub(super) segment_bytes: u64,
    pub(super) index_bytes: u64,
    pub(super) journal_bytes: u64,
}

impl StoreStats {
    /// Sessions.
    pub fn sessions(&self) -> u64 {
        self.sessions
    }

    /// Events of all sessions; what forks share counts in each.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Bytes of their lines.
    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// Segment files.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Bytes of the segment files.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Bytes of the index.
    pub fn index_bytes(&self) -> u64 {
        self.index_bytes
    }

    /// Bytes of the journals, used or not.
    pub fn journal_bytes(&self) -> u64 {
        self.journal_bytes
    }
}

impl Store {
    /// Up to `limit` sessions, newest activity first, that come behind `after`, or from the newest.
    ///
    /// A session that `after` names and that was deleted meanwhile is an error; begin again.
    ///
    /// # Cost
    ///
    /// Reads `limit` rows of the index, whatever the number of sessions.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSession`], [`StoreError::Index`].
    pub fn sessions(&self, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionInfo>, StoreError> {
        let core = &self.inner.core;
        let mut page = catalog::page(core, after, limit)?;
        for (key, info) in &mut page {
            if let Some(live) = core.live(*key) {
                info.update(&live);
            }
        }
        Ok(page.into_iter().map(|(_, info)| info).collect())
    }

    /// What the list shows of one session.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSession`], [`StoreError::Index`].
    pub fn session_info(&self, id: &SessionId) -> Result<SessionInfo, StoreError> {
        let core = &self.inner.core;
        let (key, mut info) = catalog::info(core, id)?;
        if let Some(live) = core.live(key) {
            info.update(&live);
        }
        Ok(info)
    }

    /// What the store holds, in numbers.
    ///
    /// # Cost
    ///
    /// Reads the whole index and lists the segments.
    ///
    /// # Errors
    ///
    /// [`StoreError::Index`], [`StoreError::Segment`], [`StoreError::Io`].
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        catalog::stats(&self.inner.core)
    }
}

impl Shared {
    /// Bytes of the files in `folder` whose names end in `end`.
    pub(super) fn bytes_in(&self, folder: &std::path::Path, end: &str) -> Result<u64, StoreError> {
        if !self.disk.exists(folder).map_err(super::error::io_error("look for", folder))? {
            return Ok(0);
        }
        let entries = self.disk.list(folder).map_err(super::error::io_error("list", folder))?;
        Ok(entries.iter().filter(|entry| entry.name.ends_with(end)).map(|entry| entry.bytes).sum())
    }
}

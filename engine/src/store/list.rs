//! Listing sessions and counting what the store holds.
//!
//! Owns what a list shows. Reads the index alone, and never a session.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::error::StoreError;
use super::session::LiveSession;
use super::{Shared, Store, catalog};
use crate::event::HeaderLine;
use crate::ids::SessionId;
use crate::index::{Owner, PageCursor};
use crate::journal::{SlotState, lost_journal, state_of};

/// Whether a session can be used, and by whom it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Nobody writes it, and all of it is sealed.
    Closed,
    /// A live process has it open for writing.
    Open {
        /// The process.
        pid: u32,
    },
    /// Its writer died. Whoever opens the store for writing next recovers what it left.
    Interrupted,
    /// Its writer died and left a journal that does not read. Repair into a new store.
    Damaged {
        /// What is wrong, with file and offset.
        why: String,
    },
}

/// A place in the listing of sessions, from which it goes on whatever was created or deleted
/// meanwhile. As text, 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPlace(PageCursor);

impl fmt::Display for ListPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (activity, key) = self.0.parts();
        write!(f, "{activity:016x}{key:016x}")
    }
}

impl FromStr for ListPlace {
    type Err = BadListPlace;

    fn from_str(text: &str) -> Result<Self, BadListPlace> {
        let halves = text.split_at_checked(16).filter(|(_, key)| key.len() == 16).ok_or(BadListPlace)?;
        let number = |text| u64::from_str_radix(text, 16).map_err(|_| BadListPlace);
        Ok(Self(PageCursor::from_parts((number(halves.0)?, number(halves.1)?))))
    }
}

/// The text names no place in a listing. Use one that a listing gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a place in the list has 32 hexadecimal digits")]
pub struct BadListPlace;

/// One page of the listing of sessions.
#[derive(Clone, Debug)]
pub struct SessionPage {
    sessions: Vec<SessionInfo>,
    next: Option<ListPlace>,
}

impl SessionPage {
    /// The sessions, newest activity first.
    pub fn sessions(&self) -> &[SessionInfo] {
        &self.sessions
    }

    /// The sessions, newest activity first.
    pub fn into_sessions(self) -> Vec<SessionInfo> {
        self.sessions
    }

    /// Where the listing goes on; `None` where it ends with this page.
    pub fn next(&self) -> Option<ListPlace> {
        self.next
    }
}

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
    pub(super) owner: Option<Owner>,
    pub(super) state: SessionState,
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

    /// The process that is recorded as its writer; it may be dead.
    pub fn owner(&self) -> Option<u32> {
        self.owner.map(|owner| owner.pid)
    }

    /// Whether the session can be used, as far as the index and the journals say; that all of its
    /// segments read, only reading them shows.
    pub fn state(&self) -> &SessionState {
        &self.state
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
        self.state = SessionState::Open { pid: std::process::id() };
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
    /// A session that `after` names and that was deleted meanwhile is an error;
    /// [`Store::sessions_page`] goes on all the same.
    ///
    /// # Cost
    ///
    /// Reads `limit` rows of the index, whatever the number of sessions.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSession`], [`StoreError::Index`].
    pub fn sessions(&self, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionInfo>, StoreError> {
        let after = after.map(|id| catalog::place_of(&self.inner.core, id)).transpose()?;
        Ok(self.sessions_page(after.map(ListPlace), limit)?.into_sessions())
    }

    /// Up to `limit` sessions, newest activity first, that come behind `after`, or from the newest.
    ///
    /// Over the pages of one listing no session comes twice, and none is missed that was there all
    /// the time; one that becomes active meanwhile moves to the front, and may be missed by it.
    ///
    /// # Cost
    ///
    /// Reads `limit` rows of the index, whatever the number of sessions, and the journal of each
    /// dead process that such a session was written by.
    ///
    /// # Errors
    ///
    /// [`StoreError::Index`], [`StoreError::Journal`].
    pub fn sessions_page(&self, after: Option<ListPlace>, limit: usize) -> Result<SessionPage, StoreError> {
        let core = &self.inner.core;
        let (mut page, next) = catalog::page(core, after.map(|place| place.0), limit)?;
        let mut slots = HashMap::new();
        for (key, info) in &mut page {
            if let Some(live) = core.live(*key) {
                info.update(&live);
            } else if let Some(owner) = info.owner {
                info.state = if let Some(state) = slots.get(&owner.slot) {
                    SessionState::clone(state)
                } else {
                    let state = state_in(core, owner)?;
                    slots.insert(owner.slot, state.clone());
                    state
                };
            }
        }
        let sessions = page.into_iter().map(|(_, info)| info).collect();
        Ok(SessionPage { sessions, next: next.map(ListPlace) })
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
        } else if let Some(owner) = info.owner {
            info.state = state_in(core, owner)?;
        }
        Ok(info)
    }

    /// The name of the session at the root of the tree of forks that the session of `header_line`
    /// belongs to, as far as the store still knows its ancestors. What is shared by a whole tree, such
    /// as a provider's cache key, is named after it.
    ///
    /// # Cost
    ///
    /// One row of the index for each ancestor, at most 64.
    ///
    /// # Errors
    ///
    /// [`StoreError::Index`].
    pub fn tree_root(&self, header_line: &HeaderLine) -> Result<String, StoreError> {
        let mut root = header_line.id().to_string();
        let mut parent = header_line.parent_session().map(str::to_owned);
        // A tree that is deeper, or an imported one that names itself, is cut off here.
        for _ in 0..64 {
            let Some(name) = parent.take() else { break };
            parent = match SessionId::new(&name).map(|id| self.session_info(&id)) {
                Some(Ok(info)) => info.parent().map(str::to_owned),
                Some(Err(StoreError::NoSession { .. })) | None => None,
                Some(Err(error)) => return Err(error),
            };
            root = name;
        }
        Ok(root)
    }

    /// What this process's journal has done since the store was opened; `None` where it is open for
    /// reading.
    pub fn journal_stats(&self) -> Option<crate::JournalStats> {
        self.inner.core.journal_stats()
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

/// The state of a session that `owner` is recorded for and that is not live here.
fn state_in(core: &Shared, owner: Owner) -> Result<SessionState, StoreError> {
    if core.owns_slot(owner.slot) {
        return Ok(SessionState::Closed);
    }
    Ok(match state_of(&core.disk, &core.journals, owner.slot)? {
        SlotState::Held { .. } => SessionState::Open { pid: owner.pid },
        SlotState::Dirty { .. } | SlotState::Clean => SessionState::Interrupted,
        SlotState::Blank => {
            SessionState::Damaged { why: lost_journal(&core.journals, owner.slot).to_string() }
        }
        SlotState::Unreadable(error) => SessionState::Damaged { why: error.to_string() },
    })
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

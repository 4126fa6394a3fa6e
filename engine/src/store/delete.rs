//! Deleting sessions, and leaving nothing behind.
//!
//! Owns the order: rows first, in one commit that also names the segments that nobody shares; then
//! the files. A kill between the two is finished by the next open. [`Store::sweep`] overwrites what
//! freed journal space and freed index pages still hold.

use super::error::StoreError;
use super::{Store, catalog};
use crate::ids::SessionId;

/// What a deletion freed and what it kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    pub(super) shared_with: Vec<SessionId>,
    pub(super) freed_bytes: u64,
}

impl Deleted {
    /// The forks that still share events with the deleted session; those events are kept.
    pub fn shared_with(&self) -> &[SessionId] {
        &self.shared_with
    }

    /// Bytes of the segments that nobody shares any more.
    pub fn freed_bytes(&self) -> u64 {
        self.freed_bytes
    }
}

/// What a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) whole: bool,
}

impl Swept {
    /// Files that nothing referred to.
    pub fn files(&self) -> u64 {
        self.files
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the whole store was swept. `false` where another process has it open: what its
    /// journal and the index's freed pages hold stays until a sweep that finds the store alone.
    pub fn is_whole(&self) -> bool {
        self.whole
    }
}

impl Store {
    /// Deletes the session `id`: its rows, and every segment that no fork shares.
    ///
    /// Events that forks share stay until the last of them is deleted. Bytes in the journal and in
    /// freed index pages stay until [`Store::sweep`].
    ///
    /// # Errors
    ///
    /// - [`StoreError::NoSession`].
    /// - [`StoreError::SessionBusy`]: the session is open for writing.
    /// - [`StoreError::Index`], [`StoreError::Segment`]: nothing, or everything but some files, is
    ///   gone; the next open removes these.
    pub fn delete_session(&self, id: &SessionId) -> Result<Deleted, StoreError> {
        let core = &self.inner.core;
        core.check_writable()?;
        // Whoever deletes owns the session for that moment; nobody else can be writing it.
        let (key, _) = catalog::take_ownership(core, id)?;
        let deleted = catalog::delete(core, key);
        if deleted.is_err() {
            let _ = catalog::let_go(core, key);
        }
        deleted
    }

    /// Makes sure that nothing of deleted sessions is left in any file of the store: removes segment
    /// files that nothing refers to, overwrites free journal space with zeroes, and rewrites the
    /// index without its freed pages.
    ///
    /// While another process has the store open, its journal and the freed pages of the index stay
    /// as they are, and [`Swept::is_whole`] says so; sweep again once it has closed the store.
    ///
    /// # Cost
    ///
    /// Seals every open session, lists the segments, reads the journals, and rewrites the index.
    ///
    /// # Errors
    ///
    /// A [`StoreError`]; run it again.
    pub fn sweep(&self) -> Result<Swept, StoreError> {
        let core = &self.inner.core;
        core.check_writable()?;
        self.inner.sealer.seal_all()?;
        catalog::finish_deletes(core)?;
        let mut swept = catalog::remove_orphans(core)?;
        core.journal().scrub()?;
        let journals_are_whole = super::recover::scrub_free_slots(core)?;
        swept.whole = journals_are_whole && catalog::scrub(core)?;
        if swept.whole {
            catalog::set_swept(core)?;
        }
        Ok(swept)
    }
}

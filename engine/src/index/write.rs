//! Changes to the index, each inside one write transaction.
//!
//! Owns which rows change together: a session and its name and place in the listing; a segment and
//! its references; a fork and its parent's list of forks. Checks before it changes.

use std::ops::{ControlFlow, RangeBounds};
use std::path::Path;

use redb::Key;

use super::error::{IndexError, redb_error};
use super::rows::{
    ACTIVITY, CHILDREN, DOOMED, META, NAMES, Owner, REFERENCED, REFERENCES, SEGMENTS, SESSIONS, SegmentRow,
    SessionRow, Table, activity_key, encode,
};
use super::view::{Order, Rows, View, get_row, scan_rows};
use crate::event::HeaderLine;
use crate::fold::Checkpoint;
use crate::ids::{SegmentId, Seq, SessionKey};
use crate::segment::Base;

/// Name of the row of the next session's key.
pub(super) const NEXT_SESSION: &str = "next-session";
/// Name of the row of the next segment's number.
pub(super) const NEXT_SEGMENT: &str = "next-segment";
/// Name of the row that counts segments of deleted sessions that are still to be trimmed.
pub(crate) const TRIMS_DUE: &str = "trims-due";
/// Name of the row that says whether a session was deleted since the last whole sweep.
pub(crate) const SWEEP_DUE: &str = "sweep-due";
/// Name of the row of the index's format.
pub(super) const FORMAT: &str = "format";
/// The format that is written.
pub(super) const FORMAT_VERSION: u64 = 1;

/// A write transaction: nothing of it is seen before it is committed.
pub(crate) struct WriteTx<'a> {
    pub(super) tx: redb::WriteTransaction,
    pub(super) path: &'a Path,
}

/// A session that is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSession<'a> {
    pub(crate) header: &'a HeaderLine,
    pub(crate) types: &'a [String],
    /// The session and the cut that it is forked from.
    pub(crate) base: Option<Base>,
    pub(crate) owner: Option<Owner>,
}

/// A segment whose file is written and durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal<'a> {
    pub(crate) key: SessionKey,
    pub(crate) first: Seq,
    pub(crate) segment: SegmentRow,
    /// The objects that it references, sorted.
    pub(crate) references: &'a [[u8; 32]],
    /// The fold at its end.
    pub(crate) end: &'a Checkpoint,
    pub(crate) types: &'a [String],
}

/// A segment of a deleted session that its forks see only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Straddling {
    pub(crate) key: SessionKey,
    pub(crate) first: Seq,
    pub(crate) id: SegmentId,
    /// Behind the last event that a fork sees.
    pub(crate) cut: Seq,
}

/// What a deletion did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deleted {
    /// The segments that nobody needs any more; they are doomed.
    pub(crate) freed: Vec<SegmentId>,
    /// Segments of which forks need the front only: to be written anew, up to the cut, and handed
    /// to [`WriteTx::trim_segment`].
    pub(crate) straddling: Vec<Straddling>,
    /// Sessions of which no row is left; the deleted one is missing where forks still need it.
    pub(crate) gone: Vec<SessionKey>,
}

impl Rows for WriteTx<'_> {
    fn get<K: Key + 'static, R: bincode::Decode<()>>(
        &self,
        table: &Table<K>,
        key: &K::SelfType<'_>,
    ) -> Result<Option<R>, IndexError> {
        get_row(self.path, table, &self.table(table)?, key)
    }

    fn scan<'k, K: Key + 'static, R: bincode::Decode<()>>(
        &self,
        table: &Table<K>,
        range: impl RangeBounds<K::SelfType<'k>> + 'k,
        order: Order,
        each: impl FnMut(K::SelfType<'_>, R) -> ControlFlow<()>,
    ) -> Result<(), IndexError> {
        scan_rows(self.path, table, &self.table(table)?, range, order, each)
    }
}

impl WriteTx<'_> {
    pub(super) fn table<K: Key + 'static>(
        &self,
        table: &Table<K>,
    ) -> Result<redb::Table<'_, K, &'static [u8]>, IndexError> {
        self.tx.open_table(*table).map_err(|error| redb_error(self.path, "open a table of", error.into()))
    }

    pub(super) fn put<K: Key + 'static>(
        &self,
        table: &Table<K>,
        key: &K::SelfType<'_>,
        row: &impl bincode::Encode,
    ) -> Result<(), IndexError> {
        let value = encode(table, key, row);
        let mut open = self.table(table)?;
        open.insert(key, &*value).map_err(|error| redb_error(self.path, "write", error.into()))?;
        Ok(())
    }

    pub(super) fn remove<K: Key + 'static>(
        &self,
        table: &Table<K>,
        key: &K::SelfType<'_>,
    ) -> Result<(), IndexError> {
        let mut open = self.table(table)?;
        open.remove(key).map_err(|error| redb_error(self.path, "write", error.into()))?;
        Ok(())
    }

    /// Gives out `count` numbers, the first of which is returned.
    fn take_numbers(&self, name: &'static str, count: u64) -> Result<u64, IndexError> {
        let first = self.meta(name)?.unwrap_or(1);
        self.put(&META, &name, &first.saturating_add(count))?;
        Ok(first)
    }

    /// Gives out `count` segment numbers, the first of which is returned; they are never given
    /// again, used or not. Reserve some at a time: a number is needed before its file is written.
    pub(crate) fn reserve_segments(&self, count: u64) -> Result<SegmentId, IndexError> {
        self.take_numbers(NEXT_SEGMENT, count).map(SegmentId)
    }

    /// Makes a session; a fork becomes a child of the session that holds the event before its cut.
    ///
    /// # Errors
    ///
    /// [`IndexError::Exists`], [`IndexError::NoSession`] (of the base), [`IndexError::Conflict`]
    /// where the base is not sealed up to the cut.
    pub(crate) fn create_session(&self, new: &NewSession<'_>) -> Result<SessionKey, IndexError> {
        let key = self.reserve_session()?;
        self.create_session_as(key, new)?;
        Ok(key)
    }

    /// Gives out a session's key, which is never given again, used or not.
    pub(crate) fn reserve_session(&self) -> Result<SessionKey, IndexError> {
        self.take_numbers(NEXT_SESSION, 1).map(SessionKey)
    }

    /// As [`WriteTx::create_session`], under a key that was reserved before.
    pub(crate) fn create_session_as(&self, key: SessionKey, new: &NewSession<'_>) -> Result<(), IndexError> {
        let id = new.header.id();
        if self.key_of(id.as_str())?.is_some() {
            return Err(IndexError::Exists { id: id.clone() });
        }
        let base = new.base.map(|base| self.holder_of(base)).transpose()?;
        if base.is_some_and(|base| base.key >= key) {
            // Walks down a lineage end because keys descend.
            return Err(IndexError::Conflict { key, what: "a fork is older than what it is forked from" });
        }
        let created_at_ms = new.header.created_at_ms();
        let inherited = base.map_or(Seq::FIRST, |base| base.cut);
        let row = SessionRow {
            id: id.as_str().to_owned(),
            header_line: new.header.as_str().to_owned(),
            created_at_ms,
            cwd: new.header.cwd().map(str::to_owned),
            parent: new.header.parent_session().map(str::to_owned),
            base,
            owner: new.owner,
            sealed_to: inherited,
            last_segment: None,
            title: None,
            events: inherited.value(),
            line_bytes: 0,
            stored_bytes: 0,
            last_activity_ms: created_at_ms,
            settlements: 0,
            references: 0,
            types: new.types.to_vec(),
            deleted: false,
        };
        self.insert_session(key, &row)
    }

    /// Writes the rows of a session that has none.
    pub(super) fn insert_session(&self, key: SessionKey, row: &SessionRow) -> Result<(), IndexError> {
        if let Some(base) = row.base {
            self.put(&CHILDREN, &(base.key.value(), base.cut.value(), key.value()), &())?;
        }
        if !row.deleted {
            self.put(&NAMES, &&*row.id, &key)?;
            self.put(&ACTIVITY, &activity_key(row.last_activity_ms, key), &())?;
        }
        self.put(&SESSIONS, &key.value(), row)
    }

    /// The base that holds the event before the cut of `base`.
    fn holder_of(&self, base: Base) -> Result<Base, IndexError> {
        let mut row = self.live_session(base.key)?;
        if row.sealed_to < base.cut {
            return Err(IndexError::Conflict { key: base.key, what: "a fork is cut behind what is sealed" });
        }
        let mut holder = base.key;
        while let Some(below) = row.base.filter(|below| base.cut <= below.cut && below.key < holder) {
            holder = below.key;
            row = self.session(holder)?.ok_or(IndexError::NoSession { key: holder })?;
        }
        Ok(Base { key: holder, cut: base.cut })
    }

    /// Changes the row of a session, and its place in the listing with it. Name, base and tombstone
    /// stay as they are.
    pub(crate) fn update_session<T>(
        &self,
        key: SessionKey,
        change: impl FnOnce(&mut SessionRow) -> T,
    ) -> Result<T, IndexError> {
        let before = self.session(key)?.ok_or(IndexError::NoSession { key })?;
        let mut row = before.clone();
        let outcome = change(&mut row);
        row.id.clone_from(&before.id);
        (row.base, row.deleted) = (before.base, before.deleted);
        if row.last_activity_ms != before.last_activity_ms && !row.deleted {
            self.remove(&ACTIVITY, &activity_key(before.last_activity_ms, key))?;
            self.put(&ACTIVITY, &activity_key(row.last_activity_ms, key), &())?;
        }
        if row != before {
            self.put(&SESSIONS, &key.value(), &row)?;
        }
        Ok(outcome)
    }

    /// Makes `owner` the session's owner, if it is `expected` now.
    ///
    /// # Errors
    ///
    /// [`IndexError::OwnerChanged`], [`IndexError::NoSession`].
    pub(crate) fn set_owner(
        &self,
        key: SessionKey,
        expected: Option<Owner>,
        owner: Option<Owner>,
    ) -> Result<(), IndexError> {
        let found = self.live_session(key)?.owner;
        if found != expected {
            return Err(IndexError::OwnerChanged { key, found });
        }
        self.update_session(key, |row| row.owner = owner)
    }

    /// Takes in a segment: at the session's sealed end, or in the place of whole segments that
    /// stand in its range, which are doomed. Several sessions' segments go into one transaction.
    ///
    /// # Errors
    ///
    /// [`IndexError::Conflict`] where the segment would leave a gap or cut another;
    /// [`IndexError::NoSession`].
    pub(crate) fn seal(&self, seal: &Seal<'_>) -> Result<(), IndexError> {
        let key = seal.key;
        let conflict = |what| Err(IndexError::Conflict { key, what });
        let row = self.live_session(key)?;
        let end = seal.first.plus(seal.segment.count);
        let mut replaced = Vec::new();
        let mut starts = seal.first == row.sealed_to;
        let mut ends = end >= row.sealed_to;
        for (first, segment) in self.own_segments(key)? {
            if first >= end {
                ends |= first == end;
                continue;
            }
            let behind = first.plus(segment.count);
            if behind <= seal.first {
                continue;
            }
            if first < seal.first || behind > end {
                return conflict("a segment would cut another");
            }
            starts |= first == seal.first;
            replaced.push((first, segment));
        }
        if !starts || !ends || seal.segment.count == 0 {
            return conflict("a segment would leave a gap");
        }
        let mut freed_bytes = 0;
        let mut freed_references = 0;
        for (first, segment) in replaced {
            freed_bytes += segment.stored_bytes;
            freed_references += self.doom(key, first, segment.id)?;
        }
        self.add_segment(key, seal.first, seal.segment, seal.references)?;
        self.update_session(key, |row| {
            row.stored_bytes = (row.stored_bytes + seal.segment.stored_bytes).saturating_sub(freed_bytes);
            row.references = (row.references + seal.references.len() as u64).saturating_sub(freed_references);
            if end >= row.sealed_to {
                row.sealed_to = end;
                row.last_segment = Some(seal.segment.id);
                row.events = seal.end.next.value();
                row.line_bytes = seal.end.counters.line_bytes;
                row.settlements = seal.end.counters.settlements;
                row.last_activity_ms = seal.end.counters.last_activity_ms.max(row.created_at_ms);
                row.title.clone_from(&seal.end.title);
            }
            row.types = seal.types.to_vec();
        })
    }

    pub(super) fn add_segment(
        &self,
        key: SessionKey,
        first: Seq,
        segment: SegmentRow,
        references: &[[u8; 32]],
    ) -> Result<(), IndexError> {
        self.put(&SEGMENTS, &(key.value(), first.value()), &segment)?;
        for digest in references {
            self.put(&REFERENCES, &(segment.id.value(), *digest), &())?;
            self.put(&REFERENCED, &(*digest, segment.id.value()), &())?;
        }
        Ok(())
    }

    /// Takes a segment out and dooms its file; says how many references went with it.
    fn doom(&self, key: SessionKey, first: Seq, id: SegmentId) -> Result<u64, IndexError> {
        let references = self.references(id)?;
        for digest in &references {
            self.remove(&REFERENCES, &(id.value(), *digest))?;
            self.remove(&REFERENCED, &(*digest, id.value()))?;
        }
        self.remove(&SEGMENTS, &(key.value(), first.value()))?;
        self.put(&DOOMED, &id.value(), &())?;
        Ok(references.len() as u64)
    }

    /// Deletes a session. What forks still share stays, under a tombstone that holds no text of
    /// the session; deleting the last fork takes it away too.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoSession`].
    pub(crate) fn delete_session(&self, key: SessionKey) -> Result<Deleted, IndexError> {
        self.bury(key)?;
        let mut deleted = Deleted::default();
        let mut next = Some(key);
        while let Some(key) = next {
            next = self.reclaim(key, &mut deleted)?;
        }
        self.put(&META, &SWEEP_DUE, &1_u64)?;
        let trims = self.meta(TRIMS_DUE)?.unwrap_or(0) + deleted.straddling.len() as u64;
        self.set_trims_due(trims)?;
        Ok(deleted)
    }

    /// Makes a session a tombstone, and frees nothing.
    pub(super) fn bury(&self, key: SessionKey) -> Result<(), IndexError> {
        let row = self.live_session(key)?;
        self.remove(&NAMES, &&*row.id)?;
        self.remove(&ACTIVITY, &activity_key(row.last_activity_ms, key))?;
        let tombstone = SessionRow {
            id: String::new(),
            header_line: String::new(),
            cwd: None,
            parent: None,
            owner: None,
            title: None,
            types: Vec::new(),
            deleted: true,
            ..row
        };
        self.put(&SESSIONS, &key.value(), &tombstone)
    }

    /// Frees what a tombstone holds for nobody; gives the tombstone below it, where it went itself.
    fn reclaim(&self, key: SessionKey, deleted: &mut Deleted) -> Result<Option<SessionKey>, IndexError> {
        let Some(row) = self.session(key)?.filter(|row| row.deleted) else { return Ok(None) };
        let needed_to = self.children(key)?.into_iter().map(|(cut, _)| cut).max();
        let mut sealed_to = row.base.map_or(Seq::FIRST, |base| base.cut);
        let (mut stored_bytes, mut references, mut last_segment) = (0, 0, None);
        for (first, segment) in self.own_segments(key)? {
            let end = first.plus(segment.count);
            if needed_to.is_none_or(|needed_to| needed_to <= first) {
                self.doom(key, first, segment.id)?;
                deleted.freed.push(segment.id);
                continue;
            }
            if let Some(cut) = needed_to.filter(|cut| *cut < end) {
                deleted.straddling.push(Straddling { key, first, id: segment.id, cut });
            }
            sealed_to = end;
            stored_bytes += segment.stored_bytes;
            references += self.references(segment.id)?.len() as u64;
            last_segment = Some(segment.id);
        }
        if needed_to.is_some() {
            let row = SessionRow { sealed_to, last_segment, stored_bytes, references, ..row };
            self.put(&SESSIONS, &key.value(), &row)?;
            return Ok(None);
        }
        self.remove(&SESSIONS, &key.value())?;
        deleted.gone.push(key);
        let Some(base) = row.base else { return Ok(None) };
        self.remove(&CHILDREN, &(base.key.value(), base.cut.value(), key.value()))?;
        Ok(Some(base.key))
    }

    /// Puts `segment`, which holds the events of a straddling segment up to its cut, in its place.
    ///
    /// # Errors
    ///
    /// [`IndexError::Conflict`] where the straddling segment is not there any more, or the new one
    /// does not end at the cut.
    pub(crate) fn trim_segment(
        &self,
        old: &Straddling,
        segment: SegmentRow,
        references: &[[u8; 32]],
    ) -> Result<(), IndexError> {
        let conflict = |what| Err(IndexError::Conflict { key: old.key, what });
        let row = self.session(old.key)?.ok_or(IndexError::NoSession { key: old.key })?;
        let found: Option<SegmentRow> = self.get(&SEGMENTS, &(old.key.value(), old.first.value()))?;
        let Some(found) = found.filter(|found| found.id == old.id && row.deleted) else {
            return conflict("the segment to trim is not there");
        };
        if old.first.plus(segment.count) != old.cut {
            return conflict("the trimmed segment does not end at the cut");
        }
        let freed = self.doom(old.key, old.first, found.id)?;
        self.add_segment(old.key, old.first, segment, references)?;
        let row = SessionRow {
            sealed_to: old.cut,
            last_segment: Some(segment.id),
            stored_bytes: (row.stored_bytes + segment.stored_bytes).saturating_sub(found.stored_bytes),
            references: (row.references + references.len() as u64).saturating_sub(freed),
            ..row
        };
        self.set_trims_due(self.meta(TRIMS_DUE)?.unwrap_or(0).saturating_sub(1))?;
        self.put(&SESSIONS, &old.key.value(), &row)
    }

    /// Sets how many straddling segments are to be trimmed, so that nobody has to look for them
    /// where there are none.
    pub(crate) fn set_trims_due(&self, trims: u64) -> Result<(), IndexError> {
        self.put(&META, &TRIMS_DUE, &trims)
    }

    /// Says that nothing of deleted sessions is left in any file.
    pub(crate) fn set_swept(&self) -> Result<(), IndexError> {
        self.put(&META, &SWEEP_DUE, &0_u64)
    }

    /// Forgets doomed segments whose files are gone.
    pub(crate) fn forget_doomed(&self, ids: &[SegmentId]) -> Result<(), IndexError> {
        for id in ids {
            self.remove(&DOOMED, &id.value())?;
        }
        Ok(())
    }

    /// Sets the numbers from which keys and segments are given out, where they are lower.
    pub(crate) fn raise_numbers(&self, session: SessionKey, segment: SegmentId) -> Result<(), IndexError> {
        for (name, at_least) in [(NEXT_SESSION, session.value()), (NEXT_SEGMENT, segment.value())] {
            if self.meta(name)?.unwrap_or(1) < at_least {
                self.put(&META, &name, &at_least)?;
            }
        }
        Ok(())
    }
}

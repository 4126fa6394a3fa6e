//! The store's side of the index: which rows a store operation reads and changes.
//!
//! Owns the step from a tail to a segment file and its rows, staging, and the removal of files that
//! no row names any more. Knows no journal frames and admits nothing.

use std::sync::PoisonError;

use super::error::StoreError;
use super::list::{SessionInfo, SessionState, StoreStats};
use super::load::Stretch;
use super::seal::{Tail, Then};
use super::session::LiveSession;
use super::{Deleted, Shared, Swept, recover};
use crate::event::{Event, HeaderLine};
use crate::fold::{Checkpoint, Fold};
use crate::ids::{SegmentId, Seq, SessionId, SessionKey};
use crate::index::{
    self, IndexError, NewSession, Owner, PageCursor, SWEEP_DUE, Seal, SegmentRow, SessionRow, Straddling,
    TRIMS_DUE, View,
};
use crate::segment::{
    Base, Packer, SegmentInput, SegmentMeta, SegmentReader, encode, list_segments, remove_segments,
    segment_path, write_segment,
};
use crate::types::TypeRegistry;

type PageOfInfo = (Vec<(SessionKey, SessionInfo)>, Option<PageCursor>);

/// Segment numbers that a process takes from the index at once.
const IDS_AT_ONCE: u64 = 64;
/// How often a session that another process owns is asked for, and how long between: in all about
/// as long as it takes to close a session.
const TAKE_ATTEMPTS: u32 = 16;
const TAKE_WAIT: std::time::Duration = std::time::Duration::from_millis(10);
/// A segment is merged with its predecessor while that has at most this many times its bytes, and
/// less than a full segment: so an event is rewritten O(log n) times.
const MERGE_FACTOR: u64 = 2;

impl SessionRow {
    pub(super) fn header_line(&self) -> Result<HeaderLine, StoreError> {
        HeaderLine::read(&self.header_line).map_err(|refusal| StoreError::Inconsistent {
            session: SessionId::new(&self.id).unwrap_or_else(unnamed),
            refusal,
        })
    }

    pub(super) fn registry(&self) -> TypeRegistry {
        let mut types = TypeRegistry::new();
        for name in &self.types {
            types.register(name);
        }
        types
    }

    fn id(&self) -> SessionId {
        SessionId::new(&self.id).unwrap_or_else(unnamed)
    }
}

/// A name for a row without one, which only a damaged index could hold.
#[expect(clippy::expect_used, reason = "the literal is a usable name")]
fn unnamed() -> SessionId {
    SessionId::new("?").expect("one byte is a name")
}

fn names(types: &TypeRegistry) -> Vec<String> {
    types.names().map(Into::into).collect()
}

impl Shared {
    fn owner(&self) -> Owner {
        Owner { slot: self.journal().slot(), pid: std::process::id() }
    }

    pub(super) fn owns_slot(&self, slot: u32) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.slot() == slot)
    }

    /// A segment number that nobody else will use.
    fn next_segment_id(&self) -> Result<SegmentId, StoreError> {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = ids.next() {
            return Ok(SegmentId(id));
        }
        let first = self.index.reserve_segments(IDS_AT_ONCE)?.value();
        *ids = first + 1..first + IDS_AT_ONCE;
        Ok(SegmentId(first))
    }

    pub(super) fn stretch_with(&self, key: SessionKey, seq: Seq) -> Result<Option<Stretch>, StoreError> {
        let found = self.index.read(|view| view.segment_for(key, seq))?;
        Ok(found.map(|placed| Stretch { id: placed.row.id, first: placed.first, end: placed.visible_to }))
    }
}

/// The session named `id`.
pub(super) fn find(core: &Shared, id: &SessionId) -> Result<(SessionKey, SessionRow), StoreError> {
    let found = core.index.read(|view| match view.key_of(id.as_str())? {
        Some(key) => Ok(view.session(key)?.map(|row| (key, row))),
        None => Ok(None),
    })?;
    found.ok_or_else(|| StoreError::NoSession { session: id.to_string() })
}

/// The row of a session that was not deleted.
pub(super) fn row(core: &Shared, key: SessionKey) -> Result<Option<SessionRow>, StoreError> {
    Ok(core.index.read(|view| view.session(key))?.filter(|row| !row.deleted))
}

pub(super) fn check_name_is_free(core: &Shared, id: &SessionId) -> Result<(), StoreError> {
    match core.index.read(|view| view.key_of(id.as_str()))? {
        Some(_) => Err(StoreError::SessionExists { session: id.clone() }),
        None => Ok(()),
    }
}

/// Creates a session that this process owns.
pub(super) fn create(core: &Shared, header: &HeaderLine) -> Result<SessionKey, StoreError> {
    let types = names(&core.options.types);
    let new = NewSession { header, types: &types, base: None, owner: Some(core.owner()) };
    core.index.write(|tx| tx.create_session(&new)).map_err(exists)
}

/// Creates a session that nobody owns, under a key that is known from elsewhere.
pub(super) fn create_under(core: &Shared, key: SessionKey, header: &HeaderLine) -> Result<(), StoreError> {
    let types = names(&core.options.types);
    let new = NewSession { header, types: &types, base: None, owner: None };
    core.index.write(|tx| tx.create_session_as(key, &new)).map_err(exists)
}

/// Creates a fork that this process owns.
pub(super) fn fork(
    core: &Shared,
    header: &HeaderLine,
    parent: SessionKey,
    cut: Seq,
    fold: &Fold,
    types: &TypeRegistry,
) -> Result<SessionKey, StoreError> {
    let types = names(types);
    let base = Some(Base { key: parent, cut });
    let new = NewSession { header, types: &types, base, owner: Some(core.owner()) };
    let key = core.index.write(|tx| {
        let key = tx.create_session(&new)?;
        // What the list shows before the child is sealed for the first time.
        tx.update_session(key, |row| {
            row.title = fold.title().map(Into::into);
            row.line_bytes = fold.line_bytes();
            row.settlements = fold.settlements();
        })?;
        Ok(key)
    });
    key.map_err(exists)
}

fn exists(error: IndexError) -> StoreError {
    match error {
        IndexError::Exists { id } => StoreError::SessionExists { session: id },
        error => error.into(),
    }
}

/// Makes this process the session's owner; recovers the journal of one that died.
pub(super) fn take_ownership(core: &Shared, id: &SessionId) -> Result<(SessionKey, SessionRow), StoreError> {
    let mut found = find(core, id)?;
    // Waits for who is about to let go, or recovers the session from a dead process's journal; not
    // for who works with it.
    for _ in 0..TAKE_ATTEMPTS {
        let (key, row) = &found;
        if core.live(*key).is_some() {
            return Err(StoreError::SessionBusy { session: id.clone(), owner: std::process::id() });
        }
        let mine = core.owner();
        match row.owner {
            Some(owner) if owner.slot != mine.slot => {
                if recover::take_over_slot(core, owner.slot)?.is_some() {
                    std::thread::sleep(TAKE_WAIT);
                }
            }
            expected => match core.index.write(|tx| tx.set_owner(*key, expected, Some(mine))) {
                // Sealed or handed over since it was looked at: the row is read again below.
                Ok(()) => {
                    let row = core.index.read(|view| view.live_session(*key))?;
                    return Ok((*key, row));
                }
                Err(IndexError::OwnerChanged { .. } | IndexError::NoSession { .. }) => {}
                Err(error) => return Err(error.into()),
            },
        }
        found = find(core, id)?;
    }
    let owner = found.1.owner.map_or(0, |owner| owner.pid);
    Err(StoreError::SessionBusy { session: id.clone(), owner })
}

/// Gives up the ownership of a session to which nothing was appended.
pub(super) fn let_go(core: &Shared, key: SessionKey) -> Result<(), StoreError> {
    let mine = core.owner();
    match core.index.write(|tx| tx.set_owner(key, Some(mine), None)) {
        Ok(()) | Err(IndexError::OwnerChanged { .. } | IndexError::NoSession { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The slots that sessions are recorded to be written in.
pub(super) fn owning_slots(core: &Shared) -> Result<Vec<u32>, StoreError> {
    let mut slots = std::collections::BTreeSet::new();
    core.index.read(|view| {
        view.all_sessions(|_, row| slots.extend(row.owner.filter(|_| !row.deleted).map(|owner| owner.slot)))
    })?;
    Ok(slots.into_iter().collect())
}

/// Lets go of every session that the dead owner of `slot` had, but those that are `stuck` in it.
pub(super) fn let_go_of_slot(core: &Shared, slot: u32, stuck: &[SessionKey]) -> Result<(), StoreError> {
    let mut owned = Vec::new();
    core.index.read(|view| {
        view.all_sessions(|key, row| {
            let owned_here = row.owner.is_some_and(|owner| owner.slot == slot);
            if !row.deleted && owned_here && !stuck.contains(&key) {
                owned.push((key, row.owner));
            }
        })
    })?;
    if owned.is_empty() {
        return Ok(());
    }
    core.index.write(|tx| {
        for (key, owner) in owned {
            match tx.set_owner(key, owner, None) {
                Ok(()) | Err(IndexError::OwnerChanged { .. } | IndexError::NoSession { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// A segment that is written and waits for its rows.
#[derive(Debug)]
struct Written {
    key: SessionKey,
    first: Seq,
    row: SegmentRow,
    references: Vec<[u8; 32]>,
    end: Checkpoint,
    types: Vec<String>,
}

/// What sealing one tail came to.
#[derive(Debug)]
pub(super) struct SealedTail {
    key: SessionKey,
    sealed_to: Seq,
    tail_bytes: u64,
    /// `None` where there was no tail.
    written: Option<Written>,
}

impl SealedTail {
    pub(super) fn sealed_to(&self) -> Seq {
        self.sealed_to
    }

    pub(super) fn tail_bytes(&self) -> u64 {
        self.tail_bytes
    }
}

/// Writes the segment file of a tail, merged with small segments before it; durable on return.
pub(super) fn write_tail(core: &Shared, session: &LiveSession, tail: Tail) -> Result<SealedTail, StoreError> {
    let sealed_to = tail.end.next_seq();
    let mut sealed = SealedTail { key: tail.key, sealed_to, tail_bytes: tail.bytes, written: None };
    if tail.events.is_empty() {
        return Ok(sealed);
    }
    let (row, mut own) =
        core.index.read(|view| Ok((view.live_session(tail.key)?, view.own_segments(tail.key)?)))?;
    let mut events = tail.events;
    let mut bytes: u64 = events.iter().map(|event| event.data.len() as u64).sum();
    while let Some((first, small)) = own.pop() {
        if small.raw_bytes > bytes.saturating_mul(MERGE_FACTOR)
            || small.raw_bytes + bytes > core.options.segment_bytes
        {
            break;
        }
        let path = segment_path(&core.segments, small.id);
        let segment = SegmentReader::open(core.disk.as_ref(), &path, small.id)?;
        let mut merged = segment.events(first..first.plus(small.count))?;
        merged.append(&mut events);
        events = merged;
        bytes += small.raw_bytes;
    }
    let meta = SegmentMeta {
        session: row.id.clone(),
        header_line: row.header_line.clone(),
        types: names(&session.types),
        previous: own.last().map(|(_, row)| row.id),
        base: row.base,
    };
    sealed.written = Some(write(core, tail.key, &meta, &events, &tail.end)?);
    Ok(sealed)
}

fn write(
    core: &Shared,
    key: SessionKey,
    meta: &SegmentMeta,
    events: &[Event],
    end: &Fold,
) -> Result<Written, StoreError> {
    let id = core.next_segment_id()?;
    let end = end.checkpoint();
    let mut packer = Packer::new(core.options.zstd_level);
    let bytes = encode(&SegmentInput { id, key, meta, events, end: &end }, &mut packer)?;
    write_segment(core.disk.as_ref(), &core.segments, id, &bytes)?;
    let mut references: Vec<[u8; 32]> = Vec::new();
    for event in events {
        crate::segment::references::of_event(event, |digest| references.push(digest));
    }
    references.sort_unstable();
    references.dedup();
    let row = SegmentRow {
        id,
        count: events.len() as u64,
        raw_bytes: events.iter().map(|event| event.data.len() as u64).sum(),
        stored_bytes: bytes.len() as u64,
    };
    let first = events.first().map_or(Seq::FIRST, Event::seq);
    Ok(Written { key, first, row, references, end, types: meta.types.clone() })
}

fn seal_in(tx: &index::WriteTx<'_>, written: &Written) -> Result<(), IndexError> {
    tx.seal(&Seal {
        key: written.key,
        first: written.first,
        segment: written.row,
        references: &written.references,
        end: &written.end,
        types: &written.types,
    })
}

/// Commits the segments of one round, and lets go of what is to be let go of.
pub(super) fn commit_round(core: &Shared, seals: &[(SealedTail, Then)]) -> Result<(), StoreError> {
    if seals.iter().all(|(sealed, then)| sealed.written.is_none() && *then == Then::KeepOpen) {
        return Ok(());
    }
    core.index.write(|tx| {
        for (sealed, then) in seals {
            if let Some(written) = &sealed.written {
                seal_in(tx, written)?;
            }
            if *then == Then::LetGo {
                match tx.set_owner(sealed.key, Some(core.owner()), None) {
                    Ok(()) | Err(IndexError::OwnerChanged { .. } | IndexError::NoSession { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Removes the files of segments that were merged; one that stays is removed by the next sweep.
pub(super) fn remove_doomed(core: &Shared) {
    if let Err(error) = core.index.sweep_doomed(&core.segments) {
        tracing::warn!(%error, "could not remove replaced segments; the next open tries again");
    }
}

/// Finishes deletions that a kill interrupted.
pub(super) fn finish_deletes(core: &Shared) -> Result<(), StoreError> {
    if core.index.read(|view| view.meta(TRIMS_DUE))?.is_some_and(|due| due > 0) {
        for part in core.index.read(|view| view.straddling())? {
            trim(core, &part)?;
        }
        if recover::is_alone(core)? {
            core.index.write(|tx| tx.set_trims_due(0))?;
        }
    }
    core.index.sweep_doomed(&core.segments)?;
    Ok(())
}

/// Writes a segment of a deleted session, of which forks share the front, without what stands
/// behind the cut.
fn trim(core: &Shared, part: &Straddling) -> Result<(), StoreError> {
    let path = segment_path(&core.segments, part.id);
    let segment = SegmentReader::open(core.disk.as_ref(), &path, part.id)?;
    let events = segment.events(part.first..part.cut)?;
    let end = core.load(part.key, part.cut)?;
    let mut meta = segment.meta()?;
    meta.session.clear();
    meta.header_line.clear();
    let written = write(core, part.key, &meta, &events, &end)?;
    match core.index.write(|tx| tx.trim_segment(part, written.row, &written.references)) {
        // Another process was faster.
        Err(IndexError::Conflict { .. } | IndexError::NoSession { .. }) => {
            Ok(remove_segments(core.disk.as_ref(), &core.segments, &[written.row.id])?)
        }
        trimmed => Ok(trimmed?),
    }
}

/// Deletes a session that this process owns.
pub(super) fn delete(core: &Shared, key: SessionKey) -> Result<Deleted, StoreError> {
    let sizes = core.index.read(|view| view.own_segments(key))?;
    let (deleted, children) = core.index.write(|tx| {
        let children = tx.children(key)?;
        Ok((tx.delete_session(key)?, children))
    })?;
    // What the journal still holds of it is not recovered any more.
    core.journal().release(key.value(), u64::MAX);
    for part in &deleted.straddling {
        trim(core, part)?;
    }
    core.index.sweep_doomed(&core.segments)?;
    let mut shared_with = Vec::new();
    for (_, child) in children {
        if let Some(row) = row(core, child)? {
            shared_with.push(row.id());
        }
    }
    let freed = |row: &SegmentRow| deleted.freed.contains(&row.id);
    let freed_bytes = sizes.iter().filter(|(_, row)| freed(row)).map(|(_, row)| row.stored_bytes).sum();
    Ok(Deleted { shared_with, freed_bytes })
}

/// Removes segment files that no row names and nobody can be about to name.
pub(super) fn remove_orphans(core: &Shared) -> Result<Swept, StoreError> {
    core.index.sweep_doomed(&core.segments)?;
    // Files that appear after the list was taken are not in it, and rows are read after it.
    let files = list_segments(core.disk.as_ref(), &core.segments)?;
    let known = core.index.read(|view| view.segment_ids())?;
    let mine = core.ids.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let alone = recover::is_alone(core)?;
    let mut swept = Swept::default();
    let mut orphans = Vec::new();
    for (id, bytes) in files.segments {
        if known.binary_search(&id).is_err() && alone && !mine.contains(&id.value()) {
            orphans.push(id);
            swept.files += 1;
            swept.bytes += bytes;
        }
    }
    remove_segments(core.disk.as_ref(), &core.segments, &orphans)?;
    if alone {
        for path in files.others.iter().filter(|path| path.extension().is_some_and(|end| end == "tmp")) {
            core.disk.remove(path).map_err(super::error::io_error("remove", path))?;
            swept.files += 1;
        }
    }
    Ok(swept)
}

/// The sessions that have a writer, live or dead.
pub(super) fn written_sessions(core: &Shared) -> Result<Vec<SessionId>, StoreError> {
    let mut found = Vec::new();
    core.index.read(|view| {
        view.all_sessions(|_, row| {
            if !row.deleted && row.owner.is_some() {
                found.push(row.id());
            }
        })
    })?;
    Ok(found)
}

/// Rewrites the index without its freed pages; `false` where another process has it open.
pub(super) fn scrub(core: &Shared) -> Result<bool, StoreError> {
    Ok(core.index.scrub()? == index::Scrub::Done)
}

/// Says that a sweep came to its end.
#[expect(clippy::redundant_closure_for_method_calls, reason = "the method is not general over the lifetime")]
pub(super) fn set_swept(core: &Shared) -> Result<(), StoreError> {
    if core.index.read(|view| view.meta(SWEEP_DUE))?.is_some_and(|due| due != 0) {
        core.index.write(|tx| tx.set_swept())?;
    }
    Ok(())
}

/// The place of a session in the listing.
pub(super) fn place_of(core: &Shared, id: &SessionId) -> Result<PageCursor, StoreError> {
    let (key, row) = find(core, id)?;
    Ok(PageCursor::behind(row.last_activity_ms, key))
}

/// Up to `limit` sessions behind `after`, newest activity first, and where the list goes on.
pub(super) fn page(core: &Shared, after: Option<PageCursor>, limit: usize) -> Result<PageOfInfo, StoreError> {
    let page = core.index.read(|view| view.page(after, limit))?;
    Ok((page.sessions.into_iter().map(|(key, row)| (key, info_of(row))).collect(), page.next))
}

pub(super) fn info(core: &Shared, id: &SessionId) -> Result<(SessionKey, SessionInfo), StoreError> {
    let (key, row) = find(core, id)?;
    Ok((key, info_of(row)))
}

fn info_of(row: SessionRow) -> SessionInfo {
    SessionInfo {
        id: row.id(),
        title: row.title,
        cwd: row.cwd,
        parent: row.parent,
        created_at_ms: row.created_at_ms,
        last_activity_ms: row.last_activity_ms,
        events: row.events,
        line_bytes: row.line_bytes,
        stored_bytes: row.stored_bytes,
        settlements: row.settlements,
        references: row.references,
        owner: row.owner,
        state: SessionState::Closed,
    }
}

pub(super) fn stats(core: &Shared) -> Result<StoreStats, StoreError> {
    let mut stats = StoreStats::default();
    core.index.read(|view| {
        view.all_sessions(|_, row| {
            if !row.deleted {
                stats.sessions += 1;
                stats.events += row.events;
                stats.line_bytes += row.line_bytes;
            }
        })
    })?;
    let files = list_segments(core.disk.as_ref(), &core.segments)?;
    stats.segments = files.segments.len() as u64;
    stats.segment_bytes = files.segments.iter().map(|(_, bytes)| bytes).sum();
    stats.index_bytes = core.bytes_in(&core.folder, "index.redb")?;
    stats.journal_bytes = core.bytes_in(&core.journals, ".jnl")?;
    Ok(stats)
}

/// An import that has no row yet.
pub(super) struct Staged<'a> {
    core: &'a Shared,
    key: Option<SessionKey>,
    meta: Option<SegmentMeta>,
    written: Vec<Written>,
}

impl<'a> Staged<'a> {
    pub(super) fn new(core: &'a Shared) -> Self {
        Self { core, key: None, meta: None, written: Vec::new() }
    }

    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is not general over the lifetime"
    )]
    pub(super) fn begin(&mut self, header: &HeaderLine, types: &TypeRegistry) -> Result<(), StoreError> {
        self.key = Some(self.core.index.write(|tx| tx.reserve_session())?);
        self.meta = Some(SegmentMeta {
            session: header.id().as_str().to_owned(),
            header_line: header.as_str().to_owned(),
            types: names(types),
            previous: None,
            base: None,
        });
        Ok(())
    }

    /// Writes the segment of `events`, at whose end the log adds up to `end`.
    pub(super) fn push(&mut self, events: &[Event], end: &Fold) -> Result<(), StoreError> {
        let (Some(key), Some(meta)) = (self.key, &mut self.meta) else {
            return Err(StoreError::Internal { what: "an import that was not begun" });
        };
        let written = write(self.core, key, meta, events, end)?;
        meta.previous = Some(written.row.id);
        self.written.push(written);
        Ok(())
    }

    /// Makes the session, with everything that was written.
    pub(super) fn commit(&mut self, header: &HeaderLine) -> Result<(), StoreError> {
        let (Some(key), Some(meta)) = (self.key, &self.meta) else {
            return Err(StoreError::Internal { what: "an import that was not begun" });
        };
        let new = NewSession { header, types: &meta.types, base: None, owner: None };
        let committed = self.core.index.write(|tx| {
            tx.create_session_as(key, &new)?;
            self.written.iter().try_for_each(|written| seal_in(tx, written))
        });
        // A commit that failed at the disk may be there after all: the files must stay then, and are
        // orphans for the next sweep where it is not.
        if matches!(committed, Ok(()) | Err(IndexError::Io { .. })) {
            self.written.clear();
        }
        committed.map_err(exists)
    }

    /// Removes what was written; what cannot be removed is an orphan for the next sweep.
    pub(super) fn discard(self) {
        let ids: Vec<SegmentId> = self.written.iter().map(|written| written.row.id).collect();
        if let Err(error) = remove_segments(self.core.disk.as_ref(), &self.core.segments, &ids) {
            tracing::warn!(%error, "could not remove a refused import; the next sweep does");
        }
    }
}

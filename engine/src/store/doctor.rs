//! Looking a store over, and saving what can be read of a damaged one into a new store.
//!
//! Owns the order of trust: a segment says itself whether it is whole, a frame too; the index is
//! believed only as far as every page and row of it checks. Never changes the store that it looks at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use rederive_disk::{Disk, OpenMode, OsDisk};

use super::error::{StoreError, io_error};
use super::load::take_all;
use super::reader::Reader;
use super::session::LiveSession;
use super::{Shared, Store, StoreOptions, catalog, recover};
use crate::event::HeaderLine;
use crate::fold::Fold;
use crate::ids::{SegmentId, Seq, SessionId, SessionKey};
use crate::index::{Index, IndexError, SWEEP_DUE, SessionRow, TRIMS_DUE, View};
use crate::journal::{RecoveredFrame, SlotState, salvage_slot, slots};
use crate::segment::{SegmentReader, list_segments, segment_path, write_segment};

/// One thing that a look at a store found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    is_damage: bool,
    what: String,
}

impl Finding {
    /// Whether something that was stored does not read; else it is worth knowing and harmless.
    pub fn is_damage(&self) -> bool {
        self.is_damage
    }

    /// What was found, with file and offset where it has one.
    pub fn what(&self) -> &str {
        &self.what
    }
}

/// What a look at a store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examination {
    sessions: u64,
    events: u64,
    segments: u64,
    segment_bytes: u64,
    journals: Vec<String>,
    findings: Vec<Finding>,
}

impl Examination {
    /// Sessions whose logs were read whole.
    pub fn sessions(&self) -> u64 {
        self.sessions
    }

    /// Their events.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Segment files.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Their bytes.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// The state of each journal, one line each.
    pub fn journals(&self) -> &[String] {
        &self.journals
    }

    /// What is not as it should be.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        !self.findings.iter().any(Finding::is_damage)
    }

    fn damage(&mut self, what: impl ToString) {
        self.findings.push(Finding { is_damage: true, what: what.to_string() });
    }

    fn note(&mut self, what: impl ToString) {
        self.findings.push(Finding { is_damage: false, what: what.to_string() });
    }
}

/// Something that a repair could not save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    session: Option<String>,
    what: String,
}

impl Loss {
    /// The session, where it is known.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// What is lost, and why.
    pub fn what(&self) -> &str {
        &self.what
    }
}

/// What a repair saved and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    sessions: u64,
    events: u64,
    losses: Vec<Loss>,
}

impl Repaired {
    /// Sessions in the new store.
    pub fn sessions(&self) -> u64 {
        self.sessions
    }

    /// Their events.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// What is not in the new store.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    fn lose(&mut self, session: Option<&str>, what: impl ToString) {
        self.losses.push(Loss { session: session.map(Into::into), what: what.to_string() });
    }
}

impl Store {
    /// Looks the store at `path` over and changes nothing: every page and row of the index, every
    /// byte of every segment and of the journals of dead processes, and every session's log from its
    /// first event on against its checkpoint.
    ///
    /// # Cost
    ///
    /// Reads everything; memory for the index, for one segment and for what the model sees of one
    /// session.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoStore`], [`StoreError::Version`], [`StoreError::Io`]. Damage is no error here.
    pub fn examine(path: impl AsRef<Path>, options: StoreOptions) -> Result<Examination, StoreError> {
        let (disk, folder): (Arc<dyn Disk>, _) = (Arc::new(OsDisk), path.as_ref());
        super::check_format(disk.as_ref(), folder)?;
        let mut found = Examination::default();
        look_at_journals(&disk, &folder.join("journal"), &mut found)?;
        let files = list_segments(disk.as_ref(), &folder.join("segments"))?;
        for (id, bytes) in &files.segments {
            found.segments += 1;
            found.segment_bytes += bytes;
            if let Err(error) = verify_segment(disk.as_ref(), &folder.join("segments"), *id) {
                found.damage(error);
            }
        }
        for path in files.others {
            found.note(format_args!("{} is no segment; a sweep removes what a kill left", path.display()));
        }
        match Index::inspect(&disk, &folder.join("index.redb")) {
            Ok(true) => {}
            Ok(false) => found.note("a process held the index; its pages were not checked"),
            Err(error @ IndexError::Missing { .. }) => {
                found.damage(error);
                return Ok(found);
            }
            Err(IndexError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                found.damage(IndexError::Missing { path: folder.join("index.redb") });
                return Ok(found);
            }
            Err(error) => {
                found.damage(error);
                return Ok(found);
            }
        }
        let store = Self::open_read_only_with(folder, options)?;
        let on_disk: BTreeSet<SegmentId> = files.segments.iter().map(|(id, _)| *id).collect();
        if let Err(error) = look_at_rows(&store.inner.core, &on_disk, &mut found) {
            found.damage(error);
        }
        Ok(found)
    }

    /// Checks every page and row of the index, and changes nothing. Where a writer holds the index,
    /// the rows alone.
    ///
    /// # Cost
    ///
    /// Reads the whole index into memory.
    ///
    /// # Errors
    ///
    /// [`StoreError::Index`].
    pub fn check_index(&self) -> Result<(), StoreError> {
        let core = &self.inner.core;
        if !Index::inspect(&core.disk, &core.folder.join("index.redb"))? {
            core.index.check()?;
        }
        Ok(())
    }

    /// Saves what can be read of the store at `from` into a new store at `into`, which must be
    /// missing or empty, and says what could not be saved.
    ///
    /// Segments that are whole are taken over as they are, the index is made anew from them, and what
    /// the journals hold is sealed, also behind a damaged frame where nothing of that session is
    /// missing before it. A session ends before its first event that is lost.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`]; [`IndexError::Busy`] where a process has the store open;
    /// [`StoreError::Version`]; [`StoreError::Io`] and others where the new store cannot be written.
    pub fn repair_into(
        from: impl AsRef<Path>,
        into: impl AsRef<Path>,
        options: StoreOptions,
    ) -> Result<Repaired, StoreError> {
        let (disk, from, into): (Arc<dyn Disk>, _, _) = (Arc::new(OsDisk), from.as_ref(), into.as_ref());
        let mut repaired = Repaired::default();
        check_can_repair(&disk, from, &mut repaired)?;
        super::make_folder(&disk, into)?;
        let segments = into.join("segments");
        let files = list_segments(disk.as_ref(), &from.join("segments"))?;
        for (id, bytes) in files.segments {
            match verify_segment(disk.as_ref(), &from.join("segments"), id) {
                Ok(bytes) => write_segment(disk.as_ref(), &segments, id, &bytes)?,
                Err(error @ StoreError::Io { .. }) => return Err(error),
                Err(error) => {
                    let (session, range) = claimed_by(disk.as_ref(), &from.join("segments"), id);
                    repaired.lose(
                        session.as_deref(),
                        format_args!("a segment of {bytes} bytes{range}: {}", chain(&error)),
                    );
                }
            }
        }
        let (frames, mut next_key) = salvage(&disk, &from.join("journal"), &mut repaired)?;
        let known = known_rows(&disk, from, &mut repaired);
        if let Some(known) = &known {
            let behind = known.keys().next_back().map_or(1, |key| key.value().saturating_add(1));
            next_key = next_key.max(SessionKey(behind));
        }
        let index = into.join("index.redb");
        let (index, rebuilt) =
            Index::rebuild(&disk, &index, &segments, &super::index_options(&options, false), next_key)?;
        for path in rebuilt.others {
            repaired.lose(None, format_args!("{} is no segment", path.display()));
        }
        if let Some(known) = &known {
            index.reconcile(known)?;
        }
        drop(index);
        let store = Self::open_with(into, options)?;
        let core = &store.inner.core;
        for (key, frames) in frames {
            take_frames(core, key, frames, known.is_some(), &mut repaired)?;
        }
        check_sessions(&store, known.as_ref(), &mut repaired)?;
        store.sweep()?;
        store.close()?;
        Ok(repaired)
    }
}

fn look_at_journals(disk: &Arc<dyn Disk>, folder: &Path, found: &mut Examination) -> Result<(), StoreError> {
    for status in slots(disk, folder)? {
        let slot = status.slot;
        let line = match status.state {
            SlotState::Held { pid: Some(pid) } => format!("{slot}: written by process {pid}"),
            SlotState::Held { pid: None } => format!("{slot}: written by another process"),
            SlotState::Clean => format!("{slot}: closed"),
            SlotState::Dirty { frames, dropped_bytes } => {
                found.note(format_args!(
                    "journal {slot} was not closed: the next open for writing recovers {frames} batches"
                ));
                format!("{slot}: not closed, {frames} batches, {dropped_bytes} bytes of an incomplete end")
            }
            SlotState::Unreadable(error) => {
                let text = format!("{slot}: {error}");
                found.damage(error);
                text
            }
        };
        found.journals.push(line);
    }
    Ok(())
}

/// Reads every byte of a segment and gives them.
fn verify_segment(disk: &dyn Disk, folder: &Path, id: SegmentId) -> Result<Vec<u8>, StoreError> {
    let path = segment_path(folder, id);
    SegmentReader::open(disk, &path, id)?.verify()?;
    let file = disk.open(&path, OpenMode::Read).map_err(io_error("open", &path))?;
    let len = file.len().map_err(io_error("read the length of", &path))?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    let got = file.read_at(&mut bytes, 0).map_err(io_error("read", &path))?;
    bytes.truncate(got);
    Ok(bytes)
}

fn look_at_rows(
    core: &Arc<Shared>,
    on_disk: &BTreeSet<SegmentId>,
    found: &mut Examination,
) -> Result<(), StoreError> {
    let mut rows = Vec::new();
    let (named, doomed, trims_due, sweep_due) = core.index.read(|view| {
        view.all_sessions(|key, row| rows.push((key, row)))?;
        Ok((view.segment_ids()?, view.doomed()?, view.meta(TRIMS_DUE)?, view.meta(SWEEP_DUE)?))
    })?;
    let missing: Vec<&SegmentId> = named.iter().filter(|id| !on_disk.contains(id)).collect();
    for id in missing {
        // Merged since the folder was listed, or gone.
        if core.index.read(|view| view.segment_ids())?.binary_search(id).is_ok() {
            found.damage(format_args!("there is no {}", segment_path(&core.segments, *id).display()));
        }
    }
    let mut orphans = on_disk.iter().filter(|id| named.binary_search(id).is_err() && !doomed.contains(id));
    if let Some(first) = orphans.next() {
        let count = 1 + orphans.count();
        let path = segment_path(&core.segments, *first);
        found.note(format_args!(
            "{count} segments belong to no session, the first is {}; a sweep removes them",
            path.display()
        ));
    }
    if trims_due.unwrap_or(0) > 0 || !doomed.is_empty() {
        found.note("a deletion was interrupted; the next open for writing finishes it");
    }
    if sweep_due.unwrap_or(0) > 0 {
        found.note("sessions were deleted since the last whole sweep; `gc` removes what is left of them");
    }
    for (key, row) in rows {
        if row.deleted {
            continue;
        }
        let id = SessionId::new(&row.id).ok_or(StoreError::Internal { what: "a row without a name" })?;
        if core.live(key).is_some() {
            continue;
        }
        match recover::read_with_journal(core, &id).and_then(|reader| check_log(&reader)) {
            Ok(events) => {
                found.sessions += 1;
                found.events += events;
            }
            Err(StoreError::NoSession { .. }) => {}
            Err(error) => found.damage(format_args!("session {id}: {error}")),
        }
    }
    Ok(())
}

/// Folds a log from its first event on, and compares the result with what its checkpoint gave.
fn check_log(reader: &Reader) -> Result<u64, StoreError> {
    let end = reader.fold().next_seq();
    let mut fold = Fold::default();
    for event in reader.events(Seq::FIRST..end)? {
        take_all(&mut fold, [event?]);
    }
    if fold.checkpoint() != reader.fold().checkpoint() {
        return Err(StoreError::Inconsistent {
            session: reader.id().clone(),
            refusal: crate::admission::Refusal::new(
                crate::Rule::SurfaceOp,
                end,
                "",
                "the checkpoint is not what the log adds up to",
            ),
        });
    }
    Ok(end.value())
}

fn check_can_repair(disk: &Arc<dyn Disk>, from: &Path, repaired: &mut Repaired) -> Result<(), StoreError> {
    match super::check_format(disk.as_ref(), from) {
        Ok(()) => {}
        // A store of another version is whole, and not to be read by this one.
        Err(StoreError::Version { found, path, supported })
            if found.strip_prefix("rederive store ").is_some_and(|n| n.parse::<u32>().is_ok()) =>
        {
            return Err(StoreError::Version { path, found, supported });
        }
        Err(error @ (StoreError::NoStore { .. } | StoreError::Version { .. })) => {
            let any = disk.exists(&from.join("segments")).map_err(io_error("look for", from))?
                || disk.exists(&from.join("journal")).map_err(io_error("look for", from))?;
            if !any {
                return Err(error);
            }
            repaired.lose(None, format_args!("the store's FORMAT file: {error}"));
        }
        Err(error) => return Err(error),
    }
    for status in slots(disk, &from.join("journal"))? {
        if let SlotState::Held { pid } = status.state {
            return Err(IndexError::Busy { holder_pid: pid }.into());
        }
    }
    Ok(())
}

/// The session and the events that a damaged segment claims to hold, as far as its head reads.
fn claimed_by(disk: &dyn Disk, folder: &Path, id: SegmentId) -> (Option<String>, String) {
    let Ok(segment) = SegmentReader::open(disk, &segment_path(folder, id), id) else {
        return (None, String::new());
    };
    let range = format!(" with the events {} to {}", segment.first_seq(), segment.end_seq());
    (segment.meta().ok().map(|meta| meta.session), range)
}

type Frames = BTreeMap<SessionKey, Vec<RecoveredFrame>>;

/// Every frame of every journal that reads, and a key above all that they name.
fn salvage(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    repaired: &mut Repaired,
) -> Result<(Frames, SessionKey), StoreError> {
    let mut frames = Frames::new();
    for status in slots(disk, folder)? {
        if let SlotState::Unreadable(error) = status.state {
            repaired.lose(None, format_args!("part of a journal: {error}"));
        }
        for frame in salvage_slot(disk, folder, status.slot)? {
            frames.entry(SessionKey(frame.session_key)).or_default().push(frame);
        }
    }
    let next = frames.keys().next_back().map_or(1, |key| key.value().saturating_add(1));
    Ok((frames, SessionKey(next)))
}

/// The sessions that the old index knows, where all of it checks.
fn known_rows(
    disk: &Arc<dyn Disk>,
    from: &Path,
    repaired: &mut Repaired,
) -> Option<BTreeMap<SessionKey, SessionRow>> {
    let path = from.join("index.redb");
    let rows = Index::inspect(disk, &path).and_then(|_| {
        let index = Index::open_read_only(disk, &path, &crate::index::IndexOptions::default())?;
        let mut rows = BTreeMap::new();
        index.read(|view| {
            view.all_sessions(|key, row| {
                rows.insert(key, row);
            })
        })?;
        Ok(rows)
    });
    match rows {
        Ok(rows) => Some(rows),
        Err(error) => {
            repaired.lose(
                None,
                format_args!(
                    "the index, and with it which sessions were deleted while forks share them: {}",
                    chain(&error)
                ),
            );
            None
        }
    }
}

/// Seals what the journals held of one session, up to the first event that is missing.
fn take_frames(
    core: &Arc<Shared>,
    key: SessionKey,
    mut frames: Vec<RecoveredFrame>,
    index_is_sound: bool,
    repaired: &mut Repaired,
) -> Result<(), StoreError> {
    frames.sort_by_key(|frame| frame.first_seq);
    let row = match catalog::row(core, key)? {
        Some(row) => row,
        None if index_is_sound => return Ok(()), // deleted
        None => {
            if frames.first().is_none_or(|frame| frame.first_seq != 0) {
                repaired.lose(None, format_args!("batches of a session of which the beginning is lost"));
                return Ok(());
            }
            // Nothing but the index knew its name.
            let id = SessionId::new(&format!("recovered-{key}"))
                .ok_or(StoreError::Internal { what: "a name that is none" })?;
            let now_ms = (core.options.clock)();
            let header = HeaderLine::build(&id, now_ms, None, None, false);
            repaired.lose(Some(id.as_str()), "the session's name and header line");
            catalog::create_under(core, key, &header)?;
            let Some(row) = catalog::row(core, key)? else { return Ok(()) };
            row
        }
    };
    let mut types = core.options.types.clone();
    types.merge(&row.registry());
    let fold = match core.load(key, row.sealed_to) {
        Ok(fold) => fold,
        Err(error) if error.is_damage() => return Ok(()), // said when the sessions are checked
        Err(error) => return Err(error),
    };
    let session = LiveSession::new(key, row.header_line()?, types, fold);
    for frame in &frames {
        let next = session.lock().fold.next_seq();
        let outcome = recover::push_frame(&session, frame);
        match outcome {
            Ok(()) => {}
            Err(error) if error.is_damage() => {
                let last = frames.last().map_or(0, |frame| frame.first_seq + u64::from(frame.events));
                repaired.lose(
                    Some(&row.id),
                    format_args!("the events {next} to {last} of the journal: {}", chain(&error)),
                );
                break;
            }
            Err(error) => return Err(error),
        }
    }
    super::seal::seal_recovered(core, &session)
}

/// Reads every session of the new store; takes out what cannot be read, and says what is missing.
fn check_sessions(
    store: &Store,
    known: Option<&BTreeMap<SessionKey, SessionRow>>,
    repaired: &mut Repaired,
) -> Result<(), StoreError> {
    let core = &store.inner.core;
    let mut rows = BTreeMap::new();
    core.index.read(|view| {
        view.all_sessions(|key, row| {
            if !row.deleted {
                rows.insert(key, row);
            }
        })
    })?;
    for (key, row) in &rows {
        let id = SessionId::new(&row.id).ok_or(StoreError::Internal { what: "a row without a name" })?;
        match store.read_session(&id).and_then(|reader| check_log(&reader)) {
            Ok(events) => {
                repaired.sessions += 1;
                repaired.events += events;
                let sealed_to = known.and_then(|known| known.get(key)).map_or(0, |row| row.sealed_to.value());
                if events < sealed_to {
                    repaired.lose(Some(&row.id), format_args!("the events {events} to {sealed_to}"));
                }
            }
            Err(error) if error.is_damage() => {
                repaired.lose(Some(&row.id), format_args!("the whole session: {}", chain(&error)));
                store.delete_session(&id)?;
            }
            Err(error) => return Err(error),
        }
    }
    for (key, row) in known.into_iter().flatten() {
        if !row.deleted && !rows.contains_key(key) {
            repaired.lose(Some(&row.id), "the whole session");
        }
    }
    Ok(())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

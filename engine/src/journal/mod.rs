//! The journal: batches that are acknowledged and not yet sealed.
//!
//! Owns `journal/<slot>-a.jnl`, `journal/<slot>-b.jnl` and `journal/<slot>.lock`, and the order in
//! which frames reach them. Knows frames, salts and syncs; knows no session's content, no surface,
//! no JSON. A frame is readable whole or not at all. What was acknowledged as synced survives kill
//! and power loss. After a failed sync nothing more is written.
//!
//! A writing process owns a slot: the lowest number whose lock it can take. Its two files are used
//! in turns, so that one can be emptied by sealing while the other one fills. Space is reused by
//! salt, without truncation, and written ahead with zeroes, so that the sync of a frame carries no
//! metadata.
//!
//! Bytes: FORMAT.md § Journal. The salt that tells old frames from new ones follows the
//! write-ahead log of sqlite.org/fileformat2.html, section 4.

mod commit;
mod error;
mod follow;
mod format;
mod scan;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rederive_disk::{Disk, DiskFile, OpenMode, read_exact_at};

use commit::{Commit, Committer};
use error::io_error;
use format::{
    BLOCK_LEN, FRAME_HEADER_LEN, FRAMES_START, Header, PAYLOAD_BYTES_MAX, Pair, Salt, Side, encode_frame,
    frame_len, journal_path, lock_path,
};
use scan::{Block, ZEROES, erase};
use slots::{FoundFile, counter_of, read_slot, write_header};

pub(crate) use commit::FrameEnd;
pub use commit::JournalStats;
pub use commit::{Durability, Ticket};
pub use error::JournalError;
#[cfg(test)]
pub(crate) use follow::FollowedFrame;
pub(crate) use follow::JournalFollower;
pub(crate) use format::FrameWrite;
#[cfg(test)]
pub(crate) use scan::DroppedTail;
pub(crate) use scan::RecoveredFrame;
#[cfg(test)]
pub(crate) use slots::SlotRecovery;
pub(crate) use slots::{
    Recovered, SLOTS_MAX, SlotState, SlotStatus, lost_journal, recover_slot, salvage_slot, slots, state_of,
};

/// Where the random half of a salt comes from.
pub(crate) type SaltSource = Box<dyn FnMut() -> u64 + Send>;

/// Length of a new file.
const CAPACITY_FIRST: u64 = 256 * 1024;
/// A file doubles until it grows by this much at once.
const GROWTH_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// How a journal uses its files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalOptions {
    /// Where appends leave a file for the other one, in bytes of the file. Default 8 MiB; a value
    /// under the length of a new file (256 KiB) works and only switches more often.
    pub(crate) switch_bytes: u64,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { switch_bytes: 8 * 1024 * 1024 }
    }
}

/// The journal of one writing process.
pub(crate) struct JournalSet {
    committer: Arc<Committer>,
    writer: Mutex<Writer>,
    slot: u32,
    _lock: Arc<dyn DiskFile>,
}

/// What only one appender at a time touches.
struct Writer {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    slot: u32,
    pid: u32,
    options: JournalOptions,
    salts: SaltSource,
    commit: Arc<Commit>,
    files: Pair<Option<JournalFile>>,
    active: Side,
    /// The highest counter of a header in either file.
    counter: u32,
    /// One frame, kept for its capacity.
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct JournalFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    header: Header,
    block: Block,
    end: u64,
    /// For each session with a frame here, the seq after its last event here. Free when empty.
    sessions: HashMap<u64, u64>,
}

impl fmt::Debug for JournalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalSet").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl JournalSet {
    /// Takes the lowest free slot of `folder`, and hands back what its last owner left in it.
    ///
    /// The frames that are handed back stay where they are until they are released. What was
    /// dropped is overwritten with zeroes, and cannot read as a frame again in any case: its salt
    /// would have to follow that of this owner's frames.
    ///
    /// # Cost
    ///
    /// Reads both files of the slot and writes again what lives in them; one header and one sync
    /// for each file, and the file's first 256 KiB where it is new.
    ///
    /// # Errors
    ///
    /// - [`JournalError::Damaged`], [`JournalError::Version`]: the slot's files cannot be read
    ///   whole. Nothing was changed.
    /// - [`JournalError::NoSlot`]: every slot is held.
    /// - [`JournalError::Write`], [`JournalError::Sync`], [`JournalError::Io`]: the file system
    ///   failed; what was recovered is still there.
    #[cfg(test)]
    pub(crate) fn acquire(
        disk: Arc<dyn Disk>,
        folder: &Path,
        options: JournalOptions,
        salts: SaltSource,
        pid: u32,
    ) -> Result<(Self, Recovered), JournalError> {
        assert!(pid != 0, "no process has the number zero");
        disk.create_folder(folder).map_err(io_error("create", folder))?;
        let (slot, lock) = take_slot(disk.as_ref(), folder, 0)?;
        let found = read_slot(&disk, folder, slot)?;
        Self::start(disk, folder, options, salts, pid, (slot, lock, found))
    }

    /// Takes the lowest free slot in which no frame is left and that is not among `taken`: one that
    /// could not be recovered, or does not read, stays as it is.
    ///
    /// # Errors
    ///
    /// As [`JournalSet::acquire`], but what is wrong with other slots.
    pub(crate) fn acquire_empty(
        disk: Arc<dyn Disk>,
        folder: &Path,
        options: JournalOptions,
        salts: SaltSource,
        pid: u32,
        taken: &[u32],
    ) -> Result<Self, JournalError> {
        assert!(pid != 0, "no process has the number zero");
        disk.create_folder(folder).map_err(io_error("create", folder))?;
        let mut from = 0;
        loop {
            let (slot, lock) = take_slot(disk.as_ref(), folder, from)?;
            from = slot + 1;
            if taken.contains(&slot) {
                continue;
            }
            let found = match read_slot(&disk, folder, slot) {
                Ok(found) => found,
                Err(JournalError::Damaged { .. } | JournalError::Version { .. }) => continue,
                Err(error) => return Err(error),
            };
            if found.iter().filter_map(|file| file.scan.as_ref()).all(|scan| scan.frames.is_empty()) {
                let taken = (slot, lock, found);
                return Self::start(disk, folder, options, salts, pid, taken).map(|(set, _)| set);
            }
        }
    }

    /// Makes a slot that is locked, and whose files were read, this process's own.
    fn start(
        disk: Arc<dyn Disk>,
        folder: &Path,
        options: JournalOptions,
        salts: SaltSource,
        pid: u32,
        (slot, lock, mut found): (u32, Arc<dyn DiskFile>, Vec<FoundFile>),
    ) -> Result<(Self, Recovered), JournalError> {
        let recovered = Recovered::take_from(&mut found);
        let commit = Arc::new(Commit::default());
        let mut writer = Writer {
            disk,
            folder: folder.to_owned(),
            slot,
            pid,
            options,
            salts,
            commit: Arc::clone(&commit),
            files: Pair::default(),
            active: Side::A,
            counter: counter_of(&found),
            buffer: Vec::new(),
        };
        writer.take_over(found, &recovered)?;
        let set = Self {
            committer: Arc::new(Committer::new(commit)),
            writer: Mutex::new(writer),
            slot,
            _lock: lock,
        };
        Ok((set, recovered))
    }

    /// The slot that this process owns.
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// Writes one frame; readers of this process and of others see it on return.
    ///
    /// # Cost
    ///
    /// One copy and one write on the calling thread. Now and then, zeroes written ahead with two
    /// syncs (a file that grows), or a header with one and a sync of the file that is left (a file
    /// that is reused).
    ///
    /// # Errors
    ///
    /// - [`JournalError::Write`]: disk full or broken; the frame is not in the journal, and
    ///   another append may be tried.
    /// - [`JournalError::TooLarge`]: over 1 GiB.
    /// - [`JournalError::Poisoned`], [`JournalError::Sync`]: a sync failed, earlier or now, or what a
    ///   failed write left cannot be taken back; nothing is written any more. What this call was to
    ///   append may be found by the next owner, or not.
    pub(crate) fn append(&self, frame: FrameWrite<'_>) -> Result<FrameEnd, JournalError> {
        self.writer().append(&frame)
    }

    /// The promise that what ends at `end` reaches `durability`.
    pub(crate) fn ticket(&self, end: FrameEnd, durability: Durability) -> Ticket {
        self.committer.ticket(end, durability)
    }

    /// A ticket for nothing, which is resolved from the start.
    pub(crate) fn done(&self) -> Ticket {
        self.committer.done()
    }

    /// Blocks until everything that was appended before this call is synced.
    pub(crate) fn flush(&self) -> Result<(), JournalError> {
        self.committer.commit.check()?;
        for end in self.committer.commit.written() {
            self.committer.commit.wait(end)?;
        }
        Ok(())
    }

    /// Says that the session's events before `sealed_to` are durable elsewhere (or that the session
    /// is gone, with `u64::MAX`). Unsynced tickets of released frames resolve once their file is
    /// reused.
    pub(crate) fn release(&self, session_key: u64, sealed_to: u64) {
        let mut writer = self.writer();
        for side in Side::BOTH {
            if let Some(file) = writer.files.get_mut(side)
                && file.sessions.get(&session_key).is_some_and(|&next| next <= sealed_to)
            {
                file.sessions.remove(&session_key);
            }
        }
    }

    /// Bytes of both files that hold frames not yet released, headers aside.
    pub(crate) fn live_bytes(&self) -> u64 {
        let writer = self.writer();
        Side::BOTH
            .into_iter()
            .filter_map(|side| writer.files.get(side).as_ref())
            .filter(|file| !file.sessions.is_empty())
            .map(|file| file.end - FRAMES_START)
            .sum()
    }

    /// Counts since the journal was opened.
    pub(crate) fn stats(&self) -> JournalStats {
        self.committer.commit.counters.read()
    }

    /// Overwrites with zeroes whatever the files hold beside frames that are not released, and gives
    /// back the room of files that hold none.
    ///
    /// # Cost
    ///
    /// Reads both files, writes where they are not zero already, two syncs for each. Appends wait
    /// meanwhile.
    pub(crate) fn scrub(&self) -> Result<(), JournalError> {
        let mut writer = self.writer();
        writer.commit.check()?;
        for side in Side::BOTH {
            if writer.files.get(side).as_ref().is_some_and(|file| file.sessions.is_empty()) {
                // First, or a half-erased file would read as damaged.
                let pid = writer.pid;
                writer.reset(side, pid)?;
                writer.shrink(side)?;
            }
            writer.erase_beyond_end(side)?;
        }
        Ok(())
    }

    /// Ends the journal for a caller that cannot give it up; nothing may be appended afterwards.
    /// Marks the slot clean where everything was released, and says whether it did.
    pub(crate) fn finish(&self) -> Result<bool, JournalError> {
        self.flush()?;
        let mut writer = self.writer();
        let all_free = Side::BOTH
            .into_iter()
            .all(|side| writer.files.get(side).as_ref().is_none_or(|file| file.sessions.is_empty()));
        if all_free {
            for side in Side::BOTH {
                if writer.files.get(side).is_some() {
                    writer.reset(side, 0)?;
                    // A closed journal is no reason to keep disk space.
                    writer.shrink(side)?;
                }
            }
        }
        Ok(all_free)
    }

    /// As [`JournalSet::finish`], and lets go of the slot.
    #[cfg(test)]
    pub(crate) fn close(self) -> Result<bool, JournalError> {
        self.finish()
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for JournalSet {
    fn drop(&mut self) {
        // Before the lock goes: what the committing thread was asked for is done.
        self.committer.end();
    }
}

/// Locks the lowest free slot from `from` on.
fn take_slot(disk: &dyn Disk, folder: &Path, from: u32) -> Result<(u32, Arc<dyn DiskFile>), JournalError> {
    for slot in from..SLOTS_MAX {
        let path = lock_path(folder, slot);
        let lock = disk.open(&path, OpenMode::Create).map_err(io_error("open", &path))?;
        if lock.try_lock().map_err(io_error("lock", &path))? {
            // Some network file systems grant every lock. A store on one would be written by two.
            let other = disk.open(&path, OpenMode::Create).map_err(io_error("open", &path))?;
            if other.try_lock().map_err(io_error("lock", &path))? {
                return Err(JournalError::NoLocks { path });
            }
            return Ok((slot, lock));
        }
    }
    Err(JournalError::NoSlot { folder: folder.to_owned(), slots: SLOTS_MAX })
}

impl Writer {
    /// Makes the files that were found this process's own, and the younger one the active one.
    fn take_over(&mut self, found: Vec<FoundFile>, recovered: &Recovered) -> Result<(), JournalError> {
        for FoundFile { side, path, file, scan } in found {
            let Some(scan) = scan else { continue };
            let mut sessions = HashMap::new();
            for frame in recovered.frames.iter().filter(|frame| frame.path == path) {
                let next = frame.first_seq.saturating_add(u64::from(frame.events));
                note_session(&mut sessions, frame.session_key, next);
            }
            if let Some(tail) = &scan.dropped {
                let written =
                    erase(file.as_ref(), tail.offset, tail.offset.saturating_add(tail.bytes)).map_err(
                        |source| JournalError::Write { path: path.clone(), bytes: tail.bytes, source },
                    )?;
                self.commit.counters.written(written);
            }
            if scan.header.pid != 0 {
                // A sync of the last owner may have failed and left what is read here in memory
                // alone, where no later sync writes it: so it is written again, with the zeroes
                // that end it.
                rewrite(&path, file.as_ref(), FRAMES_START, scan.end)?;
                let room = scan.header.capacity.saturating_sub(scan.end).min(FRAME_HEADER_LEN as u64);
                write_zeroes(&path, file.as_ref(), scan.end, scan.end + room)?;
                self.commit.counters.written(scan.end - FRAMES_START + room);
            }
            self.commit.open(side, &path, &file);
            let (header, block, end) = (scan.header, scan.block, scan.end);
            *self.files.get_mut(side) = Some(JournalFile { path, file, header, block, end, sessions });
            // One sync for the zeroes, for what the last owner left unsynced, and for the name.
            self.put_header(side, |header| header)?;
            self.commit.begin(side, header.salt.counter(), end);
            self.active = side; // the younger one comes last
        }
        if self.files.get(self.active).is_none() {
            self.create(self.active)?;
        }
        Ok(())
    }

    fn append(&mut self, frame: &FrameWrite<'_>) -> Result<FrameEnd, JournalError> {
        self.commit.check()?;
        let payload_bytes = frame.payload.len() as u64;
        if PAYLOAD_BYTES_MAX < payload_bytes {
            return Err(JournalError::TooLarge { bytes: payload_bytes, bytes_max: PAYLOAD_BYTES_MAX });
        }
        self.switch_where_due()?;
        let side = self.active;
        self.make_room(side, frame_len(payload_bytes))?;
        let synced_to = self.commit.synced_to(side)?;

        let file = opened(self.files.get_mut(side));
        let salt = file.header.salt.under(file.header.counter);
        encode_frame(&mut self.buffer, frame, salt, synced_to, file.end);
        let bytes = self.buffer.len() as u64;
        if let Err(source) = file.file.write_at(&self.buffer, file.end) {
            // What was refused must not turn up after a crash: without its header, nothing of it can
            // be taken for a frame. A write that found no room has not written all of it.
            let path = file.path.clone();
            let no_room = matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
            if file.file.write_at(&[0; FRAME_HEADER_LEN], file.end).is_ok() {
                self.commit.sync(side)?;
            } else if !no_room {
                self.commit.poison(&path);
                return Err(JournalError::Poisoned { path });
            }
            return Err(JournalError::Write { path, bytes, source });
        }
        file.end += bytes;
        note_session(&mut file.sessions, frame.session_key, frame.first_seq + u64::from(frame.events));
        let end = FrameEnd { side, generation: file.header.salt.counter(), offset: file.end };
        self.commit.wrote(side, end.offset);
        self.commit.counters.frame(bytes);
        Ok(end)
    }

    /// Goes over to the other file, where the active one is long enough and the other one is free.
    fn switch_where_due(&mut self) -> Result<(), JournalError> {
        if opened(self.files.get_mut(self.active)).end < self.options.switch_bytes {
            return Ok(());
        }
        let other = self.active.other();
        // Or a later frame of a session could survive in one file, and an earlier one be lost with
        // the other.
        let [a, b] = self.commit.written();
        self.commit.wait(if self.active == Side::A { a } else { b })?;
        match self.files.get(other) {
            None => self.create(other)?,
            Some(file) if file.sessions.is_empty() => self.reset(other, self.pid)?,
            Some(_) => return Ok(()),
        }
        self.active = other;
        Ok(())
    }

    /// Lengthens the file with zeroes until `bytes` fit behind its end.
    fn make_room(&mut self, side: Side, bytes: u64) -> Result<(), JournalError> {
        let file = opened(self.files.get_mut(side));
        let needed = file.end + bytes;
        let old = file.header.capacity;
        let mut capacity = old;
        while capacity < needed {
            capacity += capacity.clamp(CAPACITY_FIRST, GROWTH_BYTES_MAX);
        }
        if capacity == old {
            return Ok(());
        }
        write_zeroes(&file.path, file.file.as_ref(), old, capacity)?;
        self.commit.counters.written(capacity - old);
        self.commit.sync(side)?;
        // Only now, so that a header never claims more than the file has.
        self.put_header(side, |header| Header { capacity, ..header })
    }

    /// Makes a file with room, a header and no frame.
    fn create(&mut self, side: Side) -> Result<(), JournalError> {
        let path = journal_path(&self.folder, self.slot, side);
        let file = self.disk.open(&path, OpenMode::Create).map_err(io_error("create", &path))?;
        write_zeroes(&path, file.as_ref(), 0, CAPACITY_FIRST)?;
        self.commit.counters.written(CAPACITY_FIRST);
        self.commit.open(side, &path, &file);
        self.commit.sync(side)?;
        // The file's name, and that of the folder, which may be as young.
        let parent = self.folder.parent().filter(|parent| !parent.as_os_str().is_empty());
        for folder in [Some(self.folder.as_path()), parent].into_iter().flatten() {
            self.disk.sync_folder(folder).map_err(|source| {
                self.commit.poison(folder);
                JournalError::Sync { path: folder.to_owned(), source }
            })?;
        }
        let counter = next_counter(self.counter, &path)?;
        let header = Header {
            slot: self.slot,
            side,
            counter,
            salt: Salt::new((self.salts)(), counter),
            pid: self.pid,
            capacity: CAPACITY_FIRST,
        };
        write_header(&path, file.as_ref(), header, Block::First)?;
        self.commit.sync(side)?;
        self.counter = counter;
        self.commit.begin(side, counter, FRAMES_START);
        let (block, end) = (Block::First, FRAMES_START);
        *self.files.get_mut(side) =
            Some(JournalFile { path, file, header, block, end, sessions: HashMap::new() });
        Ok(())
    }

    /// Begins a new use of a file that holds nothing which is not released.
    fn reset(&mut self, side: Side, pid: u32) -> Result<(), JournalError> {
        let random = (self.salts)();
        self.put_header(side, |header| Header { salt: Salt::new(random, header.counter), pid, ..header })?;
        let file = opened(self.files.get_mut(side));
        assert!(file.sessions.is_empty(), "only a free file is reused");
        file.end = FRAMES_START;
        self.commit.begin(side, file.header.salt.counter(), FRAMES_START);
        Ok(())
    }

    /// Writes the next header of a file, with its counter and owner set, as `change` makes it, and
    /// syncs it. The block that holds the header in force is never written.
    fn put_header(&mut self, side: Side, change: impl FnOnce(Header) -> Header) -> Result<(), JournalError> {
        let file = opened(self.files.get_mut(side));
        let counter = next_counter(self.counter, &file.path)?;
        let header = change(Header { counter, pid: self.pid, ..file.header });
        let block = file.block.other();
        if let Err(error) = write_header(&file.path, file.file.as_ref(), header, block) {
            // It may be there all the same, and would then outrank the header in force.
            if file.file.write_at(&vec![0; BLOCK_LEN], block.offset()).is_err() {
                self.commit.poison(&file.path);
                return Err(error);
            }
            self.commit.sync(side)?;
            return Err(error);
        }
        self.commit.counters.written(BLOCK_LEN as u64);
        self.commit.sync(side)?;
        file.header = header;
        file.block = block;
        self.counter = counter;
        Ok(())
    }

    /// Gives back the room of a file that holds no frame.
    fn shrink(&mut self, side: Side) -> Result<(), JournalError> {
        let file = opened(self.files.get_mut(side));
        if file.header.capacity <= CAPACITY_FIRST {
            return Ok(());
        }
        // The header first: it must never claim more than the file has.
        self.put_header(side, |header| Header { capacity: CAPACITY_FIRST, ..header })?;
        let file = opened(self.files.get_mut(side));
        file.file.set_len(CAPACITY_FIRST).map_err(io_error("shorten", &file.path))?;
        self.commit.sync(side)
    }

    fn erase_beyond_end(&mut self, side: Side) -> Result<(), JournalError> {
        let Some(file) = self.files.get(side) else { return Ok(()) };
        let len = file.file.len().map_err(io_error("read the length of", &file.path))?;
        let written = erase(file.file.as_ref(), file.end, len).map_err(|source| JournalError::Write {
            path: file.path.clone(),
            bytes: len.saturating_sub(file.end),
            source,
        })?;
        self.commit.counters.written(written);
        self.commit.sync(side)
    }
}

/// No writer comes to the end of these in a lifetime; a file that claims it has is damaged.
fn next_counter(counter: u32, path: &Path) -> Result<u32, JournalError> {
    let damaged = || JournalError::Damaged { path: path.to_owned(), offset: 0, next_valid: None };
    counter.checked_add(1).ok_or_else(damaged)
}

fn opened(file: &mut Option<JournalFile>) -> &mut JournalFile {
    #[expect(clippy::expect_used, reason = "the active file, and one that was just looked at, is open")]
    file.as_mut().expect("a file is used after it was opened")
}

fn note_session(sessions: &mut HashMap<u64, u64>, session_key: u64, next_seq: u64) {
    let noted = sessions.entry(session_key).or_insert(next_seq);
    *noted = next_seq.max(*noted);
}

fn write_zeroes(path: &Path, file: &dyn DiskFile, from: u64, to: u64) -> Result<(), JournalError> {
    let mut at = from;
    while at < to {
        let chunk = ZEROES.get(..(to - at).min(ZEROES.len() as u64) as usize).unwrap_or(ZEROES);
        file.write_at(chunk, at).map_err(|source| JournalError::Write {
            path: path.to_owned(),
            bytes: to - from,
            source,
        })?;
        at += chunk.len() as u64;
    }
    Ok(())
}

/// Writes the bytes that are there in their own place.
fn rewrite(path: &Path, file: &dyn DiskFile, from: u64, to: u64) -> Result<(), JournalError> {
    let mut chunk = vec![0; ZEROES.len()];
    let mut at = from;
    while at < to {
        chunk.truncate((to - at).min(ZEROES.len() as u64) as usize);
        read_exact_at(file, &mut chunk, at).map_err(io_error("read", path))?;
        file.write_at(&chunk, at).map_err(|source| JournalError::Write {
            path: path.to_owned(),
            bytes: chunk.len() as u64,
            source,
        })?;
        at += chunk.len() as u64;
    }
    Ok(())
}

//! The slots of a journal folder, seen from outside: who holds which, and what the dead left.
//!
//! Owns the rule that a slot belongs to whoever locks its `N.lock`, and the recovery of a slot
//! that is not one's own. Writes only under that lock.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rederive_disk::{Disk, DiskFile, OpenMode};

use super::error::{JournalError, io_error};
use super::format::{FRAMES_START, Header, Salt, Side, journal_path, lock_path, slot_of};
use super::scan::{Block, DroppedTail, RecoveredFrame, Scan, erase, read_header, salvage, scan};
use super::{SaltSource, next_counter};

/// Slots of one folder: so many processes can write a store at once.
pub(crate) const SLOTS_MAX: u32 = 4096;

/// One slot of a journal folder.
#[derive(Debug)]
pub(crate) struct SlotStatus {
    /// The slot's number.
    pub(crate) slot: u32,
    /// Who holds it, or what is left in it.
    pub(crate) state: SlotState,
}

/// Who holds a slot, or what is left in it.
#[derive(Debug)]
pub(crate) enum SlotState {
    /// A live process holds it.
    Held {
        /// Its process id, where the journal names one.
        pid: Option<u32>,
    },
    /// Its owner died without closing it; frames that may not be sealed yet can be left.
    Dirty {
        /// How many frames.
        frames: u64,
        /// Bytes that looked like frames behind them.
        dropped_bytes: u64,
    },
    /// Nobody holds it and nothing is left in it.
    Clean,
    /// Nobody holds it and it does not read.
    Unreadable(JournalError),
}

/// The slots of `folder` in the order of their numbers; empty where the folder is missing.
///
/// Reads every file of a slot whose owner died. A slot that is taken or left at the same moment
/// may be seen either way.
pub(crate) fn slots(disk: &Arc<dyn Disk>, folder: &Path) -> Result<Vec<SlotStatus>, JournalError> {
    if !disk.exists(folder).map_err(io_error("look for", folder))? {
        return Ok(Vec::new());
    }
    let entries = disk.list(folder).map_err(io_error("list", folder))?;
    let mut numbers: Vec<u32> = entries.iter().filter_map(|entry| slot_of(&entry.name)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(|slot| Ok(SlotStatus { slot, state: state_of(disk, folder, slot)? })).collect()
}

/// Whether a live process holds `slot`.
pub(crate) fn slot_is_held(disk: &Arc<dyn Disk>, folder: &Path, slot: u32) -> Result<bool, JournalError> {
    let path = lock_path(folder, slot);
    match open_existing(disk, &path, OpenMode::Read)? {
        Some(lock) => Ok(!lock.try_lock_shared().map_err(io_error("lock", &path))?),
        None => Ok(false),
    }
}

/// Who holds `slot`, or what is left in it.
pub(crate) fn state_of(disk: &Arc<dyn Disk>, folder: &Path, slot: u32) -> Result<SlotState, JournalError> {
    let path = lock_path(folder, slot);
    let lock = open_existing(disk, &path, OpenMode::Read)?;
    if let Some(lock) = &lock {
        // Shared, so that those who only look do not get into each other's way.
        if !lock.try_lock_shared().map_err(io_error("lock", &path))? {
            return Ok(SlotState::Held { pid: owner(disk, folder, slot)? });
        }
    }
    let (mut frames, mut dropped_bytes, mut closed) = (0, 0, true);
    for side in Side::BOTH {
        let path = journal_path(folder, slot, side);
        let Some(file) = open_existing(disk, &path, OpenMode::Read)? else { continue };
        match scan(file.as_ref(), &path, slot, side) {
            Ok(None) => {}
            Ok(Some(found)) => {
                frames += found.frames.len() as u64;
                closed &= found.header.pid == 0;
                dropped_bytes += found.dropped.map_or(0, |tail| tail.bytes);
            }
            Err(error @ (JournalError::Damaged { .. } | JournalError::Version { .. })) => {
                return Ok(SlotState::Unreadable(error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(if closed { SlotState::Clean } else { SlotState::Dirty { frames, dropped_bytes } })
}

/// The process that the slot's youngest header names.
fn owner(disk: &Arc<dyn Disk>, folder: &Path, slot: u32) -> Result<Option<u32>, JournalError> {
    let mut best: Option<Header> = None;
    for side in Side::BOTH {
        let path = journal_path(folder, slot, side);
        let Some(file) = open_existing(disk, &path, OpenMode::Read)? else { continue };
        // The owner may be writing the header at this moment; its name is only for a message.
        if let Ok(Some((header, _))) = read_header(file.as_ref(), &path, slot, side)
            && best.is_none_or(|best| best.counter < header.counter)
        {
            best = Some(header);
        }
    }
    Ok(best.map(|header| header.pid).filter(|&pid| pid != 0))
}

pub(super) fn open_existing(
    disk: &Arc<dyn Disk>,
    path: &Path,
    mode: OpenMode,
) -> Result<Option<Arc<dyn DiskFile>>, JournalError> {
    match disk.open(path, mode) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("open", path)(error)),
    }
}

/// One file of a slot, as it was found.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) side: Side,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn DiskFile>,
    /// `None` for a file whose creation was cut short.
    pub(super) scan: Option<Scan>,
}

/// Reads both files of a slot whose lock the caller holds, the older use first.
pub(super) fn read_slot(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    slot: u32,
) -> Result<Vec<FoundFile>, JournalError> {
    let mut found = Vec::new();
    for side in Side::BOTH {
        let path = journal_path(folder, slot, side);
        let Some(file) = open_existing(disk, &path, OpenMode::ReadWrite)? else { continue };
        let scan = scan(file.as_ref(), &path, slot, side)?;
        found.push(FoundFile { side, path, file, scan });
    }
    found.sort_by_key(|file| file.scan.as_ref().map(|scan| scan.header.salt.counter()));
    Ok(found)
}

/// What was found in a slot that its last owner did not leave clean.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// Every frame that still stands there, in the order in which the owner wrote them. Some whose
    /// events are sealed already, or whose session is gone, may be among them, without gap or with
    /// one: the journal learns of sealing only while its owner lives. The others follow on what is
    /// sealed without a gap.
    pub(crate) frames: Vec<RecoveredFrame>,
    /// What was cut off as never acknowledged.
    pub(crate) dropped: Vec<DroppedTail>,
}

impl Recovered {
    pub(super) fn take_from(found: &mut [FoundFile]) -> Self {
        let mut recovered = Self::default();
        for scan in found.iter_mut().filter_map(|file| file.scan.as_mut()) {
            recovered.frames.append(&mut scan.frames);
            recovered.dropped.extend(scan.dropped.clone());
        }
        recovered
    }
}

/// The journal of a dead process, locked by this one.
#[derive(Debug)]
pub(crate) struct SlotRecovery {
    files: Vec<FoundFile>,
    counter: u32,
    recovered: Recovered,
    _lock: Arc<dyn DiskFile>,
}

/// Takes hold of a slot whose owner died, and reads what it left; a clean slot gives no frames.
///
/// Changes nothing until [`SlotRecovery::reset`]; dropped before that, everything is as before.
///
/// # Errors
///
/// - [`JournalError::Held`]: the owner lives.
/// - [`JournalError::Damaged`], [`JournalError::Version`]: the slot cannot be read whole.
pub(crate) fn recover_slot(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    slot: u32,
) -> Result<SlotRecovery, JournalError> {
    let path = lock_path(folder, slot);
    let lock = disk.open(&path, OpenMode::Create).map_err(io_error("open", &path))?;
    if !lock.try_lock().map_err(io_error("lock", &path))? {
        return Err(JournalError::Held { slot, pid: owner(disk, folder, slot)? });
    }
    let mut files = read_slot(disk, folder, slot)?;
    let recovered = Recovered::take_from(&mut files);
    Ok(SlotRecovery { counter: counter_of(&files), files, recovered, _lock: lock })
}

/// Every frame of a slot that reads, whether or not what stands between reads. Changes nothing.
///
/// # Errors
///
/// [`JournalError::Version`], [`JournalError::Io`]; damage is none.
pub(crate) fn salvage_slot(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    slot: u32,
) -> Result<Vec<RecoveredFrame>, JournalError> {
    let mut frames = Vec::new();
    for side in Side::BOTH {
        let path = journal_path(folder, slot, side);
        let Some(file) = open_existing(disk, &path, OpenMode::Read)? else { continue };
        frames.append(&mut salvage(file.as_ref(), &path, slot, side)?);
    }
    Ok(frames)
}

/// The highest counter of a slot.
pub(super) fn counter_of(files: &[FoundFile]) -> u32 {
    files.iter().filter_map(|file| file.scan.as_ref()).map(|scan| scan.header.counter).max().unwrap_or(0)
}

impl SlotRecovery {
    /// What the dead owner left.
    pub(crate) fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// Marks the slot clean, after its frames were sealed elsewhere.
    ///
    /// # Cost
    ///
    /// One header and one sync for each file. The frames' bytes stay until [`Self::scrub`].
    pub(crate) fn reset(&mut self, salts: &mut SaltSource) -> Result<(), JournalError> {
        for found in &mut self.files {
            let Some(scan) = &mut found.scan else { continue };
            let next = next_counter(self.counter, &found.path)?;
            let header = Header { counter: next, salt: Salt::new(salts(), next), pid: 0, ..scan.header };
            write_header(&found.path, found.file.as_ref(), header, scan.block.other())?;
            found.file.sync().map_err(|source| JournalError::Sync { path: found.path.clone(), source })?;
            self.counter = next;
            scan.header = header;
            scan.block = scan.block.other();
            scan.end = FRAMES_START;
        }
        self.recovered = Recovered::default();
        Ok(())
    }

    /// Resets the slot and overwrites what its files held with zeroes.
    pub(crate) fn scrub(&mut self, salts: &mut SaltSource) -> Result<(), JournalError> {
        self.reset(salts)?; // first, or a half-erased file would read as damaged
        for found in &self.files {
            let len = found.file.len().map_err(io_error("read the length of", &found.path))?;
            erase(found.file.as_ref(), FRAMES_START, len).map_err(io_error("erase", &found.path))?;
            found.file.sync().map_err(|source| JournalError::Sync { path: found.path.clone(), source })?;
        }
        Ok(())
    }
}

pub(super) fn write_header(
    path: &Path,
    file: &dyn DiskFile,
    header: Header,
    block: Block,
) -> Result<(), JournalError> {
    let bytes = header.encode();
    file.write_at(&bytes, block.offset()).map_err(|source| JournalError::Write {
        path: path.to_owned(),
        bytes: bytes.len() as u64,
        source,
    })
}

//! Following a journal from another process, without a lock.
//!
//! Owns where a reader is in each of a slot's two files. What is not whole yet is not there yet;
//! a file that begins a new use is read from its start. Changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rederive_disk::{Disk, DiskFile, OpenMode};

use super::error::{JournalError, io_error};
use super::format::{FRAMES_START, Header, Pair, Salt, Side, journal_path, read_frame};
use super::scan::read_header;
use super::slots::open_existing;

/// One frame of a followed session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FollowedFrame {
    /// Position of the first event. Beyond what the reader has so far, the events between are
    /// sealed: they left the journal before they were read here.
    pub(crate) first_seq: u64,
    /// How many events the payload holds.
    pub(crate) events: u32,
    /// The events' bytes as they were appended.
    pub(crate) payload: Vec<u8>,
}

/// Reads one session's frames from the journal of another process, as they arrive.
#[derive(Debug)]
pub(crate) struct JournalFollower {
    disk: Arc<dyn Disk>,
    session_key: u64,
    next_seq: u64,
    files: Pair<Followed>,
}

#[derive(Debug)]
struct Followed {
    side: Side,
    slot: u32,
    path: PathBuf,
    file: Option<Arc<dyn DiskFile>>,
    header: Option<Header>,
    /// Of the last frame that was read, or of the header.
    salt: Option<Salt>,
    offset: u64,
}

impl JournalFollower {
    /// Follows the session's frames in `slot` that hold events from `from_seq` on.
    ///
    /// The slot's files may be missing yet.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        slot: u32,
        session_key: u64,
        from_seq: u64,
    ) -> Self {
        let followed = |side| Followed {
            side,
            slot,
            path: journal_path(folder, slot, side),
            file: None,
            header: None,
            salt: None,
            offset: FRAMES_START,
        };
        let files = Pair::new(followed(Side::A), followed(Side::B));
        Self { disk, session_key, next_seq: from_seq, files }
    }

    /// The first event that was not read yet.
    #[cfg(test)]
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Passes over the events before `seq`, which the caller has from elsewhere.
    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, seq: u64) {
        self.next_seq = self.next_seq.max(seq);
    }

    /// The frames that arrived since the last call, in order.
    ///
    /// A damaged frame cannot be told from one that is not whole yet here; the recovery of the slot
    /// tells them apart.
    ///
    /// # Cost
    ///
    /// Both headers of both files, and the new frames of every session.
    pub(crate) fn poll(&mut self) -> Result<Vec<FollowedFrame>, JournalError> {
        for side in Side::BOTH {
            self.files.get_mut(side).refresh(&self.disk)?;
        }
        let mut order = Side::BOTH;
        order.sort_by_key(|&side| self.files.get(side).header.map(|header| header.salt.counter()));
        let mut frames = Vec::new();
        for side in order {
            let (session_key, next_seq) = (self.session_key, &mut self.next_seq);
            self.files.get_mut(side).read(session_key, next_seq, &mut frames)?;
        }
        Ok(frames)
    }
}

impl Followed {
    /// Opens the file where it has appeared, and starts over where it is in a new use.
    fn refresh(&mut self, disk: &Arc<dyn Disk>) -> Result<(), JournalError> {
        if self.file.is_none() {
            self.file = open_existing(disk, &self.path, OpenMode::Read)?;
        }
        let Some(file) = &self.file else { return Ok(()) };
        let Some((header, _)) = read_header(file.as_ref(), &self.path, self.slot, self.side)? else {
            return Ok(()); // about to be created
        };
        match self.header {
            Some(known) if header.counter <= known.counter => {}
            known => {
                if known.is_none_or(|known| known.salt != header.salt) {
                    self.offset = FRAMES_START;
                    self.salt = Some(header.salt);
                }
                self.header = Some(header);
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        session_key: u64,
        next_seq: &mut u64,
        frames: &mut Vec<FollowedFrame>,
    ) -> Result<(), JournalError> {
        let (Some(file), Some(mut salt)) = (&self.file, self.salt) else { return Ok(()) };
        let read_error = |source| io_error("read", &self.path)(source);
        let file_len = file.len().map_err(read_error)?;
        // Every frame is checked, also those of other sessions: an unchecked length could lead
        // astray for good.
        while let Some((fields, payload)) =
            read_frame(file.as_ref(), self.offset, file_len, Some(salt)).map_err(read_error)?
        {
            salt = fields.salt;
            self.salt = Some(salt);
            self.offset = fields.claimed_end(self.offset);
            if fields.session_key == session_key && *next_seq < fields.next_seq() {
                *next_seq = fields.next_seq();
                frames.push(FollowedFrame { first_seq: fields.first_seq, events: fields.events, payload });
            }
        }
        Ok(())
    }
}

//! What can go wrong with a journal, by what the caller does next.

use std::io;
use std::path::PathBuf;

/// Why the journal could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// A frame, or the room for it, could not be written; the journal is as before. Make room,
    /// then append again.
    #[error("cannot write {bytes} bytes to {}", path.display())]
    Write {
        /// The journal file.
        path: PathBuf,
        /// How many bytes the write held.
        bytes: u64,
        /// What the file system said.
        source: io::Error,
    },
    /// The frame is longer than the format can hold; nothing was written. Split the batch.
    #[error("a frame of {bytes} bytes is over the journal's limit of {bytes_max}")]
    TooLarge {
        /// Payload bytes of the frame.
        bytes: u64,
        /// The most that a frame holds.
        bytes_max: u64,
    },
    /// A sync failed, so what the disk holds is unknown; nothing more is written. Reopen the
    /// store.
    #[error("cannot sync {}", path.display())]
    Sync {
        /// The file or folder whose sync failed.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// A sync failed, or a failed write could not be taken back, so what the disk holds is unknown.
    /// Reopen the store.
    #[error("{} is read-only since a sync or the undoing of a write failed", path.display())]
    Poisoned {
        /// The file or folder in question.
        path: PathBuf,
    },
    /// The file is damaged: what was acknowledged as synced does not read back. Nothing was cut.
    /// Repair into a new store.
    #[error("{} is damaged at byte {offset}", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// First byte that does not read as it was written.
        offset: u64,
        /// Where the next readable frame starts, where one is known.
        next_valid: Option<u64>,
    },
    /// The file was written by another version of the format. Use the version that wrote it, or
    /// close the store with that one first.
    #[error("{} has journal format {found}, this build reads {supported}", path.display())]
    Version {
        /// The journal file.
        path: PathBuf,
        /// The version that the file names.
        found: u32,
        /// The version that is read here.
        supported: u32,
    },
    /// The slot's owner lives. Retry when it has let go.
    #[error("journal {slot} is held by {}", owner(*pid))]
    Held {
        /// The slot.
        slot: u32,
        /// Its owner's process id, where the journal names one.
        pid: Option<u32>,
    },
    /// The file system gives one lock to two handles, so that nothing would keep two processes from
    /// writing the same files. Put the store on a file system whose locks work: a local one.
    #[error("the locks of the file system do not work: {} was locked twice at once", path.display())]
    NoLocks {
        /// The lock file.
        path: PathBuf,
    },
    /// Every slot of the folder is held by a live process. Close one of them.
    #[error("all {slots} journals of {} are held", folder.display())]
    NoSlot {
        /// The journal folder.
        folder: PathBuf,
        /// How many slots a folder has.
        slots: u32,
    },
    /// Another operation of the file system failed. Mend what it names, then retry.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What the operation was about.
        path: PathBuf,
        /// The operation.
        operation: &'static str,
        /// What the file system said.
        source: io::Error,
    },
}

fn owner(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// Names path and operation of an I/O error.
pub(super) fn io_error<'a>(
    operation: &'static str,
    path: &'a std::path::Path,
) -> impl FnOnce(io::Error) -> JournalError + 'a {
    move |source| JournalError::Io { path: path.to_owned(), operation, source }
}

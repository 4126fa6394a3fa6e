//! What can go wrong with a segment file, by what the caller does next.

use std::io;
use std::path::{Path, PathBuf};

/// Why a segment could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// There is no such file. Look the segment up again: it may have been merged into another;
    /// else repair into a new store.
    #[error("there is no {}", path.display())]
    Missing {
        /// Where the file should stand.
        path: PathBuf,
    },
    /// The file does not read as it was written. Repair into a new store.
    #[error("{} is damaged at byte {offset}: {what} ({section})", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// The part of the file.
        section: &'static str,
        /// Where that part, or the damaged block of it, starts.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The file was written by another version of the format. Use the version that wrote it.
    #[error("{} has segment format {found}, this build reads {supported}", path.display())]
    Version {
        /// The segment file.
        path: PathBuf,
        /// The version that the file names.
        found: u32,
        /// The version that is read here.
        supported: u32,
    },
    /// More than a segment can hold; nothing was written. Seal fewer events at once.
    #[error("{what} of {found} is over a segment's limit of {most}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        found: u64,
        /// The most that a segment holds.
        most: u64,
    },
    /// An operation of the file system failed. Mend what it names, then retry.
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

impl SegmentError {
    /// Whether the file is not there, or does not hold what was written to it.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Damaged { .. } | Self::Version { .. })
    }
}

/// Names path and operation of an I/O error.
pub(super) fn io_error<'a>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> SegmentError + 'a {
    move |source| SegmentError::Io { path: path.to_owned(), operation, source }
}

/// What is wrong with a part of a file, before its place is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

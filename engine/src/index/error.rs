//! What can go wrong with the index, by what the caller does next.

use std::io;
use std::path::{Path, PathBuf};

use crate::ids::{SessionId, SessionKey};

/// Why the index could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// Another process has been writing the index for longer than the timeout. Retry; where the
    /// holder hangs, end it.
    #[error("the index is held by {}", holder(*holder_pid))]
    Busy {
        /// The holder's process id, where it is known.
        holder_pid: Option<u32>,
    },
    /// The file, or a row of it, does not read as it was written. Rebuild the index from the
    /// segments, into a new store.
    #[error("{} is damaged: {what}{}", path.display(), place(*table, key.as_deref()))]
    Damaged {
        /// The index file.
        path: PathBuf,
        /// The table, where it is one row that does not read.
        table: Option<&'static str>,
        /// The row's key, in hexadecimal.
        key: Option<String>,
        /// What is wrong.
        what: String,
    },
    /// There is no index here, and the handle may not make one.
    #[error("there is no {}", path.display())]
    Missing {
        /// Where the index should stand.
        path: PathBuf,
    },
    /// The index was written by another version. Use the version that wrote it.
    #[error("{} has index format {found}, this build reads {supported}", path.display())]
    Version {
        /// The index file.
        path: PathBuf,
        /// The version that the index names.
        found: u32,
        /// The version that is read here.
        supported: u32,
    },
    /// There is a session of this name. Choose another name, or open that one.
    #[error("there is a session {id} already")]
    Exists {
        /// The name.
        id: SessionId,
    },
    /// There is no such session. Look it up again: it may have been deleted.
    #[error("there is no session with the key {key}")]
    NoSession {
        /// The session's key.
        key: SessionKey,
    },
    /// The session's owner is another than the caller thought. Look at the row again.
    #[error("session {key} has another owner than was expected")]
    OwnerChanged {
        /// The session's key.
        key: SessionKey,
        /// Its owner now.
        found: Option<super::Owner>,
    },
    /// What is to be stored does not fit what the index holds. Report it: the store asked for
    /// what must not be.
    #[error("session {key}: {what}")]
    Conflict {
        /// The session's key.
        key: SessionKey,
        /// What does not fit.
        what: &'static str,
    },
    /// The handle reads only. Open the store for writing.
    #[error("{} was opened for reading only", path.display())]
    ReadOnly {
        /// The index file.
        path: PathBuf,
    },
    /// Something else failed in the index or its file system. Mend what it names, then reopen.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What the operation was about.
        path: PathBuf,
        /// The operation.
        operation: &'static str,
        /// What the file system said.
        source: io::Error,
    },
    /// A segment does not read. Repair into a new store.
    #[error(transparent)]
    Segment(#[from] crate::segment::SegmentError),
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn place(table: Option<&str>, key: Option<&str>) -> String {
    match (table, key) {
        (Some(table), Some(key)) => format!(" (table {table}, key {key})"),
        (Some(table), None) => format!(" (table {table})"),
        _ => String::new(),
    }
}

/// Names path and operation of an I/O error.
pub(super) fn io_error<'a>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> IndexError + 'a {
    move |source| IndexError::Io { path: path.to_owned(), operation, source }
}

/// What redb said, in the words of this layer.
pub(super) fn redb_error(path: &Path, operation: &'static str, error: redb::Error) -> IndexError {
    let damaged = |what: String| IndexError::Damaged { path: path.to_owned(), table: None, key: None, what };
    match error {
        redb::Error::Corrupted(what) => damaged(what),
        redb::Error::WouldBlock | redb::Error::DatabaseAlreadyOpen => IndexError::Busy { holder_pid: None },
        redb::Error::TableDoesNotExist(table) => damaged(format!("the table {table} is missing")),
        error @ (redb::Error::TableTypeMismatch { .. }
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::UpgradeRequired(_)
        | redb::Error::TableIsMultimap(_)) => damaged(error.to_string()),
        redb::Error::Io(source)
            if matches!(
                source.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof
            ) =>
        {
            damaged(source.to_string())
        }
        redb::Error::PreviousIo => IndexError::Io {
            path: path.to_owned(),
            operation,
            source: io::Error::other("an earlier operation on the file failed; open the store anew"),
        },
        redb::Error::Io(source) => IndexError::Io { path: path.to_owned(), operation, source },
        error => IndexError::Io { path: path.to_owned(), operation, source: io::Error::other(error) },
    }
}

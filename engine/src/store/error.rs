//! What can go wrong with a store, by what the caller does next.

use std::io;
use std::path::{Path, PathBuf};

use crate::admission::Refusal;
use crate::ids::{Seq, SessionId};
use crate::index::IndexError;
use crate::journal::JournalError;
use crate::segment::SegmentError;

/// Why a store could not be opened, read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no store in the folder. Create one, or name another folder.
    #[error("{} holds no store", path.display())]
    NoStore {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds a store, or something else, already. Open it, or name another folder.
    #[error("{} is not empty", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The store was written in another format. Use the version that wrote it.
    #[error("{} has store format {found}, this build reads {supported}", path.display())]
    Version {
        /// The `FORMAT` file.
        path: PathBuf,
        /// What the file says.
        found: String,
        /// The format that is read here.
        supported: u32,
    },
    /// No session has this name.
    #[error("there is no session {session}")]
    NoSession {
        /// The name that was asked for.
        session: String,
    },
    /// A session of this name exists. Choose another name.
    #[error("session {session} exists already")]
    SessionExists {
        /// The name.
        session: SessionId,
    },
    /// Another process, or another handle of this one, writes the session. Retry when it has let go.
    #[error("session {session} is written by process {owner}")]
    SessionBusy {
        /// The session.
        session: SessionId,
        /// The owner's process id; zero where it is not known.
        owner: u32,
    },
    /// The store was opened for reading. Open it for writing.
    #[error("{} was opened for reading", path.display())]
    ReadOnly {
        /// The store.
        path: PathBuf,
    },
    /// A session's log does not follow from its parts: a journal or segment holds what was never
    /// admitted. Run `doctor`.
    #[error("session {session} does not fold: {refusal}")]
    Inconsistent {
        /// The session.
        session: SessionId,
        /// The rule that its log breaks.
        refusal: Refusal,
    },
    /// A session's log has a gap. Run `doctor`.
    #[error("events {from} to {to} of a session are nowhere in {}", path.display())]
    Gap {
        /// First missing event.
        from: Seq,
        /// The event after the last missing one.
        to: Seq,
        /// Where they should stand.
        path: PathBuf,
    },
    /// The log ends before this event.
    #[error("session {session} has no event {seq}; it has {events} events")]
    NoEvent {
        /// The session.
        session: SessionId,
        /// The event that was asked for.
        seq: Seq,
        /// How many events there are.
        events: u64,
    },
    /// A round of sealing failed; the journal keeps what was not sealed.
    #[error("sealing failed: {source}")]
    Seal {
        /// Why; shared by everyone who waited for the round.
        source: std::sync::Arc<StoreError>,
    },
    /// A session's name is empty or over 512 bytes. Choose another one.
    #[error("a session's name has 1 to 512 bytes, not {bytes}")]
    BadName {
        /// Length of the name.
        bytes: usize,
    },
    /// A session was sealed again and again while it was read. Retry.
    #[error("session {session} changed too often while it was read")]
    Restless {
        /// The session.
        session: SessionId,
    },
    /// The engine broke one of its own rules. Please report it.
    #[error("internal: {what}")]
    Internal {
        /// What happened.
        what: &'static str,
    },
    /// The index could not be read or written.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A segment could not be read or written.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The journal could not be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The file system failed.
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

impl StoreError {
    /// Whether a file does not hold what was written to it: another try gives the same, and `doctor`
    /// says what can be saved.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Inconsistent { .. } | Self::Gap { .. } => true,
            Self::Index(error) => {
                matches!(error, IndexError::Damaged { .. } | IndexError::Version { .. })
                    || matches!(error, IndexError::Segment(error) if error.is_damage())
            }
            Self::Segment(error) => error.is_damage(),
            Self::Journal(error) => {
                matches!(error, JournalError::Damaged { .. } | JournalError::Version { .. })
            }
            Self::Seal { source } => source.is_damage(),
            _ => false,
        }
    }
}

/// Why a batch did not reach the log. Log, surface and header are as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// A rule of the format is broken. Correct the event that it names.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The batch could not be written, or an earlier sync failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Why a session could not be forked. Nothing changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForkError {
    /// The event stands inside an open turn. Fork at its end, or before its start.
    #[error("event {at} of session {session} stands inside turn {turn}")]
    OpenTurn {
        /// The parent.
        session: SessionId,
        /// The event that was asked for.
        at: Seq,
        /// The turn that is open there.
        turn: u64,
    },
    /// The parent has no such event.
    #[error("session {session} has no event {at}; it has {events} events")]
    NoEvent {
        /// The parent.
        session: SessionId,
        /// The event that was asked for.
        at: Seq,
        /// How many events there are.
        events: u64,
    },
    /// The store could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(crate) fn io_error<'a>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> StoreError + 'a {
    move |source| StoreError::Io { path: path.to_owned(), operation, source }
}

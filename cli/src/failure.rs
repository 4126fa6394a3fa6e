//! What went wrong, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use rederive_cas::{DiskError, GetError, ImageRefusal, PutError};
use rederive_engine::{AppendError, ForkError, ImportError, StoreError};
use rederive_projection::audit::AuditError;
use rederive_projection::formats::FormatError;
use rederive_projection::{ImageError, ProjectError, ReconstructError};

/// Why the command could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the reader of the output is gone")]
    BrokenPipe,
    #[error("{}", chain(.0))]
    Store(#[from] StoreError),
    #[error("{}", chain(.0))]
    Append(#[from] AppendError),
    #[error("{}", chain(.0))]
    Fork(#[from] ForkError),
    #[error("{}: {}", path.display(), chain(.source))]
    Import { path: PathBuf, source: ImportError },
    #[error("{}", chain(.0))]
    Project(#[from] ProjectError),
    #[error("{}", chain(.0))]
    Reconstruct(#[from] ReconstructError),
    #[error("{}", chain(.0))]
    Audit(#[from] AuditError),
    #[error("{}", chain(.0))]
    Format(#[from] FormatError),
    #[error("{}", chain(.0))]
    Image(#[from] ImageError),
    #[error("{}", chain(.0))]
    Refused(#[from] ImageRefusal),
    #[error("{}", chain(.0))]
    Get(#[from] GetError),
    #[error("{}", chain(.0))]
    Put(#[from] PutError),
    #[error("{}", chain(.0))]
    Disk(#[from] DiskError),
    #[error("cannot {operation} {}: {source}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("{0}")]
    Said(String),
}

/// An error and its sources, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        // Transparent errors repeat their source's text.
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}

impl Failure {
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| {
            if source.kind() == io::ErrorKind::BrokenPipe {
                Self::BrokenPipe
            } else {
                Self::Io { operation, path, source }
            }
        }
    }

    /// What the reader can do; `None` where the message says it.
    pub(crate) fn advice(&self) -> Option<&'static str> {
        Some(match self {
            Self::Store(StoreError::NoStore { .. }) => "`rederive import FILE` makes a store there.",
            Self::Store(StoreError::NoSession { .. }) => "`rederive ls` lists the sessions.",
            Self::Store(StoreError::SessionBusy { .. }) => "Close it there, or wait, and try again.",
            Self::Store(
                StoreError::Inconsistent { .. }
                | StoreError::Gap { .. }
                | StoreError::Index(_)
                | StoreError::Segment(_)
                | StoreError::Journal(_),
            ) => "`rederive doctor` shows what is damaged and what can be saved.",
            Self::Append(AppendError::Refused(_)) => "Correct the event; the log is as it was.",
            Self::Append(_) => {
                "Nothing was appended by this line. Make room, or reopen the store, and try again."
            }
            _ => return None,
        })
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Said(_) => 2,
            _ => 1,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(source: io::Error) -> Self {
        Self::io("write to", Path::new("standard output"))(source)
    }
}

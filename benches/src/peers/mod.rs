//! What a host could keep its log in: one trait, and one kind for each way.
//!
//! Owns what is asked of a peer, and the check that all of them hold the same lines. Each takes a
//! batch of lines as one commit, in one session. A peer is set up as its users would for this job.

mod fjall;
mod framed;
mod jsonl;
mod raw;
mod redb;
mod rederive;
mod sqlite;

use std::fmt;
use std::fs;
use std::path::Path;

use bytes::Bytes;

use crate::{BenchError, during};

pub use rederive::Rederive;

/// How durable a batch is when its append returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// It survives a loss of power.
    Durable,
    /// The operating system has it, or the library will hand it over soon.
    Buffered,
}

/// A log that is open for appending.
pub trait Peer {
    /// Appends the lines of one batch as one commit.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    fn append(&mut self, batch: &[Bytes], commit: Commit) -> Result<(), BenchError>;

    /// Closes the log; what it holds is whole, and as small as the peer makes it.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    fn close(self: Box<Self>) -> Result<(), BenchError>;
}

/// A way to keep a log.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The name in tables.
    pub name: &'static str,
    /// Whether [`Commit::Durable`] survives a loss of power.
    pub durable: bool,
    /// Opens an empty log in an empty folder.
    pub open: fn(&Path) -> Result<Box<dyn Peer>, BenchError>,
    /// Opens the closed log in a folder and reads all its lines.
    pub read: fn(&Path) -> Result<Held, BenchError>,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A preallocated file with `pwrite` and `fdatasync`: what the disk allows.
pub const RAW: Kind = Kind { name: "raw file", durable: true, open: raw::open, read: raw::read };
/// A file of lines that grows, with `fsync`.
pub const JSONL: Kind = Kind { name: "JSONL", durable: true, open: jsonl::open, read: jsonl::read };
/// A file of zstd frames, one a batch, with `fsync`.
pub const FRAMED: Kind = Kind { name: "JSONL, zstd", durable: true, open: framed::open, read: framed::read };
/// SQLite in WAL mode, `synchronous=FULL`, one row an event.
pub const SQLITE_FULL: Kind =
    Kind { name: "SQLite, full", durable: true, open: sqlite::open_full, read: sqlite::read };
/// SQLite in WAL mode, `synchronous=NORMAL`, one row an event: a commit survives a kill, and may be
/// lost with the power.
pub const SQLITE_NORMAL: Kind =
    Kind { name: "SQLite, normal", durable: false, open: sqlite::open_normal, read: sqlite::read };
/// redb, one row an event.
pub const REDB: Kind = Kind { name: "redb", durable: true, open: redb::open, read: redb::read };
/// fjall, one key an event.
pub const FJALL: Kind = Kind { name: "fjall", durable: true, open: fjall::open, read: fjall::read };
/// A session of a Rederive store.
pub const REDERIVE: Kind =
    Kind { name: "Rederive", durable: true, open: rederive::open, read: rederive::read };

/// Every kind; the limit comes first.
pub const ALL: [Kind; 8] = [RAW, REDERIVE, JSONL, FRAMED, SQLITE_FULL, SQLITE_NORMAL, REDB, FJALL];

/// What a log holds, in brief.
#[derive(Clone)]
pub struct Held {
    lines: u64,
    bytes: u64,
    hasher: blake3::Hasher,
}

impl Held {
    /// Nothing.
    pub fn nothing() -> Self {
        Self { lines: 0, bytes: 0, hasher: blake3::Hasher::new() }
    }

    /// Takes the next line, without its line feed.
    pub fn take(&mut self, line: &[u8]) {
        self.lines += 1;
        self.bytes += line.len() as u64 + 1;
        self.hasher.update(line);
        self.hasher.update(b"\n");
    }

    /// How many lines there are.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Bytes of the lines with their line feeds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether this is what `peer` was given.
    ///
    /// # Errors
    ///
    /// [`BenchError::Differs`].
    pub fn check(&self, peer: &str, due: &Self) -> Result<(), BenchError> {
        if self.lines == due.lines
            && self.bytes == due.bytes
            && self.hasher.finalize() == due.hasher.finalize()
        {
            return Ok(());
        }
        Err(BenchError::Differs {
            peer: peer.to_owned(),
            found: format!("{self:?}"),
            due: format!("{due:?}"),
        })
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines, {} bytes, {}", self.lines, self.bytes, self.hasher.finalize())
    }
}

impl<'a> FromIterator<&'a Bytes> for Held {
    fn from_iter<I: IntoIterator<Item = &'a Bytes>>(lines: I) -> Self {
        let mut held = Self::nothing();
        lines.into_iter().for_each(|line| held.take(line));
        held
    }
}

/// Bytes of all files under `folder`.
///
/// # Errors
///
/// [`BenchError::Failed`].
pub fn stored_bytes(folder: &Path) -> Result<u64, BenchError> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(during("list a folder"))? {
        let entry = entry.map_err(during("list a folder"))?;
        let metadata = entry.metadata().map_err(during("look at a file"))?;
        bytes += if metadata.is_dir() { stored_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

//! Segments: sealed events in files of their own.
//!
//! Owns `segments/xx/<id>.seg`. A segment holds a contiguous run of one session's events and all
//! that is needed to open the session from it or to rebuild the index: lineage, the checkpoint at
//! its end, a directory of the texts that reach the model, the steps, and the objects that it
//! references. Three columns, each compressed on its own: envelopes, visible texts, and the rest
//! of the data; opening touches only the blocks of visible texts that are live.
//!
//! A file is written under another name, synced, and renamed: it is there whole or not at all, and
//! never changes. Whatever a file holds is checked before it is used: a damaged one gives a
//! [`SegmentError`], never a panic, and never memory by a claim alone.
//!
//! Knows events and checkpoints; knows no index, no journal and no lineage beyond what it is told.
//! Bytes: FORMAT.md § Segments.

mod encode;
mod error;
mod layout;
mod read;
pub(crate) mod references;
mod sections;
mod wire;

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use std::path::Path;

use rederive_disk::{Disk, OpenMode};

pub(crate) use encode::{SegmentInput, encode};
pub use error::SegmentError;
pub(crate) use layout::{Packer, segment_of, segment_path};
pub(crate) use read::{SegmentReader, VisibleText, restore};

use crate::ids::{SegmentId, Seq, SessionKey};
use error::io_error;

/// zstd's level where the host names none.
#[cfg(test)]
pub(crate) const LEVEL_DEFAULT: i32 = 3;

/// Where a session's log goes on below its own first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct Base {
    /// The session that was forked.
    pub(crate) key: SessionKey,
    /// The first seq that is not inherited.
    pub(crate) cut: Seq,
}

/// Whose events a segment holds: enough to rebuild the session's row.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct SegmentMeta {
    /// The session's name.
    pub(crate) session: String,
    /// The verbatim header line, without a line feed.
    pub(crate) header_line: String,
    /// The log-only types that the host registered.
    pub(crate) types: Vec<String>,
    /// The session's segment before this one, when this one was written.
    pub(crate) previous: Option<SegmentId>,
    /// Where the log goes on below the session's own first event.
    pub(crate) base: Option<Base>,
}

/// An event from which past requests are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepMark {
    pub(crate) seq: Seq,
    pub(crate) kind: StepKind,
}

impl StepMark {
    /// The event.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// What the event is.
    pub fn kind(&self) -> StepKind {
        self.kind
    }
}

/// What such an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// An `assistant/message`.
    Message,
    /// An `assistant/attempt`.
    Attempt,
    /// A `request/header`.
    Header,
    /// A `request/dispatch`.
    Dispatch,
}

/// Writes the file of the segment `id`, whose bytes are `bytes`, under `folder`; durable on return.
///
/// `folder` is there, and its own name durable. Costs one write and three syncs: the file, its
/// folder, and the folder above, which seldom has anything to sync.
///
/// # Errors
///
/// [`SegmentError::Io`]; there is then no such segment, or one that nothing refers to.
pub(crate) fn write_segment(
    disk: &dyn Disk,
    folder: &Path,
    id: SegmentId,
    bytes: &[u8],
) -> Result<(), SegmentError> {
    let shard = layout::shard(folder, id);
    let path = segment_path(folder, id);
    let temporary = shard.join(format!("{id}.tmp"));
    disk.create_folder(&shard).map_err(io_error("create", &shard))?;
    // What a crash left under this name is of no use.
    let file = disk.open(&temporary, OpenMode::Create).map_err(io_error("create", &temporary))?;
    file.set_len(bytes.len() as u64).map_err(io_error("set the length of", &temporary))?;
    file.write_at(bytes, 0).map_err(io_error("write", &temporary))?;
    file.sync().map_err(io_error("sync", &temporary))?;
    drop(file);
    disk.rename(&temporary, &path).map_err(io_error("rename", &temporary))?;
    disk.sync_folder(&shard).map_err(io_error("sync", &shard))?;
    // Each time, since whoever made the shard may have died before its name was durable; nearly
    // free where it is.
    disk.sync_folder(folder).map_err(io_error("sync", folder))
}

/// Removes the files of `ids` under `folder`; those that are gone are no error.
///
/// # Errors
///
/// [`SegmentError::Io`]; the files before the one that it names are gone.
pub(crate) fn remove_segments(disk: &dyn Disk, folder: &Path, ids: &[SegmentId]) -> Result<(), SegmentError> {
    let mut shards = std::collections::BTreeSet::new();
    for id in ids {
        let path = segment_path(folder, *id);
        match disk.remove(&path) {
            Ok(()) => {
                shards.insert(layout::shard(folder, *id));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error("remove", &path)(error)),
        }
    }
    for shard in shards {
        disk.sync_folder(&shard).map_err(io_error("sync", &shard))?;
    }
    Ok(())
}

/// What stands under a folder of segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentFiles {
    /// Segments and their files' lengths, ascending.
    pub(crate) segments: Vec<(SegmentId, u64)>,
    /// Files that are no segments: what an interrupted write left, or something foreign.
    pub(crate) others: Vec<std::path::PathBuf>,
}

/// Lists `folder`; a folder that is missing is empty.
pub(crate) fn list_segments(disk: &dyn Disk, folder: &Path) -> Result<SegmentFiles, SegmentError> {
    let mut found = SegmentFiles::default();
    if !disk.exists(folder).map_err(io_error("look for", folder))? {
        return Ok(found);
    }
    for shard in disk.list(folder).map_err(io_error("list", folder))? {
        let path = folder.join(&shard.name);
        if !shard.is_folder {
            found.others.push(path);
            continue;
        }
        for entry in disk.list(&path).map_err(io_error("list", &path))? {
            match segment_of(&entry.name) {
                Some(id) if !entry.is_folder && layout::shard(folder, id) == path => {
                    found.segments.push((id, entry.bytes));
                }
                _ => found.others.push(path.join(&entry.name)),
            }
        }
    }
    found.segments.sort_unstable();
    Ok(found)
}

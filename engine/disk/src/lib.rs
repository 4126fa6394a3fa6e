//! The file system under a store: one small trait, so that the same code runs on the operating
//! system ([`OsDisk`]) and on a simulated disk that loses power.
//!
//! Owns what differs between platforms: preallocation, the real sync of macOS, whole-file locks,
//! folder syncs. Knows paths, bytes and locks; knows no journal, no segment, no object.

mod os;
pub mod sim;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use os::OsDisk;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// A file that is made where it is missing, for reading and writing; its content is kept.
    Create,
    /// A file that must not exist yet, for reading and writing.
    CreateNew,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's name inside its folder.
    pub name: String,
    /// Whether the entry is a folder.
    pub is_folder: bool,
    /// Length in bytes; zero for a folder.
    pub bytes: u64,
}

/// A file system. Every operation may fail, and none is durable before its sync.
///
/// What the rest of the project relies on: a synced file keeps its bytes and its length; a name
/// that was created, renamed or removed is durable once its folder is synced; a rename replaces
/// its target as a whole.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Opens the file at `path`.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives `from` the name `to`, in the place of a file that is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes the file at `path`.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the folder at `path` and those above it, where they are missing.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Removes the empty folder at `path`.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes the names inside the folder at `path` durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// The entries of the folder at `path`, sorted by name.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
    /// Whether something stands at `path`.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Takes away the right to write the file at `path`, where the platform has one.
    fn set_read_only(&self, path: &Path) -> io::Result<()>;
    /// Whether paths of this disk can be handed to other libraries, which open them by themselves.
    fn is_os(&self) -> bool;
}

/// An open file of a [`Disk`]. Offsets and lengths are in bytes.
pub trait DiskFile: Debug + Send + Sync {
    /// Reads into `buffer` from `offset`; fewer bytes than asked for only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`; on an error any part of them may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes what was written durable, with the length that is needed to read it back.
    fn sync(&self) -> io::Result<()>;
    /// The file's length.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends the file; an extension reads as zeroes.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Tries to lock the whole file for this handle alone; `false` where another handle holds it.
    /// The lock ends with the handle, or with the process.
    fn try_lock(&self) -> io::Result<bool>;
    /// Tries to lock the whole file together with other sharers.
    fn try_lock_shared(&self) -> io::Result<bool>;
    /// Lets go of the handle's lock.
    fn unlock(&self) -> io::Result<()>;
}

/// Reads exactly `buffer.len()` bytes, or fails with [`io::ErrorKind::UnexpectedEof`].
pub fn read_exact_at(file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let got = file.read_at(buffer, offset)?;
    if got == buffer.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

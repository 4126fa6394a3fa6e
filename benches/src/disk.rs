//! Disks that count, and disks that do not sync.
//!
//! Owns the count of what reaches a device: a device writes pages, so each sync costs every page
//! that was touched since the one before, whole. Also the disk on which stores are made that are
//! only to be read: syncs cost nothing there.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rederive_disk::{Disk, DiskFile, Entry, OpenMode, OsDisk};

/// What a device writes at least, in bytes.
const PAGE: u64 = 4096;

/// What was written to files of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes that were handed to the operating system.
    pub bytes: u64,
    /// Bytes of whole pages that syncs brought to the device.
    pub device_bytes: u64,
    /// Syncs of files.
    pub syncs: u64,
}

/// The operating system's disk, with a count of what is written to which kind of file: the file's
/// folder inside the store, or its name at the top.
#[derive(Clone, Debug, Default)]
pub struct CountingDisk {
    counts: Arc<Mutex<BTreeMap<String, Written>>>,
    /// Syncs do nothing.
    without_syncs: bool,
}

#[derive(Debug)]
struct CountedFile {
    file: Arc<dyn DiskFile>,
    kind: String,
    disk: CountingDisk,
    touched: Mutex<HashSet<u64>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CountingDisk {
    /// A disk that has counted nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk whose syncs do nothing, for stores that are made to be measured later.
    pub fn without_syncs() -> Self {
        Self { without_syncs: true, ..Self::default() }
    }

    /// What was written so far, by kind of file.
    pub fn written(&self) -> BTreeMap<String, Written> {
        locked(&self.counts).clone()
    }

    /// What was written so far, to all files.
    pub fn total(&self) -> Written {
        locked(&self.counts).values().fold(Written::default(), |sum, one| Written {
            bytes: sum.bytes + one.bytes,
            device_bytes: sum.device_bytes + one.device_bytes,
            syncs: sum.syncs + one.syncs,
        })
    }

    fn count(&self, kind: &str, change: impl FnOnce(&mut Written)) {
        change(locked(&self.counts).entry(kind.to_owned()).or_default());
    }
}

/// `journal`, `segments`, `index.redb` …: the name below the store's folder.
fn kind_of(path: &Path) -> String {
    const FOLDERS: [&str; 3] = ["journal", "segments", "objects"];
    let names = path.iter().map(|name| name.to_string_lossy());
    let folder = names.rev().find(|name| FOLDERS.contains(&&**name));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    folder.map_or(name.unwrap_or_default(), std::borrow::Cow::into_owned)
}

impl Disk for CountingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = OsDisk.open(path, mode)?;
        let touched = Mutex::default();
        Ok(Arc::new(CountedFile { file, kind: kind_of(path), disk: self.clone(), touched }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        OsDisk.remove(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        OsDisk.create_folder(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        OsDisk.remove_folder(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        if self.without_syncs { Ok(()) } else { OsDisk.sync_folder(path) }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        OsDisk.list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        OsDisk.exists(path)
    }

    fn set_read_only(&self, path: &Path) -> io::Result<()> {
        OsDisk.set_read_only(path)
    }

    fn is_os(&self) -> bool {
        // The index must come through here as well.
        false
    }
}

impl DiskFile for CountedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.count(&self.kind, |written| written.bytes += bytes.len() as u64);
        let end = (offset + bytes.len() as u64).div_ceil(PAGE);
        locked(&self.touched).extend(offset / PAGE..end);
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        let pages = std::mem::take(&mut *locked(&self.touched)).len() as u64;
        self.disk.count(&self.kind, |written| {
            written.syncs += 1;
            written.device_bytes += pages * PAGE;
        });
        if self.disk.without_syncs { Ok(()) } else { self.file.sync() }
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        self.file.try_lock_shared()
    }

    fn unlock(&self) -> io::Result<()> {
        self.file.unlock()
    }
}

//! redb on a [`Disk`] that is not the operating system's: storage over a [`DiskFile`], and locks
//! among the handles of this process.
//!
//! Owns a table of locks for each file. A simulated disk has one process, so that no lock has to
//! leave it; the operating system's files are opened by redb itself, with the kernel's locks.

use std::collections::HashMap;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use redb::{BackendError, StorageBackend};
use rederive_disk::{Disk, DiskFile, OpenMode, read_exact_at};

type Files = HashMap<(usize, PathBuf), Weak<Locks>>;

static FILES: LazyLock<Mutex<Files>> = LazyLock::new(Mutex::default);

/// The locks of one file.
#[derive(Debug, Default)]
struct Locks {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held: Vec<Held>,
    next_handle: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Held {
    handle: u64,
    first: u64,
    last: u64,
    exclusive: bool,
}

/// One handle on a file.
#[derive(Debug)]
pub(super) struct DiskBackend {
    file: Arc<dyn DiskFile>,
    locks: Arc<Locks>,
    handle: u64,
}

impl DiskBackend {
    /// A handle on the file at `path`, which is made where it is missing.
    pub(super) fn open(disk: &Arc<dyn Disk>, path: &Path, mode: OpenMode) -> io::Result<Self> {
        let file = disk.open(path, mode)?;
        let name = (Arc::as_ptr(disk).cast::<()>() as usize, path.to_owned());
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|_, locks| locks.strong_count() > 0);
        let locks = files.get(&name).and_then(Weak::upgrade).unwrap_or_default();
        files.insert(name, Arc::downgrade(&locks));
        drop(files);
        let handle = {
            let mut state = locks.state();
            state.next_handle += 1;
            state.next_handle
        };
        Ok(Self { file, locks, handle })
    }

    fn range(&self, start: Bound<u64>, end: Bound<u64>, exclusive: bool) -> Held {
        let first = match start {
            Bound::Included(first) => first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let last = match end {
            Bound::Included(last) => last,
            Bound::Excluded(behind) => behind.saturating_sub(1),
            Bound::Unbounded => u64::MAX,
        };
        Held { handle: self.handle, first, last, exclusive }
    }

    fn release_all(&self) {
        self.locks.state().held.retain(|held| held.handle != self.handle);
        self.locks.freed.notify_all();
    }
}

impl Locks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, wanted: Held) -> bool {
        let mut state = self.state();
        let free = state.admits(&wanted);
        if free {
            state.held.push(wanted);
        }
        free
    }

    fn wait(&self, wanted: Held) {
        let mut state = self.state();
        while !state.admits(&wanted) {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.held.push(wanted);
    }
}

impl State {
    fn admits(&self, wanted: &Held) -> bool {
        !self.held.iter().any(|held| {
            held.handle != wanted.handle
                && (held.exclusive || wanted.exclusive)
                && held.first <= wanted.last
                && wanted.first <= held.last
        })
    }
}

impl Drop for DiskBackend {
    fn drop(&mut self) {
        self.release_all();
    }
}

impl StorageBackend for DiskBackend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        read_exact_at(self.file.as_ref(), out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(data, offset)
    }

    fn close(&self) -> io::Result<()> {
        self.release_all();
        Ok(())
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(self.locks.take(self.range(start, end, true)))
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(self.locks.take(self.range(start, end, false)))
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.locks.wait(self.range(start, end, true));
        Ok(())
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.locks.wait(self.range(start, end, false));
        Ok(())
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        let range = self.range(start, end, true);
        let mut state = self.locks.state();
        let at = state.held.iter().position(|held| {
            held.handle == range.handle && (held.first, held.last) == (range.first, range.last)
        });
        if let Some(at) = at {
            state.held.swap_remove(at);
        }
        drop(state);
        self.locks.freed.notify_all();
        Ok(())
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(!self.locks.state().admits(&self.range(start, end, true)))
    }
}

//! Who writes the index: one handle at a time, and nobody waits for ever.
//!
//! Owns `index.lock`, `index.holder` and `index.users`. redb has locks of its own, but those that
//! wait do so without a limit; whoever passes this gate first finds them free.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rederive_disk::{Disk, DiskFile, OpenMode};

use super::error::{IndexError, io_error};

const WAIT_MIN: Duration = Duration::from_micros(100);
const WAIT_MAX: Duration = Duration::from_millis(10);
/// How long a reader waits for a moment in which nobody writes.
const COPY_WAIT: Duration = Duration::from_millis(200);

/// The gate of one handle.
#[derive(Debug)]
pub(super) struct Gate {
    lock: Arc<dyn DiskFile>,
    holder: Arc<dyn DiskFile>,
    users: Arc<dyn DiskFile>,
    lock_path: PathBuf,
    holder_path: PathBuf,
    users_path: PathBuf,
    pid: u32,
    timeout: Duration,
    /// Whether a thread of this process is inside: the lock of a file belongs to its handle.
    inside: Mutex<bool>,
    left: Condvar,
}

/// The right to write, until it is dropped.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    gate: &'a Gate,
}

/// The path of the file that keeps company with the index at `path`.
pub(super) fn beside(path: &Path, extension: &str) -> PathBuf {
    path.with_extension(extension)
}

impl Gate {
    pub(super) fn open(
        disk: &dyn Disk,
        path: &Path,
        pid: u32,
        timeout: Duration,
    ) -> Result<Self, IndexError> {
        let open = |path: &Path| disk.open(path, OpenMode::Create).map_err(io_error("open", path));
        let (lock_path, holder_path) = (beside(path, "lock"), beside(path, "holder"));
        let users_path = beside(path, "users");
        Ok(Self {
            lock: open(&lock_path)?,
            holder: open(&holder_path)?,
            users: open(&users_path)?,
            lock_path,
            holder_path,
            users_path,
            pid,
            timeout,
            inside: Mutex::new(false),
            left: Condvar::new(),
        })
    }

    /// Waits for the gate, no longer than the timeout.
    pub(super) fn pass(&self) -> Result<Pass<'_>, IndexError> {
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut inside, waited) = self
            .left
            .wait_timeout_while(inside, self.timeout, |inside| *inside)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && *inside {
            return Err(IndexError::Busy { holder_pid: Some(self.pid) });
        }
        *inside = true;
        drop(inside);
        let pass = Pass { gate: self };
        let mut patience = self.patience();
        while !self.lock.try_lock().map_err(io_error("lock", &self.lock_path))? {
            if !patience.wait() {
                // This thread does not hold the file's lock: only its own place is given up.
                return Err(IndexError::Busy { holder_pid: self.holder() });
            }
        }
        // Not synced: it is for those who wait now.
        self.holder.write_at(&self.pid.to_le_bytes(), 0).map_err(io_error("write", &self.holder_path))?;
        Ok(pass)
    }

    /// A series of waits that add up to the timeout.
    pub(super) fn patience(&self) -> Patience {
        Patience { left: self.timeout, next: WAIT_MIN }
    }

    /// Who passed the gate last.
    pub(super) fn holder(&self) -> Option<u32> {
        let mut pid = [0; 4];
        let got = self.holder.read_at(&mut pid, 0).ok()?;
        (got == pid.len()).then(|| u32::from_le_bytes(pid)).filter(|pid| *pid != 0)
    }
}

impl Pass<'_> {
    /// Says that this handle has the index open, as others do.
    pub(super) fn enter(&self) -> Result<(), IndexError> {
        let gate = self.gate;
        let error = || io_error("lock", &gate.users_path);
        gate.users.unlock().map_err(error())?;
        // Only who holds the pass asks for more than a share, and that is this handle.
        let entered = gate.users.try_lock_shared().map_err(error())?;
        if entered { Ok(()) } else { Err(IndexError::Busy { holder_pid: gate.holder() }) }
    }

    /// Keeps every other handle out until [`Pass::enter`]; `false` where there is another.
    pub(super) fn enter_alone(&self) -> Result<bool, IndexError> {
        let gate = self.gate;
        let error = || io_error("lock", &gate.users_path);
        gate.users.unlock().map_err(error())?;
        let alone = gate.users.try_lock().map_err(error())?;
        if !alone {
            self.enter()?;
        }
        Ok(alone)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        // A handle that holds no lock loses none; the lock also ends with the handle.
        let _ = self.gate.lock.unlock();
        *self.gate.inside.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.gate.left.notify_one();
    }
}

/// Says that a handle which only reads has the index at `path` open; `None` where no writer ever
/// made the file that says it.
pub(super) fn share(
    disk: &dyn Disk,
    path: &Path,
    timeout: Duration,
) -> Result<Option<Arc<dyn DiskFile>>, IndexError> {
    let path = beside(path, "users");
    let users = match disk.open(&path, OpenMode::Read) {
        Ok(users) => users,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("open", &path)(error)),
    };
    let mut patience = Patience { left: timeout, next: WAIT_MIN };
    while !users.try_lock_shared().map_err(io_error("lock", &path))? {
        if !patience.wait() {
            return Err(IndexError::Busy { holder_pid: None });
        }
    }
    Ok(Some(users))
}

/// Runs `work` while no handle that writes the index at `path` is inside; `None` where one stays
/// longer than a moment. Changes no file.
pub(super) fn while_nobody_writes<T>(
    disk: &dyn Disk,
    path: &Path,
    work: impl FnOnce() -> Result<T, IndexError>,
) -> Result<Option<T>, IndexError> {
    let path = beside(path, "lock");
    let lock = match disk.open(&path, OpenMode::Read) {
        Ok(lock) => lock,
        // No writer ever came by.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return work().map(Some),
        Err(error) => return Err(io_error("open", &path)(error)),
    };
    let mut patience = Patience { left: COPY_WAIT, next: WAIT_MIN };
    while !lock.try_lock_shared().map_err(io_error("lock", &path))? {
        if !patience.wait() {
            return Ok(None);
        }
    }
    work().map(Some)
}

/// Lets another process come to its end.
pub(super) fn pause() {
    std::thread::sleep(WAIT_MAX);
}

/// Waits that grow, up to a sum.
#[derive(Debug)]
pub(super) struct Patience {
    left: Duration,
    next: Duration,
}

impl Patience {
    /// Waits a little; `false` where the time is used up.
    pub(super) fn wait(&mut self) -> bool {
        if self.left.is_zero() {
            return false;
        }
        let wait = self.next.min(self.left);
        std::thread::sleep(wait);
        self.left -= wait;
        self.next = (self.next * 2).min(WAIT_MAX);
        true
    }
}

//! The index: which sessions there are, which segments hold them, and who writes them.
//!
//! Owns `index.redb` and the files beside it. The index is small and can be rebuilt from the
//! segment files ([`Index::rebuild`]); it holds no event. Every change is one transaction, durable
//! on return; every row says itself whether it is right. Several processes share the file (redb's
//! `ConcurrencyMode::MultiWriter`), and none waits for another beyond its timeout.
//!
//! Knows rows and transactions; knows no journal, no fold, and of segments only their numbers.
//! Bytes: FORMAT.md § Index.

mod backend;
mod error;
mod gate;
mod rebuild;
mod rows;
mod view;
mod write;

#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::ops::{ControlFlow, RangeBounds};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redb::{Builder, ConcurrencyMode, Key, ReadableDatabase};
use rederive_disk::{Disk, DiskFile, OpenMode};

pub use error::IndexError;
pub use rows::Owner;
pub(crate) use rows::{SegmentRow, SessionRow};
pub(crate) use view::{PageCursor, View};
#[cfg(test)]
pub(crate) use write::Deleted;
pub(crate) use write::{NewSession, SWEEP_DUE, Seal, Straddling, TRIMS_DUE, WriteTx};

use crate::ids::SegmentId;
use backend::DiskBackend;
use error::{io_error, redb_error};
use gate::{Gate, Pass};
use rows::{ACTIVITY, CHILDREN, DOOMED, META, NAMES, REFERENCED, REFERENCES, SEGMENTS, SESSIONS, Table};
use view::{Order, Rows, get_row, scan_rows};

/// How an index is opened.
#[derive(Clone, Debug)]
pub(crate) struct IndexOptions {
    /// The longest wait for another writer. Default 10 s.
    pub(crate) lock_timeout: Duration,
    /// Whether every page is checked on open: after an unclean stop, and where the file is
    /// suspected. Reads the whole file.
    pub(crate) checked: bool,
    /// This process's id, for those who wait.
    pub(crate) pid: u32,
    /// Memory for pages, in bytes. Default 16 MiB.
    pub(crate) cache_bytes: usize,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            lock_timeout: Duration::from_secs(10),
            checked: false,
            pid: std::process::id(),
            cache_bytes: 16 << 20,
        }
    }
}

/// An open index.
#[derive(Debug)]
pub(crate) struct Index {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    options: IndexOptions,
    /// `None` where the handle reads only.
    gate: Option<Gate>,
    /// Says that a handle without a gate has the index open.
    _share: Option<Arc<dyn DiskFile>>,
    /// `None` only after a scrub, or what followed a full disk, could not open the file again.
    db: RwLock<Option<Db>>,
    /// Whether a write failed for want of room: redb refuses everything then, until it is opened
    /// again.
    ran_out: AtomicBool,
}

enum Db {
    ReadWrite(redb::Database),
    ReadOnly(redb::ReadOnlyDatabase),
    /// A copy in memory of a file that its last writer left in need of a repair, which a handle that
    /// only reads must not do.
    Copy(redb::Database),
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ReadWrite(_) => "ReadWrite",
            Self::ReadOnly(_) => "ReadOnly",
            Self::Copy(_) => "Copy",
        })
    }
}

/// A read transaction: the index as of one moment.
pub(crate) struct ReadTx<'a> {
    tx: redb::ReadTransaction,
    path: &'a Path,
}

impl Rows for ReadTx<'_> {
    fn get<K: Key + 'static, R: bincode::Decode<()>>(
        &self,
        table: &Table<K>,
        key: &K::SelfType<'_>,
    ) -> Result<Option<R>, IndexError> {
        get_row(self.path, table, &self.table(table)?, key)
    }

    fn scan<'k, K: Key + 'static, R: bincode::Decode<()>>(
        &self,
        table: &Table<K>,
        range: impl RangeBounds<K::SelfType<'k>> + 'k,
        order: Order,
        each: impl FnMut(K::SelfType<'_>, R) -> ControlFlow<()>,
    ) -> Result<(), IndexError> {
        scan_rows(self.path, table, &self.table(table)?, range, order, each)
    }
}

impl ReadTx<'_> {
    fn table<K: Key + 'static>(
        &self,
        table: &Table<K>,
    ) -> Result<redb::ReadOnlyTable<K, &'static [u8]>, IndexError> {
        self.tx.open_table(*table).map_err(|error| redb_error(self.path, "open a table of", error.into()))
    }
}

/// What a scrub did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scrub {
    /// The index is a fresh file, with nothing in it but its rows.
    Done,
    /// Another handle has the index open; nothing was done. Scrub again when it is closed.
    Shared,
}

impl Index {
    /// Opens the index at `path`, which must be there, for reading and writing.
    ///
    /// # Errors
    ///
    /// [`IndexError::Missing`], [`IndexError::Busy`], [`IndexError::Damaged`],
    /// [`IndexError::Version`], [`IndexError::Io`].
    #[cfg(test)]
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        path: &Path,
        options: &IndexOptions,
    ) -> Result<Self, IndexError> {
        if !disk.exists(path).map_err(io_error("look for", path))? {
            return Err(IndexError::Missing { path: path.to_owned() });
        }
        Self::open_or_create(disk, path, options)
    }

    /// Opens the index at `path`, and makes it where it is missing: whole or not at all.
    ///
    /// # Errors
    ///
    /// As [`Index::open`], but [`IndexError::Missing`].
    pub(crate) fn create(
        disk: &Arc<dyn Disk>,
        path: &Path,
        options: &IndexOptions,
    ) -> Result<Self, IndexError> {
        Self::open_or_create(disk, path, options)
    }

    fn open_or_create(disk: &Arc<dyn Disk>, path: &Path, options: &IndexOptions) -> Result<Self, IndexError> {
        let gate = Gate::open(disk.as_ref(), path, options.pid, options.lock_timeout)?;
        let pass = gate.pass()?;
        if !disk.exists(path).map_err(io_error("look for", path))? {
            // redb's own making of a file is torn by a loss of power.
            let fresh = fresh_db(disk, path, options)?;
            begin(path, &fresh, &pass, &gate, |tx| {
                create_tables(tx)?;
                tx.put(&META, &write::FORMAT, &write::FORMAT_VERSION).map(|()| true)
            })?;
            drop(fresh);
            put_in_place(disk.as_ref(), path)?;
        }
        let file = disk.open(path, OpenMode::Read).map_err(io_error("open", path))?;
        if file.is_empty().map_err(io_error("read the length of", path))? {
            // redb would take it for a new one, and every session for gone.
            return Err(damaged(path, "the file is empty"));
        }
        // Where another handle is at work, the file was checked when the first one came.
        let checked = pass.enter_alone()? && (options.checked || is_small(disk.as_ref(), path)?);
        let db = open_db(disk, path, options, checked)?;
        pass.enter()?;
        // Before anything is committed to it: whoever made the file, or renamed it, may have been
        // killed before its name was durable.
        sync_folder_of(disk.as_ref(), path)?;
        begin(path, &db, &pass, &gate, |tx| match tx.meta(write::FORMAT)? {
            Some(write::FORMAT_VERSION) => {
                let noted = gate::noted_generation(disk.as_ref(), path);
                is_not_before(path, noted, tx.meta(write::GENERATION)?).map(|()| false)
            }
            Some(found) => Err(IndexError::Version {
                path: path.to_owned(),
                found: u32::try_from(found).unwrap_or(u32::MAX),
                supported: write::FORMAT_VERSION as u32,
            }),
            None => Err(damaged(path, "it does not name its format")),
        })?;
        drop(pass);
        let db = RwLock::new(Some(Db::ReadWrite(db)));
        Ok(Self {
            disk: Arc::clone(disk),
            path: path.to_owned(),
            options: options.clone(),
            gate: Some(gate),
            _share: None,
            db,
            ran_out: AtomicBool::new(false),
        })
    }

    /// Opens the index at `path` for reading only; changes no file.
    ///
    /// # Errors
    ///
    /// As [`Index::open`].
    ///
    /// # Cost
    ///
    /// A file under [`CHECKED_BYTES_MAX`] is read whole and checked, unless a writer holds it. An
    /// index whose last writer died and that nobody has opened for writing since is read into
    /// memory and repaired there; the handle then shows it as of that moment.
    pub(crate) fn open_read_only(
        disk: &Arc<dyn Disk>,
        path: &Path,
        options: &IndexOptions,
    ) -> Result<Self, IndexError> {
        let missing = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => IndexError::Missing { path: path.to_owned() },
            _ => io_error("open", path)(error),
        };
        disk.open(path, OpenMode::Read).map_err(missing)?;
        let share = gate::share(disk.as_ref(), path, options.lock_timeout)?;
        // Before the index is looked at: a commit may come meanwhile.
        let noted = gate::noted_generation(disk.as_ref(), path);
        let copy = if is_small(disk.as_ref(), path)? { checked_copy(disk, path)? } else { None };
        let db = match open_db_read_only(disk, path, options)? {
            Some(db) => Db::ReadOnly(db),
            None => match copy {
                Some(copy) => Db::Copy(copy),
                None => Db::Copy(checked_copy(disk, path)?.ok_or(IndexError::Busy { holder_pid: None })?),
            },
        };
        let index = Self {
            disk: Arc::clone(disk),
            path: path.to_owned(),
            options: options.clone(),
            gate: None,
            _share: share,
            db: RwLock::new(Some(db)),
            ran_out: AtomicBool::new(false),
        };
        let found = index.read(|view| view.meta(write::GENERATION))?;
        is_not_before(path, noted, found)?;
        Ok(index)
    }

    /// Sees again what other processes write, where the handle is on a copy in memory and a writer
    /// has repaired the file since. Cheap where it is not.
    pub(crate) fn refresh(&self) -> Result<(), IndexError> {
        let is_copy = |db: &Option<Db>| matches!(db, Some(Db::Copy(_)));
        if !is_copy(&self.db.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        if let Some(db) = open_db_read_only(&self.disk, &self.path, &self.options)? {
            *self.db.write().unwrap_or_else(PoisonError::into_inner) = Some(Db::ReadOnly(db));
        }
        Ok(())
    }

    /// Checks every page and row of the index at `path` without changing a file; `false` where a
    /// writer kept it from being looked at.
    ///
    /// # Errors
    ///
    /// As [`Index::check`].
    pub(crate) fn inspect(disk: &Arc<dyn Disk>, path: &Path) -> Result<bool, IndexError> {
        let noted = gate::noted_generation(disk.as_ref(), path);
        let Some(copy) = checked_copy(disk, path)? else { return Ok(false) };
        guarded(path, || {
            let tx = copy.begin_read().map_err(|error| redb_error(path, "read", error.into()))?;
            let view = ReadTx { tx, path };
            is_not_before(path, noted, view.meta(write::GENERATION)?)?;
            view.check_rows()
        })?;
        Ok(true)
    }

    /// Runs `ask` on the index as of now. `ask` must not use this handle but through its
    /// transaction; it never waits for a writer.
    pub(crate) fn read<T>(
        &self,
        ask: impl FnOnce(&ReadTx<'_>) -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        self.reopen_where_due()?;
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
        guarded(&self.path, || {
            let begun = match db.as_ref() {
                Some(Db::ReadWrite(db) | Db::Copy(db)) => db.begin_read(),
                Some(Db::ReadOnly(db)) => db.begin_read(),
                None => return Err(self.closed()),
            };
            let tx = begun.map_err(|error| redb_error(&self.path, "read", error.into()))?;
            ask(&ReadTx { tx, path: &self.path })
        })
    }

    /// Runs `change` in a write transaction, and commits it unless it fails; durable on return.
    ///
    /// `change` must not use this handle but through its transaction. Costs two syncs.
    ///
    /// # Errors
    ///
    /// [`IndexError::Busy`] where another writer holds the index beyond the timeout,
    /// [`IndexError::ReadOnly`], and what `change` fails with: then nothing has changed. After an
    /// [`IndexError::Io`] of the commit itself the change may be there or not. Where there was no
    /// room, a later call works again once there is; after any other such error the handle refuses
    /// all further work: open the index anew.
    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&WriteTx<'_>) -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        let gate = self.gate()?;
        self.reopen_where_due()?;
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Db::ReadWrite(db)) = db.as_ref() else { return Err(self.closed()) };
        let pass = gate.pass()?;
        let mut outcome = None;
        let begun = begin(&self.path, db, &pass, gate, |tx| {
            let changed = change(tx)?;
            let generation = tx.meta(write::GENERATION)?.unwrap_or(0).saturating_add(1);
            tx.put(&META, &write::GENERATION, &generation)?;
            outcome = Some((changed, generation));
            Ok(true)
        });
        if let Err(IndexError::Io { source, .. }) = &begun
            && matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
        {
            // Nothing that was to be durable was lost by this: not so after a failed sync.
            self.ran_out.store(true, Ordering::Release);
        }
        begun?;
        let (changed, generation) = outcome.ok_or_else(|| self.closed())?;
        gate.note_generation(generation);
        Ok(changed)
    }

    /// Opens the file again after a write that found no room.
    fn reopen_where_due(&self) -> Result<(), IndexError> {
        let Some(gate) = self.gate.as_ref().filter(|_| self.ran_out.load(Ordering::Acquire)) else {
            return Ok(());
        };
        let mut slot = self.db.write().unwrap_or_else(PoisonError::into_inner);
        if !self.ran_out.load(Ordering::Acquire) {
            return Ok(()); // another thread was faster
        }
        let _pass = gate.pass()?;
        guarded(&self.path, || {
            *slot = None;
            Ok(())
        })?;
        *slot = Some(Db::ReadWrite(open_db(&self.disk, &self.path, &self.options, false)?));
        self.ran_out.store(false, Ordering::Release);
        Ok(())
    }

    /// Checks every page and every row. Reads the whole file; writers wait meanwhile.
    ///
    /// # Errors
    ///
    /// [`IndexError::Damaged`] with the first thing that is wrong; a page that is wrong closes the
    /// handle, since what it holds is not to be trusted.
    pub(crate) fn check(&self) -> Result<(), IndexError> {
        if let Some(gate) = &self.gate {
            let mut slot = self.db.write().unwrap_or_else(PoisonError::into_inner);
            let _pass = gate.pass()?;
            let sound = guarded(&self.path, || match slot.as_mut() {
                Some(Db::ReadWrite(db)) => {
                    db.check_integrity().map_err(|error| redb_error(&self.path, "check", error.into()))
                }
                _ => Ok(true),
            });
            match sound {
                Ok(true) => {}
                Ok(false) => return Err(damaged(&self.path, "pages did not check; they were repaired")),
                Err(error) => {
                    let _ = guarded(&self.path, || {
                        *slot = None;
                        Ok(())
                    });
                    return Err(error);
                }
            }
        }
        self.read(|tx| tx.check_rows())
    }

    /// Removes the files of doomed segments under `folder`, and forgets them; says how many.
    ///
    /// Readers that still have such a file open keep it on Unix; one that opens it later finds it
    /// missing, and looks the segment up again.
    pub(crate) fn sweep_doomed(&self, folder: &Path) -> Result<usize, IndexError> {
        let doomed = self.read(|tx| tx.doomed())?;
        if doomed.is_empty() {
            return Ok(0);
        }
        crate::segment::remove_segments(self.disk.as_ref(), folder, &doomed)?;
        self.write(|tx| tx.forget_doomed(&doomed))?;
        Ok(doomed.len())
    }

    /// Reserves `count` segment numbers in a transaction of their own.
    pub(crate) fn reserve_segments(&self, count: u64) -> Result<SegmentId, IndexError> {
        self.write(|tx| tx.reserve_segments(count))
    }

    /// Makes sure that no byte of a deleted row is left in the file: copies all rows into a fresh
    /// file, which takes the place of this one.
    ///
    /// Costs a copy of the index. Compacting does not do: redb leaves the old bytes in freed pages
    /// and in the slack of pages in use.
    ///
    /// # Errors
    ///
    /// As [`Index::write`]; the index is as before, unless the fresh file cannot be opened, or its
    /// name not be synced: then every later call fails, and the store is to be opened anew.
    pub(crate) fn scrub(&self) -> Result<Scrub, IndexError> {
        let gate = self.gate()?;
        let mut slot = self.db.write().unwrap_or_else(PoisonError::into_inner);
        let pass = gate.pass()?;
        if !pass.enter_alone()? {
            return Ok(Scrub::Shared);
        }
        let outcome = self.rewrite(&mut slot, gate, &pass);
        pass.enter()?;
        outcome.map(|()| Scrub::Done)
    }

    /// The work of [`Index::scrub`], while no other handle is there.
    fn rewrite(&self, slot: &mut Option<Db>, gate: &Gate, pass: &Pass<'_>) -> Result<(), IndexError> {
        let fresh = fresh_db(&self.disk, &self.path, &self.options)?;
        let Some(Db::ReadWrite(old)) = slot.as_ref() else { return Err(self.closed()) };
        guarded(&self.path, || {
            let from = old.begin_read().map_err(|error| redb_error(&self.path, "read", error.into()))?;
            let from = ReadTx { tx: from, path: &self.path };
            begin(&self.path, &fresh, pass, gate, |to| {
                copy_table(&from, to, &META)?;
                copy_table(&from, to, &NAMES)?;
                copy_table(&from, to, &SESSIONS)?;
                copy_table(&from, to, &ACTIVITY)?;
                copy_table(&from, to, &SEGMENTS)?;
                copy_table(&from, to, &CHILDREN)?;
                copy_table(&from, to, &REFERENCES)?;
                copy_table(&from, to, &REFERENCED)?;
                copy_table(&from, to, &DOOMED)?;
                Ok(true)
            })
        })?;
        drop(fresh);
        // Closed before the rename, which some platforms refuse for an open file.
        *slot = None;
        let placed = put_in_place(self.disk.as_ref(), &self.path);
        *slot = Some(Db::ReadWrite(open_db(&self.disk, &self.path, &self.options, false)?));
        placed?;
        let synced = sync_folder_of(self.disk.as_ref(), &self.path);
        if synced.is_err() {
            // What is committed to a file whose name may be lost is not durable.
            *slot = None;
        }
        synced
    }

    fn gate(&self) -> Result<&Gate, IndexError> {
        self.gate.as_ref().ok_or_else(|| IndexError::ReadOnly { path: self.path.clone() })
    }

    fn closed(&self) -> IndexError {
        let source = std::io::Error::other("the index was closed by an earlier failure");
        IndexError::Io { path: self.path.clone(), operation: "use", source }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        // redb writes the file when it is closed, under locks that others wait for without a limit.
        let _pass = self.gate.as_ref().and_then(|gate| gate.pass().ok());
        let db = self.db.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let _ = guarded(&self.path, || {
            drop(db);
            Ok(())
        });
    }
}

fn builder(options: &IndexOptions, checked: bool) -> Builder {
    let mut builder = Builder::new();
    builder
        .set_concurrency_mode(ConcurrencyMode::MultiWriter)
        .set_cache_size(options.cache_bytes)
        .set_check_integrity_on_open(checked);
    builder
}

fn open_db(
    disk: &Arc<dyn Disk>,
    path: &Path,
    options: &IndexOptions,
    checked: bool,
) -> Result<redb::Database, IndexError> {
    guarded(path, || {
        let builder = builder(options, checked);
        let opened = if disk.is_os() {
            builder.create(path)
        } else {
            let backend = DiskBackend::open(disk, path, OpenMode::Create).map_err(io_error("open", path))?;
            builder.create_with_backend(backend)
        };
        opened.map_err(|error| redb_error(path, "open", error.into()))
    })
}

/// One flipped bit of redb's header makes an earlier commit the last one, with every checksum right:
/// sessions and segments that were committed since would be gone without a word.
fn is_not_before(path: &Path, noted: Option<u64>, found: Option<u64>) -> Result<(), IndexError> {
    match noted {
        Some(noted) if found.unwrap_or(0) < noted => {
            Err(damaged(path, "it has gone back to an earlier commit"))
        }
        _ => Ok(()),
    }
}

/// Opens the index for reading; `None` where its last writer left it in need of a repair.
fn open_db_read_only(
    disk: &Arc<dyn Disk>,
    path: &Path,
    options: &IndexOptions,
) -> Result<Option<redb::ReadOnlyDatabase>, IndexError> {
    guarded(path, || {
        let builder = builder(options, false);
        let opened = if disk.is_os() {
            builder.open_read_only(path)
        } else {
            let backend = DiskBackend::open(disk, path, OpenMode::Read).map_err(io_error("open", path))?;
            builder.open_read_only_with_backend(backend)
        };
        match opened {
            Ok(db) => Ok(Some(db)),
            Err(redb::DatabaseError::RepairAborted) => Ok(None),
            Err(error) => Err(redb_error(path, "open", error.into())),
        }
    })
}

/// An index of at most so many bytes is checked whenever the first handle opens it.
pub(crate) const CHECKED_BYTES_MAX: u64 = 4 << 20;

fn is_small(disk: &dyn Disk, path: &Path) -> Result<bool, IndexError> {
    match disk.open(path, OpenMode::Read).and_then(|file| file.len()) {
        Ok(bytes) => Ok(bytes <= CHECKED_BYTES_MAX),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(io_error("open", path)(error)),
    }
}

/// How often a copy is taken again, where it does not read: a process that closes the index
/// meanwhile writes it without passing the gate.
const COPY_ATTEMPTS: u32 = 4;

/// The index at `path` in memory, every page of it checked and what a kill left undone finished;
/// `None` where a writer holds the index.
fn checked_copy(disk: &Arc<dyn Disk>, path: &Path) -> Result<Option<redb::Database>, IndexError> {
    let mut attempt = 1;
    loop {
        let Some(bytes) = gate::while_nobody_writes(disk.as_ref(), path, || {
            let file = disk.open(path, OpenMode::Read).map_err(io_error("open", path))?;
            let len = file.len().map_err(io_error("read the length of", path))?;
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
            let got = file.read_at(&mut bytes, 0).map_err(io_error("read", path))?;
            bytes.truncate(got);
            Ok(bytes)
        })?
        else {
            return Ok(None);
        };
        if bytes.is_empty() {
            // redb would take it for a new one, and every session for gone.
            return Err(damaged(path, "the file is empty"));
        }
        let opened = guarded(path, || {
            let memory = redb::backends::InMemoryBackend::new();
            let filled = redb::StorageBackend::set_len(&memory, bytes.len() as u64)
                .and_then(|()| redb::StorageBackend::write(&memory, 0, &bytes));
            filled.map_err(|error| damaged(path, &error.to_string()))?;
            let opened = Builder::new().set_check_integrity_on_open(true).create_with_backend(memory);
            opened.map_err(|error| match redb_error(path, "open", error.into()) {
                // Memory does not fail.
                IndexError::Io { source, .. } => damaged(path, &source.to_string()),
                error => error,
            })
        });
        match opened {
            Err(IndexError::Damaged { .. }) if attempt < COPY_ATTEMPTS => {
                attempt += 1;
                gate::pause();
            }
            opened => return opened.map(Some),
        }
    }
}

/// A new file that is to take the place of the index at `path`.
fn fresh_db(disk: &Arc<dyn Disk>, path: &Path, options: &IndexOptions) -> Result<redb::Database, IndexError> {
    let fresh = gate::beside(path, "fresh");
    // What an interrupted attempt left.
    match disk.remove(&fresh) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(io_error("remove", &fresh)(error));
        }
        _ => {}
    }
    open_db(disk, &fresh, options, false)
}

/// Gives the file of [`fresh_db`], which was committed and closed, the name of the index; durable
/// once the folder is synced.
fn put_in_place(disk: &dyn Disk, path: &Path) -> Result<(), IndexError> {
    let fresh = gate::beside(path, "fresh");
    disk.rename(&fresh, path).map_err(io_error("rename", &fresh))
}

/// Runs `change` in a write transaction of `db`, and commits where it says so.
fn begin(
    path: &Path,
    db: &redb::Database,
    _pass: &Pass<'_>,
    gate: &Gate,
    change: impl FnOnce(&WriteTx<'_>) -> Result<bool, IndexError>,
) -> Result<(), IndexError> {
    guarded(path, || {
        let mut patience = gate.patience();
        let tx = loop {
            match db.try_begin_write() {
                Ok(tx) => break tx,
                // A peer opens the file, or checks it.
                Err(redb::TransactionError::WouldBlock) if patience.wait() => {}
                Err(redb::TransactionError::WouldBlock) => {
                    return Err(IndexError::Busy { holder_pid: gate.holder() });
                }
                Err(error) => return Err(redb_error(path, "write", error.into())),
            }
        };
        let tx = WriteTx { tx, path };
        match change(&tx) {
            Ok(true) => tx.tx.commit().map_err(|error| redb_error(path, "commit", error.into())),
            outcome => {
                tx.tx.abort().map_err(|error| redb_error(path, "abort", error.into()))?;
                outcome.map(|_| ())
            }
        }
    })
}

fn create_tables(tx: &WriteTx<'_>) -> Result<(), IndexError> {
    tx.table(&META)?;
    tx.table(&NAMES)?;
    tx.table(&SESSIONS)?;
    tx.table(&ACTIVITY)?;
    tx.table(&SEGMENTS)?;
    tx.table(&CHILDREN)?;
    tx.table(&REFERENCES)?;
    tx.table(&REFERENCED)?;
    tx.table(&DOOMED)?;
    Ok(())
}

fn copy_table<K: Key + 'static>(
    from: &ReadTx<'_>,
    to: &WriteTx<'_>,
    table: &Table<K>,
) -> Result<(), IndexError> {
    use redb::ReadableTable;
    let error = |error: redb::StorageError| redb_error(from.path, "copy", error.into());
    let (source, mut target) = (from.table(table)?, to.table(table)?);
    for row in source.iter().map_err(error)? {
        let (key, value) = row.map_err(error)?;
        target.insert(key.value(), value.value()).map_err(error)?;
    }
    Ok(())
}

fn sync_folder_of(disk: &dyn Disk, path: &Path) -> Result<(), IndexError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    disk.sync_folder(folder).map_err(io_error("sync", folder))
}

fn damaged(path: &Path, what: &str) -> IndexError {
    IndexError::Damaged { path: path.to_owned(), table: None, key: None, what: what.to_owned() }
}

/// Runs `work`; a panic of redb, which trusts its file, is damage.
fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T, IndexError>) -> Result<T, IndexError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
        Err(damaged(path, text))
    })
}

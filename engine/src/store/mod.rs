//! A store: one folder that holds the logs of many sessions.
//!
//! Owns opening, the sessions that are live in this process, and who may write which. The parts:
//! [`session`] appends, [`seal`] moves tails into segments, [`load`] and [`reader`] read them back,
//! [`catalog`] is the only one that knows the index's tables, [`recover`] takes over from the dead,
//! [`import`], [`fork`] and [`delete`] do what they are called.

mod catalog;
mod closers;
mod delete;
mod doctor;
mod error;
mod follow;
mod fork;
mod import;
mod list;
mod load;
mod objects;
mod options;
mod payload;
mod reader;
mod recover;
mod seal;
mod session;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rederive_disk::{Disk, OpenMode, OsDisk};

pub use delete::{Deleted, Swept};
pub use doctor::{Examination, Finding, Loss, Repaired};
pub use error::{AppendError, ForkError, StoreError};
pub use follow::Follower;
pub use import::{ImportError, Imported};
pub use list::{BadListPlace, ListPlace, SessionInfo, SessionPage, SessionState, StoreStats};
pub use options::{Clock, StoreOptions};
pub use reader::{Events, Reader};
pub use session::Session;

use crate::event::HeaderLine;
use crate::ids::{SessionId, SessionKey};
use crate::index::{Index, IndexError, IndexOptions};
use crate::journal::{JournalOptions, JournalSet, SaltSource};
use error::io_error;
use session::LiveSession;

/// The format of a store's folder.
pub const STORE_FORMAT: u32 = 1;
const FORMAT_FILE: &str = "FORMAT";
const JOURNAL_FOLDER: &str = "journal";
/// Around the random part of the name under which the format file is written.
const TEMPORARY_START: &str = "FORMAT.";
const TEMPORARY_END: &str = ".tmp";

/// One folder that holds the logs of many sessions, shared by any number of processes.
///
/// Cloning gives another handle of the same store.
///
/// ```
/// use rederive_engine::{NewSession, Store};
///
/// # let folder = tempfile::tempdir()?;
/// let store = Store::create(folder.path().join("store"))?;
/// store.create_session(NewSession::new("chat-1"))?.close()?;
/// assert_eq!(store.sessions(None, 10)?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<StoreInner>,
}

/// What every handle of a store shares.
#[derive(Debug)]
pub(crate) struct StoreInner {
    // The thread ends before what it works on.
    pub(crate) sealer: seal::Sealer,
    pub(crate) core: Arc<Shared>,
}

/// What the sealing thread shares with the handles.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) folder: PathBuf,
    pub(crate) segments: PathBuf,
    pub(crate) journals: PathBuf,
    pub(crate) options: StoreOptions,
    pub(crate) index: Index,
    /// `None` where the store is open for reading.
    journal: Option<JournalSet>,
    live: Mutex<HashMap<SessionKey, Arc<LiveSession>>>,
    /// Segment ids that this process may use.
    pub(crate) ids: Mutex<std::ops::Range<u64>>,
}

/// A session that is to be created.
#[derive(Clone, Debug)]
pub struct NewSession {
    id: String,
    cwd: Option<String>,
    created_at_ms: Option<u64>,
}

impl NewSession {
    /// A session named `id`, of 1 to 512 bytes.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), cwd: None, created_at_ms: None }
    }

    /// The folder that the session works in.
    #[must_use]
    pub fn cwd(mut self, folder: impl Into<String>) -> Self {
        self.cwd = Some(folder.into());
        self
    }

    /// When the session was created, in milliseconds since the epoch. Default: now.
    #[must_use]
    pub fn created_at_ms(mut self, time_ms: u64) -> Self {
        self.created_at_ms = Some(time_ms);
        self
    }

    fn header_line(
        &self,
        now_ms: u64,
        parent: Option<&str>,
        is_seeded: bool,
    ) -> Result<HeaderLine, StoreError> {
        let id = SessionId::new(&self.id).ok_or(StoreError::BadName { bytes: self.id.len() })?;
        let created_at_ms = self.created_at_ms.unwrap_or(now_ms);
        Ok(HeaderLine::build(&id, created_at_ms, self.cwd.as_deref(), parent, is_seeded))
    }
}

impl Store {
    /// Makes a store in the folder at `path`, which is made where it is missing and must be empty.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`] where the folder is not empty; [`StoreError::Io`],
    /// [`StoreError::Index`], [`StoreError::Journal`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::create_with(path, StoreOptions::default())
    }

    /// As [`Store::create`], with options.
    pub fn create_with(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self, StoreError> {
        Self::create_on(Arc::new(OsDisk), path, options)
    }

    /// As [`Store::create`], on a disk of one's own.
    #[doc(hidden)]
    pub fn create_on(
        disk: Arc<dyn Disk>,
        path: impl AsRef<Path>,
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        let folder = path.as_ref();
        make_folder(&disk, folder)?;
        Self::open_on(disk, folder, options)
    }
    /// Opens the store at `path` for reading and writing.
    ///
    /// What dead processes left in their journals is recovered first. A journal that is damaged is
    /// left as it is, and keeps only the sessions in it from being opened
    /// ([`SessionInfo::state`](crate::SessionInfo::state) shows them); the others are as usable as
    /// ever.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoStore`], [`StoreError::Version`]; [`StoreError::Index`] where the index is
    /// damaged; [`StoreError::Journal`] where no journal can be written; [`StoreError::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, StoreOptions::default())
    }

    /// As [`Store::open`], with options.
    pub fn open_with(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self, StoreError> {
        Self::open_on(Arc::new(OsDisk), path, options)
    }

    /// Opens the store at `path`, or makes one where the folder is missing or empty.
    pub fn open_or_create_with(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self, StoreError> {
        match Self::open_with(&path, options.clone()) {
            Err(StoreError::NoStore { .. }) => match Self::create_with(&path, options.clone()) {
                // Another process was faster.
                Err(StoreError::Exists { .. }) => Self::open_with(path, options),
                created => created,
            },
            opened => opened,
        }
    }

    /// As [`Store::open`], on a disk of one's own.
    #[doc(hidden)]
    pub fn open_on(
        disk: Arc<dyn Disk>,
        path: impl AsRef<Path>,
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        let folder = path.as_ref();
        check_format(disk.as_ref(), folder)?;
        let journals = folder.join(JOURNAL_FOLDER);
        let journal_options = JournalOptions { switch_bytes: options.journal_switch_bytes };
        let unclean = recover::is_unclean(&disk, &journals)?;
        let index = folder.join("index.redb");
        refuse_lost_index(&disk, folder, &index)?;
        let index = Index::create(&disk, &index, &index_options(&options, unclean))?;
        let mut core = Shared {
            segments: folder.join("segments"),
            journals,
            folder: folder.to_owned(),
            disk,
            options,
            index,
            journal: None,
            live: Mutex::default(),
            ids: Mutex::new(0..0),
        };
        // First, so that a slot whose owner died is free for this process.
        let taken = recover::at_open(&core)?;
        core.journal = Some(JournalSet::acquire_empty(
            Arc::clone(&core.disk),
            &core.journals,
            journal_options,
            salts(),
            std::process::id(),
            &taken,
        )?);
        let core = Arc::new(core);
        let sealer =
            seal::Sealer::start(Arc::clone(&core)).map_err(io_error("start a thread for", folder))?;
        Ok(Self { inner: Arc::new(StoreInner { sealer, core }) })
    }

    /// Opens the store at `path` for reading. Writes nothing, takes no journal, and works on a
    /// folder that cannot be written.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_read_only_with(path, StoreOptions::default())
    }

    /// As [`Store::open_read_only`], with options.
    pub fn open_read_only_with(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self, StoreError> {
        let (disk, folder): (Arc<dyn Disk>, _) = (Arc::new(OsDisk), path.as_ref());
        check_format(disk.as_ref(), folder)?;
        let index =
            Index::open_read_only(&disk, &folder.join("index.redb"), &index_options(&options, false))?;
        let core = Arc::new(Shared {
            segments: folder.join("segments"),
            journals: folder.join(JOURNAL_FOLDER),
            folder: folder.to_owned(),
            disk,
            options,
            index,
            journal: None,
            live: Mutex::default(),
            ids: Mutex::new(0..0),
        });
        Ok(Self { inner: Arc::new(StoreInner { sealer: seal::Sealer::none(), core }) })
    }

    /// The store's folder.
    pub fn folder(&self) -> &Path {
        &self.inner.core.folder
    }

    /// Creates a session and opens it for writing.
    ///
    /// # Errors
    ///
    /// [`StoreError::SessionExists`], [`StoreError::BadName`], [`StoreError::ReadOnly`],
    /// [`StoreError::Index`].
    pub fn create_session(&self, new: NewSession) -> Result<Session, StoreError> {
        let core = &self.inner.core;
        core.check_writable()?;
        let header_line = new.header_line((core.options.clock)(), None, false)?;
        let key = catalog::create(core, &header_line)?;
        Ok(self.adopt(key, header_line, core.options.types.clone(), crate::Fold::default()))
    }

    /// Opens a session for writing.
    ///
    /// Where a crash left a turn open, its closers are appended as one batch; where the log does not
    /// end in a marker, `session/end-seed` is appended, so that the log says where one process ended
    /// and the next began.
    ///
    /// # Cost
    ///
    /// The texts of the live nodes, and two commits of the index, one of them on closing.
    ///
    /// # Errors
    ///
    /// - [`StoreError::NoSession`].
    /// - [`StoreError::SessionBusy`]: another process, or another handle here, writes the session.
    /// - [`StoreError::Segment`], [`StoreError::Index`]: what is stored cannot be read.
    pub fn open_session(&self, id: &SessionId) -> Result<Session, StoreError> {
        let core = &self.inner.core;
        core.check_writable()?;
        let (key, row) = catalog::take_ownership(core, id)?;
        let loaded = row.header_line().and_then(|header| Ok((header, core.load(key, row.sealed_to)?)));
        let (header_line, fold) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                let _ = catalog::let_go(core, key);
                return Err(error);
            }
        };
        let mut types = core.options.types.clone();
        types.merge(&row.registry());
        let mut session = self.adopt(key, header_line, types, fold);
        session.resume()?;
        Ok(session)
    }

    /// Takes a snapshot of a session for reading: what is sealed and, behind it, what its writer has
    /// in its journal, in this process or another.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSession`]; [`StoreError::Segment`], [`StoreError::Index`],
    /// [`StoreError::Journal`] where what is stored cannot be read.
    pub fn read_session(&self, id: &SessionId) -> Result<Reader, StoreError> {
        let core = &self.inner.core;
        let (key, _) = catalog::find(core, id)?;
        if let Some(live) = core.live(key) {
            return Ok(Reader::of_live(&self.inner, &live));
        }
        recover::read_with_journal(core, id)
    }

    fn adopt(
        &self,
        key: SessionKey,
        header_line: HeaderLine,
        types: crate::TypeRegistry,
        fold: crate::Fold,
    ) -> Session {
        let live = Arc::new(LiveSession::new(key, header_line, types, fold));
        self.inner.core.lock_live().insert(key, Arc::clone(&live));
        Session { store: Arc::clone(&self.inner), live, closed: false }
    }

    /// Seals every session that has an unsealed tail, and waits for it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Seal`]; nothing is lost.
    pub fn seal_all(&self) -> Result<(), StoreError> {
        self.inner.core.check_writable()?;
        self.inner.sealer.seal_all()
    }

    /// Closes the store: waits for everything that is being sealed. Sessions that are still open
    /// keep it open.
    ///
    /// # Errors
    ///
    /// [`StoreError::Seal`]; nothing is lost.
    pub fn close(self) -> Result<(), StoreError> {
        if self.inner.core.journal.is_some() {
            self.inner.sealer.seal_all()?;
        }
        Ok(())
    }
}

impl Shared {
    /// The journal of this process.
    ///
    /// Sessions exist only where the store is open for writing, and they alone ask.
    pub(crate) fn journal(&self) -> &JournalSet {
        #[expect(clippy::expect_used, reason = "a session is made by check_writable callers alone")]
        self.journal.as_ref().expect("sessions exist only in a store that is open for writing")
    }

    pub(crate) fn journal_stats(&self) -> Option<crate::JournalStats> {
        self.journal.as_ref().map(JournalSet::stats)
    }

    pub(crate) fn check_writable(&self) -> Result<(), StoreError> {
        if self.journal.is_some() { Ok(()) } else { Err(StoreError::ReadOnly { path: self.folder.clone() }) }
    }

    pub(crate) fn lock_live(&self) -> MutexGuard<'_, HashMap<SessionKey, Arc<LiveSession>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn live(&self, key: SessionKey) -> Option<Arc<LiveSession>> {
        self.lock_live().get(&key).cloned()
    }

    pub(crate) fn forget(&self, key: SessionKey) {
        self.lock_live().remove(&key);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(journal) = &self.journal
            && let Err(error) = journal.finish()
        {
            tracing::error!(%error, "the journal was not closed; the next open recovers it");
        }
    }
}

fn index_options(options: &StoreOptions, checked: bool) -> IndexOptions {
    IndexOptions { lock_timeout: options.lock_timeout, checked, ..IndexOptions::default() }
}

/// Whether the entries are those of a store whose creation did not come to its end.
fn is_unfinished(entries: &[rederive_disk::Entry]) -> bool {
    entries.iter().all(|entry| {
        let is_folder = matches!(entry.name.as_str(), "segments" | JOURNAL_FOLDER);
        is_folder || (entry.name.starts_with(TEMPORARY_START) && entry.name.ends_with(TEMPORARY_END))
    })
}

/// Makes the folder of a store that has no file yet.
pub(crate) fn make_folder(disk: &Arc<dyn Disk>, folder: &Path) -> Result<(), StoreError> {
    disk.create_folder(folder).map_err(io_error("create", folder))?;
    let entries = disk.list(folder).map_err(io_error("list", folder))?;
    if !entries.is_empty() && !is_unfinished(&entries) {
        return Err(StoreError::Exists { path: folder.to_owned() });
    }
    for name in ["segments", JOURNAL_FOLDER] {
        let path = folder.join(name);
        disk.create_folder(&path).map_err(io_error("create", &path))?;
    }
    // The name comes last: a folder without it is an unfinished store.
    let path = folder.join(FORMAT_FILE);
    let text = format!("rederive store {STORE_FORMAT}\n");
    // A name of its own: another process may be making the same store.
    let temporary = folder.join(format!("{TEMPORARY_START}{:016x}{TEMPORARY_END}", salts()()));
    let file = disk.open(&temporary, OpenMode::Create).map_err(io_error("create", &temporary))?;
    file.set_len(0)
        .and_then(|()| file.write_at(text.as_bytes(), 0))
        .map_err(io_error("write", &temporary))?;
    file.sync().map_err(io_error("sync", &temporary))?;
    drop(file);
    // What opens may be killed before it syncs these: a store has its folders, durably, or no name.
    disk.sync_folder(folder).map_err(io_error("sync", folder))?;
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        disk.sync_folder(parent).map_err(io_error("sync", parent))?;
    }
    disk.rename(&temporary, &path).map_err(io_error("rename", &temporary))?;
    disk.sync_folder(folder).map_err(io_error("sync", folder))
}

/// A store whose index is gone must not become an empty one. A fresh store gets its index before
/// its first journal.
fn refuse_lost_index(disk: &Arc<dyn Disk>, folder: &Path, index: &Path) -> Result<(), StoreError> {
    let is_there = || disk.exists(index).map_err(io_error("look for", index));
    if is_there()? {
        return Ok(());
    }
    let segments = folder.join("segments");
    let has_data = !crate::segment::list_segments(disk.as_ref(), &segments)?.segments.is_empty()
        || !crate::journal::slots(disk, &folder.join(JOURNAL_FOLDER))?.is_empty();
    if has_data && !is_there()? {
        return Err(IndexError::Missing { path: index.to_owned() }.into());
    }
    Ok(())
}

fn check_format(disk: &dyn Disk, folder: &Path) -> Result<(), StoreError> {
    let path = folder.join(FORMAT_FILE);
    let file = match disk.open(&path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(StoreError::NoStore { path: folder.to_owned() });
        }
        Err(error) => return Err(io_error("open", &path)(error)),
    };
    let mut bytes = [0; 64];
    let read = file.read_at(&mut bytes, 0).map_err(io_error("read", &path))?;
    let found = String::from_utf8_lossy(bytes.get(..read).unwrap_or_default()).trim_end().to_owned();
    if found != format!("rederive store {STORE_FORMAT}") {
        return Err(StoreError::Version { path, found, supported: STORE_FORMAT });
    }
    Ok(())
}

/// A random half of a salt, from the operating system's seed of the standard hasher.
fn salts() -> SaltSource {
    use std::hash::{BuildHasher, Hasher};
    Box::new(|| std::collections::hash_map::RandomState::new().build_hasher().finish())
}

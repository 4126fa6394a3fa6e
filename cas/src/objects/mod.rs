//! The objects of a store: immutable, named by their bytes, checked on every read.
//!
//! Owns the folder `objects` with its shards, its temporary files and its lock, and the order of
//! writes that makes a put atomic and durable: temporary file, sync, rename, sync of the folder.
//! Knows digests and bytes; knows no sessions, no images and no references. An object is there
//! whole or not at all, and what is there is never changed, only written anew in its place.
//!
//! Bytes: FORMAT.md § Objects. The order of a put follows "All File Systems Are Not Created Equal"
//! (Pillai et al., OSDI 2014).

mod file;
mod sweep;

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rederive_disk::{Disk, DiskFile, OpenMode, read_exact_at};

use crate::digest::Digest;

pub use file::{Codec, Damage};
use file::{Encoded, HEADER_BYTES, Header, HeaderFault};
pub use sweep::{Freed, Sweep, SweepReport};

const TEMPORARY_FOLDER: &str = "tmp";
/// Where smaller variants of images are remembered.
pub(crate) const VARIANTS_FOLDER: &str = "variants";
const LOCK_FILE: &str = "lock";
const LOCK_WAIT: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(1);
const TEMPORARY_NAMES_MAX: u32 = 1000;

/// Limits and the clock of an [`Objects`] store.
#[derive(Clone)]
pub struct ObjectsOptions {
    /// Largest object, in bytes, uncompressed: larger ones are neither put nor read. Default
    /// 256 MiB.
    pub object_bytes_max: u64,
    /// Age from which an equal put writes an object again, so that a sweep's grace covers it anew.
    /// Sweeps add it to their grace. Default one hour.
    pub refresh: Duration,
    /// The time of a put, in ms since the epoch. Default: the system's clock.
    pub clock_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Default for ObjectsOptions {
    fn default() -> Self {
        Self {
            object_bytes_max: 256 << 20,
            refresh: Duration::from_secs(60 * 60),
            clock_ms: Arc::new(|| {
                std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
            }),
        }
    }
}

impl fmt::Debug for ObjectsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectsOptions")
            .field("object_bytes_max", &self.object_bytes_max)
            .field("refresh", &self.refresh)
            .finish_non_exhaustive()
    }
}

/// A failed operation of the disk, with what was done to what.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {path}")]
pub struct DiskError {
    /// What was tried: `open`, `read`, `write`, `sync`, `rename`, `list`, `remove`, `lock`, `make`.
    pub operation: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// What the disk said.
    pub source: io::Error,
}

/// Names the operation and the path of a failure.
pub(crate) fn during(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    move |source| DiskError { operation, path: path.to_owned(), source }
}

/// Why an object was not put. Whatever was there before is still there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// Larger than [`ObjectsOptions::object_bytes_max`]. Make it smaller, or raise the limit.
    #[error("object of {bytes} bytes or more, where at most {bytes_max} are stored")]
    TooLarge {
        /// Bytes that were seen.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The caller's reader failed; nothing was written. Read again.
    #[error("cannot read what is to be stored")]
    Source(#[source] io::Error),
    /// The object's file was written by a newer version. Update this program.
    #[error("object {digest} at {path} has format version {version}")]
    Version {
        /// The object.
        digest: Digest,
        /// Its file.
        path: PathBuf,
        /// The version that the file names.
        version: u32,
    },
    /// A sweep held the lock all the time. Retry.
    #[error("{path} is held by a sweep")]
    Busy {
        /// The lock.
        path: PathBuf,
    },
    /// The disk failed or is full. Make room, then retry: a put that failed can be repeated.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Why an object was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// No such object. Put it again from its source, or replace what references it.
    #[error("object {digest} is missing at {path}")]
    Missing {
        /// The object.
        digest: Digest,
        /// Where it would be.
        path: PathBuf,
    },
    /// The object's file is not what was put. Put it again from its source: that replaces it.
    #[error("object {digest} at {path} is damaged: {damage}")]
    Corrupt {
        /// The object.
        digest: Digest,
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        damage: Damage,
    },
    /// Larger than [`ObjectsOptions::object_bytes_max`]. Raise the limit.
    #[error("object {digest} at {path} has {bytes} bytes, where at most {bytes_max} are read")]
    TooLarge {
        /// The object.
        digest: Digest,
        /// Its file.
        path: PathBuf,
        /// Its length, as the file says.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The object's file was written by a newer version. Update this program.
    #[error("object {digest} at {path} has format version {version}")]
    Version {
        /// The object.
        digest: Digest,
        /// Its file.
        path: PathBuf,
        /// The version that the file names.
        version: u32,
    },
    /// The disk failed. Retry, or look after the disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// What the store knows of an object without reading its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStat {
    /// The object's name.
    pub digest: Digest,
    /// Its file.
    pub path: PathBuf,
    /// Its length, uncompressed.
    pub bytes: u64,
    /// The length of its file.
    pub stored_bytes: u64,
    /// How it is stored.
    pub codec: Codec,
    /// When it was put last, in ms since the epoch.
    pub put_ms: u64,
}

/// How far a [`Objects::verify`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Objects that were read.
    pub objects: u64,
    /// Objects that there are.
    pub objects_total: u64,
    /// Bytes of files that were read.
    pub stored_bytes: u64,
}

/// What a [`Objects::verify`] found.
#[derive(Debug, Default)]
#[must_use]
pub struct VerifyReport {
    /// Objects that were read and are whole.
    pub sound: u64,
    /// Their bytes, uncompressed.
    pub sound_bytes: u64,
    /// One entry for each object that cannot be read.
    pub bad: Vec<GetError>,
    /// Files and folders that are none of the store's.
    pub foreign: Vec<PathBuf>,
}

/// The objects under one folder. Shared between threads by reference, between processes by opening
/// it in each.
///
/// ```
/// use std::sync::Arc;
/// use rederive_cas::{Objects, ObjectsOptions};
///
/// # let folder = tempfile::tempdir()?;
/// let disk = Arc::new(rederive_disk::OsDisk);
/// let objects = Objects::open(disk, folder.path().join("objects"), ObjectsOptions::default())?;
/// let digest = objects.put(b"what a message references")?;
/// assert_eq!(objects.get(&digest)?, b"what a message references");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Objects {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    options: ObjectsOptions,
    /// Whether the folder's own name was synced by this process: who made it may have died before.
    is_named: AtomicBool,
    /// What this process knows of each shard's name and names, by the digest's first byte.
    shards: Mutex<[Shard; 256]>,
}

/// Whether what a shard shows is known to survive a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shard {
    /// Another process may have made it and not have synced its name yet.
    Unknown,
    /// Its own name was synced.
    Named,
    /// A sync failed: names that are seen may be lost, and a later sync does not tell.
    Suspect,
}

impl Objects {
    /// Opens the store in `folder`, and makes it durably where it is missing.
    ///
    /// # Errors
    ///
    /// [`DiskError`] where the folder cannot be made.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: impl Into<PathBuf>,
        options: ObjectsOptions,
    ) -> Result<Self, DiskError> {
        let folder = folder.into();
        let temporary = folder.join(TEMPORARY_FOLDER);
        let mut made = Vec::new();
        for above in temporary.ancestors().filter(|above| !above.as_os_str().is_empty()) {
            if disk.exists(above).map_err(during("open", above))? {
                break;
            }
            made.push(above);
        }
        if !made.is_empty() {
            disk.create_folder(&temporary).map_err(during("make", &temporary))?;
            for folder in made.into_iter().filter_map(Path::parent).map(or_here) {
                disk.sync_folder(folder).map_err(during("sync", folder))?;
            }
        }
        Ok(Self {
            disk,
            folder,
            options,
            is_named: AtomicBool::new(false),
            shards: Mutex::new([Shard::Unknown; 256]),
        })
    }

    /// The folder that holds the objects.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    #[cfg(feature = "normalise")]
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Where the object's file is, or would be.
    pub fn path(&self, digest: &Digest) -> PathBuf {
        let hex = digest.to_hex();
        let (shard, name) = hex.split_at(2);
        self.folder.join(shard).join(name)
    }

    /// Stores `object` and returns its name, once it survives kill and loss of power.
    ///
    /// An equal object that is there and whole stays as it is (or is written again with a new time,
    /// if it is older than [`ObjectsOptions::refresh`]); a damaged one is replaced.
    ///
    /// # Cost
    ///
    /// One hash, one compression where the bytes are no known compressed medium, one file written
    /// and synced, one or two folders synced. Where the object exists: one verified read and a
    /// folder's sync.
    ///
    /// # Errors
    ///
    /// By variant of [`PutError`]. After an error the object may be there, whole, but nothing may
    /// reference it before a put has succeeded.
    pub fn put(&self, object: &[u8]) -> Result<Digest, PutError> {
        let bytes_max = self.options.object_bytes_max;
        if bytes_max < object.len() as u64 {
            return Err(PutError::TooLarge { bytes: object.len() as u64, bytes_max });
        }
        let digest = Digest::of(object);
        let now_ms = (self.options.clock_ms)();
        let _shared = self.lock_shared()?;
        if self.is_present(&digest, now_ms)? {
            self.sync_shard(&digest)?;
            return Ok(digest);
        }
        self.make_shard(&digest)?;
        self.write(object, &digest, now_ms)?;
        self.sync_shard(&digest)?;
        Ok(digest)
    }

    /// Stores what `reader` gives, as [`Objects::put`] does.
    ///
    /// # Cost
    ///
    /// Holds the whole object in memory, at most [`ObjectsOptions::object_bytes_max`].
    ///
    /// # Errors
    ///
    /// As [`Objects::put`], and [`PutError::Source`] where the reader fails.
    pub fn put_reader(&self, reader: impl Read) -> Result<Digest, PutError> {
        let bytes_max = self.options.object_bytes_max;
        let mut object = Vec::new();
        reader.take(bytes_max.saturating_add(1)).read_to_end(&mut object).map_err(PutError::Source)?;
        self.put(&object)
    }

    /// Stores the content of the file at `path`, as [`Objects::put`] does.
    ///
    /// # Errors
    ///
    /// As [`Objects::put`], and [`PutError::Source`] where the file cannot be read, or changes its
    /// length meanwhile.
    pub fn put_file(&self, path: &Path) -> Result<Digest, PutError> {
        let bytes_max = self.options.object_bytes_max;
        let file = self.disk.open(path, OpenMode::Read).map_err(PutError::Source)?;
        let bytes = file.len().map_err(PutError::Source)?;
        if bytes_max < bytes {
            return Err(PutError::TooLarge { bytes, bytes_max });
        }
        let mut object = vec![0; bytes as usize];
        read_exact_at(&*file, &mut object, 0).map_err(PutError::Source)?;
        self.put(&object)
    }

    /// The object's bytes, checked against its name.
    ///
    /// # Cost
    ///
    /// One read and one hash; a decompression where it is stored compressed.
    ///
    /// # Errors
    ///
    /// By variant of [`GetError`]; [`GetError::Missing`] and [`GetError::Corrupt`] are never mixed up.
    pub fn get(&self, digest: &Digest) -> Result<Vec<u8>, GetError> {
        let (_, object) = self.read(digest)?;
        Ok(object)
    }

    /// What the object's header says; the payload is not read.
    ///
    /// # Errors
    ///
    /// As [`Objects::get`], for what the header and the file's length show.
    pub fn stat(&self, digest: &Digest) -> Result<ObjectStat, GetError> {
        let (stat, ..) = self.open_object(digest)?;
        Ok(stat)
    }

    /// The names of all objects, sorted. Whether they are whole is not looked at.
    ///
    /// # Errors
    ///
    /// [`DiskError`] where a folder cannot be listed.
    pub fn list(&self) -> Result<Vec<Digest>, DiskError> {
        let mut digests = Vec::new();
        self.walk(|digest| digests.push(digest), |_| {})?;
        Ok(digests)
    }

    /// Reads and checks every object, and names each one that is not whole.
    ///
    /// An object that a sweep removes meanwhile is no fault.
    ///
    /// # Errors
    ///
    /// [`DiskError`] where a folder cannot be listed; what concerns one object is in the report.
    pub fn verify(&self, mut progress: impl FnMut(VerifyProgress)) -> Result<VerifyReport, DiskError> {
        let mut report = VerifyReport::default();
        let mut digests = Vec::new();
        self.walk(|digest| digests.push(digest), |path| report.foreign.push(path))?;
        let mut done = VerifyProgress { objects: 0, objects_total: digests.len() as u64, stored_bytes: 0 };
        for digest in digests {
            match self.read(&digest) {
                Ok((stat, object)) => {
                    report.sound += 1;
                    report.sound_bytes += object.len() as u64;
                    done.stored_bytes += stat.stored_bytes;
                }
                Err(GetError::Missing { .. }) => {}
                Err(error) => report.bad.push(error),
            }
            done.objects += 1;
            progress(done);
        }
        Ok(report)
    }

    /// Calls `object` for each object's name, in order, and `foreign` for what is none of the
    /// store's.
    fn walk(
        &self,
        mut object: impl FnMut(Digest),
        mut foreign: impl FnMut(PathBuf),
    ) -> Result<(), DiskError> {
        for shard in self.disk.list(&self.folder).map_err(during("list", &self.folder))? {
            let folder = self.folder.join(&shard.name);
            if [TEMPORARY_FOLDER, VARIANTS_FOLDER, LOCK_FILE].contains(&shard.name.as_str()) {
                continue;
            }
            if !shard.is_folder || !is_shard(&shard.name) {
                foreign(folder);
                continue;
            }
            for entry in self.disk.list(&folder).map_err(during("list", &folder))? {
                match Digest::from_hex(&format!("{}{}", shard.name, entry.name)) {
                    Some(digest) if !entry.is_folder => object(digest),
                    _ => foreign(folder.join(&entry.name)),
                }
            }
        }
        Ok(())
    }

    fn read(&self, digest: &Digest) -> Result<(ObjectStat, Vec<u8>), GetError> {
        let (stat, header, file) = self.open_object(digest)?;
        let bytes_max = self.options.object_bytes_max;
        if bytes_max < header.bytes {
            return Err(GetError::TooLarge {
                digest: *digest,
                path: stat.path,
                bytes: header.bytes,
                bytes_max,
            });
        }
        // As long as the file is, which for a raw object is what was just compared with the limit,
        // and which no compressed object exceeds either.
        let payload_bytes = stat.stored_bytes - HEADER_BYTES as u64;
        if header.bytes < payload_bytes {
            let expected = header.bytes + HEADER_BYTES as u64;
            let damage = Damage::Length { found: stat.stored_bytes, expected };
            return Err(GetError::Corrupt { digest: *digest, path: stat.path, damage });
        }
        let mut payload = vec![0; payload_bytes as usize];
        read_exact_at(&*file, &mut payload, HEADER_BYTES as u64).map_err(during("read", &stat.path))?;
        match header.open(payload, digest) {
            Ok(object) => Ok((stat, object)),
            Err(damage) => Err(GetError::Corrupt { digest: *digest, path: stat.path, damage }),
        }
    }

    fn open_object(&self, digest: &Digest) -> Result<(ObjectStat, Header, Arc<dyn DiskFile>), GetError> {
        let path = self.path(digest);
        let file = match self.disk.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(GetError::Missing { digest: *digest, path });
            }
            Err(error) => return Err(during("open", &path)(error).into()),
        };
        let stored_bytes = file.len().map_err(during("read", &path))?;
        if stored_bytes < HEADER_BYTES as u64 {
            let damage = Damage::Length { found: stored_bytes, expected: HEADER_BYTES as u64 };
            return Err(GetError::Corrupt { digest: *digest, path, damage });
        }
        let mut header = [0; HEADER_BYTES];
        read_exact_at(&*file, &mut header, 0).map_err(during("read", &path))?;
        match Header::decode(&header, digest, stored_bytes) {
            Ok(header) => {
                let Header { codec, bytes, put_ms, .. } = header;
                let stat = ObjectStat { digest: *digest, path, bytes, stored_bytes, codec, put_ms };
                Ok((stat, header, file))
            }
            Err(HeaderFault::Damage(damage)) => Err(GetError::Corrupt { digest: *digest, path, damage }),
            Err(HeaderFault::Version(version)) => Err(GetError::Version { digest: *digest, path, version }),
        }
    }

    /// Whether an equal object is there, whole, young enough and with a name that can be trusted.
    fn is_present(&self, digest: &Digest, now_ms: u64) -> Result<bool, PutError> {
        if self.shard(digest) == Shard::Suspect {
            return Ok(false);
        }
        match self.read(digest) {
            Ok((stat, _)) => {
                let age = Duration::from_millis(now_ms.saturating_sub(stat.put_ms));
                Ok(age <= self.options.refresh)
            }
            Err(GetError::Missing { .. } | GetError::Corrupt { .. } | GetError::TooLarge { .. }) => Ok(false),
            Err(GetError::Version { digest, path, version }) => {
                Err(PutError::Version { digest, path, version })
            }
            Err(GetError::Disk(error)) => Err(error.into()),
        }
    }

    /// Makes the object's shard, where it is missing, and its name durable.
    fn make_shard(&self, digest: &Digest) -> Result<(), DiskError> {
        let path = self.path(digest);
        let folder = path.parent().unwrap_or(&self.folder);
        let is_there = self.disk.exists(folder).map_err(during("open", folder))?;
        if is_there && self.shard(digest) == Shard::Named {
            return Ok(());
        }
        if !self.is_named.load(Ordering::Relaxed) {
            let above = or_here(self.folder.parent().unwrap_or(&self.folder));
            self.disk.sync_folder(above).map_err(during("sync", above))?;
            self.is_named.store(true, Ordering::Relaxed);
        }
        self.disk.create_folder(folder).map_err(during("make", folder))?;
        if let Err(error) = self.disk.sync_folder(&self.folder) {
            if !is_there {
                // Made anew by the next put: a later sync would not bring back a lost name. Where it
                // cannot be removed, another put is using it.
                let _ = self.disk.remove_folder(folder);
            }
            self.set_shard(digest, Shard::Suspect);
            return Err(during("sync", &self.folder)(error));
        }
        if self.shard(digest) == Shard::Unknown {
            self.set_shard(digest, Shard::Named);
        }
        Ok(())
    }

    /// Writes the object's file and gives it its name; the name is not durable yet.
    fn write(&self, object: &[u8], digest: &Digest, now_ms: u64) -> Result<(), DiskError> {
        let path = self.path(digest);
        let encoded = Encoded::new(object, digest, now_ms).map_err(during("compress", &path))?;
        let (temporary, file) = self.create_temporary(digest)?;
        let written = (|| {
            file.write_at(&encoded.header, 0).map_err(during("write", &temporary))?;
            file.write_at(encoded.payload(object), HEADER_BYTES as u64)
                .map_err(during("write", &temporary))?;
            self.disk.set_read_only(&temporary).map_err(during("protect", &temporary))?;
            file.sync().map_err(during("sync", &temporary))?;
            drop(file);
            self.disk.rename(&temporary, &path).map_err(during("rename", &temporary))
        })();
        if written.is_err() {
            // Best effort: a sweep finds what stays.
            let _ = self.disk.remove(&temporary);
        }
        written
    }

    /// A new file in the folder for objects in the making. The caller holds the lock shared.
    pub(crate) fn create_temporary(
        &self,
        digest: &Digest,
    ) -> Result<(PathBuf, Arc<dyn DiskFile>), DiskError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let hex = digest.to_hex();
        let folder = self.folder.join(TEMPORARY_FOLDER);
        for _ in 0..TEMPORARY_NAMES_MAX {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let start = hex.get(..16).unwrap_or(&hex);
            let path = folder.join(format!("{start}-{}-{number}", std::process::id()));
            match self.disk.open(&path, OpenMode::CreateNew) {
                Ok(file) => return Ok((path, file)),
                // Left by a process that had the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(during("make", &path)(error)),
            }
        }
        Err(during("make", &folder)(io::ErrorKind::AlreadyExists.into()))
    }

    /// Makes the names in the object's shard durable.
    fn sync_shard(&self, digest: &Digest) -> Result<(), DiskError> {
        if self.shard(digest) != Shard::Named {
            self.make_shard(digest)?;
        }
        let path = self.path(digest);
        let folder = path.parent().unwrap_or(&self.folder);
        match self.disk.sync_folder(folder) {
            Ok(()) => {
                self.set_shard(digest, Shard::Named);
                Ok(())
            }
            Err(error) => {
                self.set_shard(digest, Shard::Suspect);
                Err(during("sync", folder)(error))
            }
        }
    }

    fn shard(&self, digest: &Digest) -> Shard {
        let [first, ..] = digest.as_bytes();
        let shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        shards.get(usize::from(*first)).copied().unwrap_or(Shard::Unknown)
    }

    fn set_shard(&self, digest: &Digest, to: Shard) {
        let [first, ..] = digest.as_bytes();
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shard) = shards.get_mut(usize::from(*first)) {
            *shard = to;
        }
    }

    /// Keeps sweeps from removing until the returned handle is dropped. Each put has its own handle:
    /// a lock belongs to a handle, not to a thread.
    pub(crate) fn lock_shared(&self) -> Result<Arc<dyn DiskFile>, PutError> {
        let path = self.folder.join(LOCK_FILE);
        let lock = self.disk.open(&path, OpenMode::Create).map_err(during("open", &path))?;
        let is_locked =
            wait(|| lock.try_lock_shared()).map_err(during("lock", &path)).map_err(PutError::Disk)?;
        if is_locked { Ok(lock) } else { Err(PutError::Busy { path }) }
    }
}

/// `path`, or the working folder where it is the empty rest of a relative path.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Tries until `lock` has it, for [`LOCK_WAIT`] at most.
fn wait(mut lock: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let mut waited = Duration::ZERO;
    loop {
        if lock()? {
            return Ok(true);
        }
        if LOCK_WAIT <= waited {
            return Ok(false);
        }
        std::thread::sleep(LOCK_PAUSE);
        waited += LOCK_PAUSE;
    }
}

fn is_shard(name: &str) -> bool {
    name.len() == 2 && name.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

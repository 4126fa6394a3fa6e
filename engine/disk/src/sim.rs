//! A simulated disk that loses power, for tests.
//!
//! Owns a file system in memory that keeps apart what was synced and what was not, loses power at
//! a chosen operation, and fails chosen operations. Knows nothing of what is stored on it.
//! Everything follows from its seed: no clock, no thread, no randomness of the system.
//!
//! ```
//! use std::path::Path;
//! use rederive_disk::{Disk, OpenMode, sim::SimDisk};
//!
//! let disk = SimDisk::new(7);
//! let file = disk.open(Path::new("/a"), OpenMode::CreateNew)?;
//! file.write_at(b"synced", 0)?;
//! file.sync()?;
//! disk.sync_folder(Path::new("/"))?;
//! file.write_at(b"not synced", 512)?;
//! let after = disk.after_power_loss();
//! assert!(after.files()[Path::new("/a")].starts_with(b"synced"));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # The model
//!
//! - A file's bytes and length are durable once it was synced; until then, each write is kept, lost
//!   or torn at sectors of 512 bytes, and each change of length is kept or lost, in any
//!   combination. A sector is kept whole or not at all.
//! - A name (created, renamed, removed) is durable once the folder that it stands in was synced (a
//!   rename: the folder of its new name); until then, each such change is kept or undone as a
//!   whole, in any combination.
//! - A sync that fails keeps and loses what was unsynced in the same way, for good: a later sync
//!   that succeeds does not bring it back, though reads still show it until power is lost.
//! - Rights and locks are not subject to power loss; locks end with their handle.
//!
//! # Operations
//!
//! Those that change or sync something are counted, from zero: creating a file, writing, changing
//! a length, syncing, renaming, removing, making and syncing a folder. Reads are not, but fail as
//! well once power is lost. Each folder that is made on the way to another one counts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Disk, DiskFile, Entry, OpenMode};

/// What a disk writes whole or not at all, in bytes.
pub const SECTOR_BYTES: u64 = 512;

/// What an operation of a [`SimDisk`] fails with; found in the [`io::Error`] by
/// [`Fault::of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Power is lost: this operation and all later ones fail.
    PowerLost,
    /// The disk is full, as [`io::ErrorKind::StorageFull`]; nothing of a write lands. For good, it
    /// only concerns operations that need room.
    NoSpace,
    /// The disk fails; nothing of a write lands.
    Io,
    /// A part of the bytes lands, then the disk fails; like [`Fault::Io`] for what is no write.
    ShortWrite,
    /// The operation is done in full, and says that it failed.
    Late,
}

impl Fault {
    /// The fault that `error` came from, where it came from a simulated disk.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref::<Self>().copied()
    }

    /// Whether the operation takes effect (and, without power, may be durable or not).
    fn takes_effect(outcome: Result<(), Self>) -> bool {
        matches!(outcome, Ok(()) | Err(Self::PowerLost | Self::Late))
    }

    fn error(self) -> io::Error {
        let kind = match self {
            Self::NoSpace => io::ErrorKind::StorageFull,
            Self::PowerLost | Self::Io | Self::ShortWrite | Self::Late => io::ErrorKind::Other,
        };
        io::Error::new(kind, self)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::PowerLost => "simulated loss of power",
            Self::NoSpace => "simulated full disk",
            Self::Io => "simulated failure of the disk",
            Self::ShortWrite => "simulated short write",
            Self::Late => "simulated failure after the operation was done",
        })
    }
}

impl std::error::Error for Fault {}

/// How often a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// At the chosen operation alone.
    Once,
    /// At the chosen operation and all later ones that it concerns.
    ForGood,
}

/// Which operations are counted towards a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every counted operation.
    Any,
    /// Syncs of files and folders.
    Syncs,
}

/// A file system in memory; a clone is the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
}

#[derive(Debug)]
struct World {
    random: Random,
    /// Names as they are now, and as they would be after a loss of power with all of `renaming`
    /// undone.
    names: BTreeMap<PathBuf, Node>,
    durable_names: BTreeMap<PathBuf, Node>,
    renaming: Vec<NameChange>,
    inodes: BTreeMap<u64, Inode>,
    next_id: u64,
    operations: u64,
    syncs: u64,
    cut_at: Option<u64>,
    power_lost: bool,
    faults: Vec<PlannedFault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Folder,
    File(u64),
}

#[derive(Clone, Debug)]
enum NameChange {
    Create { path: PathBuf, node: Node },
    Rename { from: PathBuf, to: PathBuf, node: Node },
    Remove { path: PathBuf },
}

#[derive(Clone, Debug, Default)]
struct Inode {
    content: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    read_only: bool,
    exclusive: Option<u64>,
    shared: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
enum Change {
    /// `extends` where the file was shorter.
    Write {
        offset: u64,
        bytes: Vec<u8>,
        extends: bool,
    },
    Length(u64),
}

#[derive(Clone, Copy, Debug)]
struct PlannedFault {
    at: u64,
    fault: Fault,
    repeat: Repeat,
    target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Write,
    Sync,
    /// Makes a file or folder, or lengthens one.
    Room,
    Other,
}

#[derive(Debug)]
struct SimFile {
    world: Arc<Mutex<World>>,
    inode: u64,
    handle: u64,
    writable: bool,
}

impl SimDisk {
    /// An empty disk with a root folder `/`; `seed` decides what a loss of power keeps.
    pub fn new(seed: u64) -> Self {
        Self::from_files(seed, [])
    }

    /// A disk that holds `files`, all synced, and the folders above them.
    pub fn from_files(seed: u64, files: impl IntoIterator<Item = (PathBuf, Vec<u8>)>) -> Self {
        let mut names = BTreeMap::from([(PathBuf::from("/"), Node::Folder)]);
        let mut inodes = BTreeMap::new();
        for (id, (path, content)) in (0..).zip(files) {
            for folder in path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
                names.insert(folder.to_owned(), Node::Folder);
            }
            names.insert(path, Node::File(id));
            inodes.insert(id, Inode { durable: content.clone(), content, ..Inode::default() });
        }
        let world = World {
            random: Random(seed),
            durable_names: names.clone(),
            names,
            renaming: Vec::new(),
            next_id: inodes.len() as u64,
            inodes,
            operations: 0,
            syncs: 0,
            cut_at: None,
            power_lost: false,
            faults: Vec::new(),
        };
        Self { world: Arc::new(Mutex::new(world)) }
    }

    /// Loses power at operation `n`, which counts as begun: what it writes may land.
    #[must_use = "the same disk, to go on with"]
    pub fn cut_at(self, n: u64) -> Self {
        self.locked().cut_at = Some(n);
        self
    }

    /// Fails operation `n` of those that `target` counts.
    #[must_use = "the same disk, to go on with"]
    pub fn fail_at(self, n: u64, fault: Fault, repeat: Repeat, target: Target) -> Self {
        self.locked().faults.push(PlannedFault { at: n, fault, repeat, target });
        self
    }

    /// Forgets the faults that were planned.
    pub fn heal(&self) {
        self.locked().faults.clear();
    }

    /// How many operations were counted.
    pub fn operations(&self) -> u64 {
        self.locked().operations
    }

    /// How many of them were syncs of files or folders.
    pub fn syncs(&self) -> u64 {
        self.locked().syncs
    }

    /// Whether power was lost.
    pub fn power_lost(&self) -> bool {
        self.locked().power_lost
    }

    /// Every file as it reads now.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let world = self.locked();
        let content = |(path, node): (&PathBuf, &Node)| match node {
            Node::Folder => None,
            Node::File(id) => Some((path.clone(), world.inodes.get(id)?.content.clone())),
        };
        world.names.iter().filter_map(content).collect()
    }

    /// The disk as a machine finds it that lost power now (or earlier, at the cut): without locks,
    /// faults and a cut to come. The same disk in the same state gives the same outcome.
    #[must_use = "the disk after the loss; this one stays as it is"]
    pub fn after_power_loss(&self) -> Self {
        let world = self.locked();
        let mut random = Random(world.random.0 ^ world.operations.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut names = world.durable_names.clone();
        for change in &world.renaming {
            if random.coin() {
                change.apply(&mut names);
            }
        }
        // What stands in a folder that is gone is gone.
        let reachable = |path: &PathBuf| {
            path.ancestors()
                .skip(1)
                .all(|folder| folder.as_os_str().is_empty() || names.get(folder) == Some(&Node::Folder))
        };
        let names: BTreeMap<PathBuf, Node> = names
            .iter()
            .filter(|(path, _)| reachable(path))
            .map(|(path, node)| (path.clone(), *node))
            .collect();
        let mut inodes = BTreeMap::new();
        for (&id, inode) in &world.inodes {
            let mut durable = inode.durable.clone();
            lose(&mut durable, &inode.unsynced, &mut random);
            let read_only = inode.read_only;
            inodes.insert(id, Inode { content: durable.clone(), durable, read_only, ..Inode::default() });
        }
        let after = World {
            random,
            durable_names: names.clone(),
            names,
            renaming: Vec::new(),
            next_id: world.next_id,
            inodes,
            operations: 0,
            syncs: 0,
            cut_at: None,
            power_lost: false,
            faults: Vec::new(),
        };
        Self { world: Arc::new(Mutex::new(after)) }
    }

    fn locked(&self) -> MutexGuard<'_, World> {
        locked(&self.world)
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut world = self.locked();
        world.check_power()?;
        let writable = mode != OpenMode::Read;
        let inode = match (world.names.get(path), mode) {
            (Some(Node::Folder), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (Some(Node::File(_)), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Node::File(id)), _) => *id,
            (None, OpenMode::Read | OpenMode::ReadWrite) => return Err(io::ErrorKind::NotFound.into()),
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                world.check_parent(path)?;
                let outcome = world.begin(Operation::Room);
                if !Fault::takes_effect(outcome) {
                    return Err(Fault::error(outcome.err().unwrap_or(Fault::Io)));
                }
                let id = world.new_id();
                world.inodes.insert(id, Inode::default());
                world.change_name(NameChange::Create { path: path.to_owned(), node: Node::File(id) });
                outcome.map_err(Fault::error)?;
                id
            }
        };
        if writable && world.inodes.get(&inode).is_some_and(|inode| inode.read_only) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let handle = world.new_id();
        Ok(Arc::new(SimFile { world: Arc::clone(&self.world), inode, handle, writable }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.locked();
        world.check_power()?;
        let node = *world.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        world.check_parent(to)?;
        if node == Node::Folder || world.names.get(to) == Some(&Node::Folder) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "only files are renamed here"));
        }
        let change = NameChange::Rename { from: from.to_owned(), to: to.to_owned(), node };
        world.change_name_counted(Operation::Other, change)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.locked();
        world.check_power()?;
        match world.names.get(path) {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(Node::Folder) => Err(io::ErrorKind::IsADirectory.into()),
            Some(Node::File(_)) => {
                world.change_name_counted(Operation::Other, NameChange::Remove { path: path.to_owned() })
            }
        }
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut world = self.locked();
        world.check_power()?;
        let mut missing: Vec<&Path> = Vec::new();
        for folder in path.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
            match world.names.get(folder) {
                Some(Node::Folder) => break,
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => missing.push(folder),
            }
        }
        for folder in missing.into_iter().rev() {
            let change = NameChange::Create { path: folder.to_owned(), node: Node::Folder };
            world.change_name_counted(Operation::Room, change)?;
        }
        Ok(())
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let mut world = self.locked();
        world.check_power()?;
        if world.names.get(path) != Some(&Node::Folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if world.names.keys().any(|name| name.parent() == Some(path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        world.change_name_counted(Operation::Other, NameChange::Remove { path: path.to_owned() })
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut world = self.locked();
        world.check_power()?;
        if world.names.get(path) != Some(&Node::Folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let outcome = world.begin(Operation::Sync);
        if !matches!(outcome, Ok(()) | Err(Fault::Late)) {
            return outcome.map_err(Fault::error);
        }
        for change in std::mem::take(&mut world.renaming) {
            if change.folder() == Some(path) {
                change.apply(&mut world.durable_names);
            } else {
                world.renaming.push(change);
            }
        }
        outcome.map_err(Fault::error)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let world = self.locked();
        world.check_power()?;
        if world.names.get(path) != Some(&Node::Folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut entries = Vec::new();
        for (entry, node) in world.names.iter().filter(|(entry, _)| entry.parent() == Some(path)) {
            let name = entry.file_name().unwrap_or(OsStr::new("")).to_string_lossy().into_owned();
            entries.push(match node {
                Node::Folder => Entry { name, is_folder: true, bytes: 0 },
                Node::File(id) => {
                    let bytes = world.inodes.get(id).map_or(0, |inode| inode.content.len() as u64);
                    Entry { name, is_folder: false, bytes }
                }
            });
        }
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let world = self.locked();
        world.check_power()?;
        Ok(world.names.contains_key(path))
    }

    fn set_read_only(&self, path: &Path) -> io::Result<()> {
        let mut world = self.locked();
        world.check_power()?;
        let Some(&Node::File(id)) = world.names.get(path) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        world.inode(id)?.read_only = true;
        Ok(())
    }

    fn is_os(&self) -> bool {
        false
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut world = locked(&self.world);
        world.check_power()?;
        let content = &world.inode(self.inode)?.content;
        let rest = content.get(offset.min(content.len() as u64) as usize..).unwrap_or_default();
        let got = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..got), rest.get(..got)) {
            to.copy_from_slice(from);
        }
        Ok(got)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut world = locked(&self.world);
        world.check_power()?;
        self.check_writable()?;
        let outcome = world.begin(Operation::Write);
        let landing = match outcome {
            Ok(()) | Err(Fault::PowerLost | Fault::Late) => bytes.len(),
            Err(Fault::ShortWrite) => world.random.below(bytes.len() as u64) as usize,
            Err(Fault::NoSpace | Fault::Io) => 0,
        };
        let landing = bytes.get(..landing).unwrap_or_default();
        if !landing.is_empty() {
            let inode = world.inode(self.inode)?;
            let extends = (inode.content.len() as u64) < offset + landing.len() as u64;
            put(&mut inode.content, landing, offset);
            inode.unsynced.push(Change::Write { offset, bytes: landing.to_vec(), extends });
        }
        outcome.map_err(Fault::error)
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = locked(&self.world);
        world.check_power()?;
        let outcome = world.begin(Operation::Sync);
        if outcome == Err(Fault::PowerLost) {
            return Err(Fault::PowerLost.error());
        }
        let mut random = world.random;
        let inode = world.inode(self.inode)?;
        let unsynced = std::mem::take(&mut inode.unsynced);
        if Fault::takes_effect(outcome) {
            for change in &unsynced {
                change.apply(&mut inode.durable);
            }
        } else {
            lose(&mut inode.durable, &unsynced, &mut random);
            world.random = random;
        }
        outcome.map_err(Fault::error)
    }

    fn len(&self) -> io::Result<u64> {
        let mut world = locked(&self.world);
        world.check_power()?;
        Ok(world.inode(self.inode)?.content.len() as u64)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut world = locked(&self.world);
        world.check_power()?;
        self.check_writable()?;
        let outcome = world.begin(Operation::Room);
        if Fault::takes_effect(outcome) {
            let inode = world.inode(self.inode)?;
            inode.content.resize(bytes as usize, 0);
            inode.unsynced.push(Change::Length(bytes));
        }
        outcome.map_err(Fault::error)
    }

    fn try_lock(&self) -> io::Result<bool> {
        let mut world = locked(&self.world);
        world.check_power()?;
        let inode = world.inode(self.inode)?;
        let others = inode.exclusive.is_some_and(|owner| owner != self.handle)
            || inode.shared.iter().any(|&owner| owner != self.handle);
        if !others {
            inode.shared.clear();
            inode.exclusive = Some(self.handle);
        }
        Ok(!others)
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        let mut world = locked(&self.world);
        world.check_power()?;
        let inode = world.inode(self.inode)?;
        if inode.exclusive.is_some_and(|owner| owner != self.handle) {
            return Ok(false);
        }
        inode.exclusive = None;
        inode.shared.insert(self.handle);
        Ok(true)
    }

    fn unlock(&self) -> io::Result<()> {
        locked(&self.world).unlock(self.inode, self.handle);
        Ok(())
    }
}

impl SimFile {
    fn check_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        locked(&self.world).unlock(self.inode, self.handle);
    }
}

impl World {
    fn check_power(&self) -> io::Result<()> {
        if self.power_lost { Err(Fault::PowerLost.error()) } else { Ok(()) }
    }

    fn check_parent(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(folder) if self.names.get(folder) == Some(&Node::Folder) => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Counts an operation, and says whether it fails.
    fn begin(&mut self, operation: Operation) -> Result<(), Fault> {
        let (nth, nth_sync) = (self.operations, self.syncs);
        self.operations += 1;
        self.syncs += u64::from(operation == Operation::Sync);
        if self.cut_at.is_some_and(|cut| cut <= nth) {
            self.power_lost = true;
            return Err(Fault::PowerLost);
        }
        for planned in &self.faults {
            let now = match planned.target {
                Target::Any => nth,
                Target::Syncs if operation == Operation::Sync => nth_sync,
                Target::Syncs => continue,
            };
            let due = match planned.repeat {
                Repeat::Once => now == planned.at,
                Repeat::ForGood => {
                    planned.at <= now
                        && (planned.fault != Fault::NoSpace
                            || planned.target == Target::Syncs
                            || matches!(operation, Operation::Write | Operation::Room))
                }
            };
            if due {
                return Err(planned.fault);
            }
        }
        Ok(())
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.renaming.push(change);
    }

    fn change_name_counted(&mut self, operation: Operation, change: NameChange) -> io::Result<()> {
        let outcome = self.begin(operation);
        if Fault::takes_effect(outcome) {
            self.change_name(change);
        }
        outcome.map_err(Fault::error)
    }

    fn inode(&mut self, id: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn unlock(&mut self, inode: u64, handle: u64) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            if inode.exclusive == Some(handle) {
                inode.exclusive = None;
            }
            inode.shared.remove(&handle);
        }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            Self::Create { path, node } => {
                names.insert(path.clone(), *node);
            }
            Self::Rename { from, to, node } => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
            Self::Remove { path } => {
                names.remove(path);
            }
        }
    }

    /// The folder whose sync makes the change durable.
    fn folder(&self) -> Option<&Path> {
        match self {
            Self::Create { path, .. } | Self::Remove { path } | Self::Rename { to: path, .. } => {
                path.parent()
            }
        }
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes, .. } => put(content, bytes, *offset),
            Self::Length(bytes) => content.resize(*bytes as usize, 0),
        }
    }
}

/// Keeps any part of `changes` in `durable`.
fn lose(durable: &mut Vec<u8>, changes: &[Change], random: &mut Random) {
    let leaning = Keep::any(random);
    let mut len = durable.len() as u64;
    for change in changes {
        let keep = if leaning == Keep::Some { Keep::any(random) } else { leaning };
        match change {
            Change::Write { offset, bytes, extends } => {
                let mut rest = bytes.as_slice();
                let mut at = *offset;
                while !rest.is_empty() {
                    let sector_end = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
                    let (sector, behind) = rest.split_at(rest.len().min((sector_end - at) as usize));
                    if keep.choose(random) {
                        put(durable, sector, at);
                    }
                    at += sector.len() as u64;
                    rest = behind;
                }
                if *extends && keep.choose(random) {
                    len = len.max(at);
                }
            }
            Change::Length(bytes) => {
                if keep.choose(random) {
                    durable.truncate(*bytes as usize);
                    len = *bytes;
                }
            }
        }
    }
    durable.resize(len as usize, 0);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    All,
    None,
    Some,
}

impl Keep {
    fn any(random: &mut Random) -> Self {
        match random.below(4) {
            0 => Self::All,
            1 => Self::None,
            _ => Self::Some,
        }
    }

    fn choose(self, random: &mut Random) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Some => random.coin(),
        }
    }
}

fn put(content: &mut Vec<u8>, bytes: &[u8], offset: u64) {
    let start = offset as usize;
    let end = start + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    if let Some(place) = content.get_mut(start..end) {
        place.copy_from_slice(bytes);
    }
}

fn locked(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// SplitMix64: small, seeded, good enough to choose sectors.
#[derive(Clone, Copy, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number under `bound`; zero for a bound of zero.
    fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        Path::new("/folder").join(name)
    }

    fn with_folder(seed: u64) -> SimDisk {
        let disk = SimDisk::new(seed);
        disk.create_folder(Path::new("/folder")).unwrap();
        disk.sync_folder(Path::new("/")).unwrap();
        disk
    }

    fn write(disk: &SimDisk, name: &str, bytes: &[u8], offset: u64) -> Arc<dyn DiskFile> {
        let file = disk.open(&path(name), OpenMode::Create).unwrap();
        file.write_at(bytes, offset).unwrap();
        file
    }

    #[test]
    fn what_was_synced_survives_and_the_rest_tears_at_sectors() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..200 {
            let disk = with_folder(seed);
            let file = write(&disk, "a", &[1; 2048], 0);
            file.sync().unwrap();
            disk.sync_folder(Path::new("/folder")).unwrap();
            file.write_at(&[2; 2048], 512).unwrap();
            let files = disk.after_power_loss().files();
            let after = &files[&path("a")];
            assert_eq!(files, disk.after_power_loss().files(), "seed {seed}: the same loss twice");
            assert_eq!(after[..512], [1; 512], "seed {seed}: synced bytes outside of the write");
            assert!([2048, 2560].contains(&after.len()), "seed {seed}: length {}", after.len());
            for sector in after.chunks(512) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "seed {seed}: a torn sector");
            }
            outcomes.insert(after.iter().step_by(512).copied().collect::<Vec<u8>>());
        }
        assert!(outcomes.contains([1; 4].as_slice()), "all lost");
        assert!(outcomes.contains([1, 2, 2, 2, 2].as_slice()), "all kept");
        assert!(outcomes.contains([1, 2, 2, 2].as_slice()), "length lost");
        assert!(outcomes.contains([1, 2, 1, 2, 0].as_slice()), "torn, with a length and no bytes");
    }

    #[test]
    fn names_are_durable_with_their_folder_and_renames_are_whole() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..100 {
            let disk = with_folder(seed);
            write(&disk, "new", b"new", 0).sync().unwrap();
            write(&disk, "old", b"old", 0).sync().unwrap();
            disk.sync_folder(Path::new("/folder")).unwrap();
            disk.rename(&path("new"), &path("old")).unwrap();
            write(&disk, "unsynced", b"x", 0).sync().unwrap();
            let before = disk.files();
            assert_eq!(before[&path("old")], b"new");
            let mut after = disk.after_power_loss().files();
            after.remove(&path("unsynced"));
            outcomes.insert(after);
            disk.sync_folder(Path::new("/folder")).unwrap();
            assert_eq!(disk.after_power_loss().files(), before, "seed {seed}");
        }
        let undone = BTreeMap::from([(path("new"), b"new".to_vec()), (path("old"), b"old".to_vec())]);
        let kept = BTreeMap::from([(path("old"), b"new".to_vec())]);
        assert_eq!(outcomes, BTreeSet::from([undone, kept]));
    }

    #[test]
    fn after_the_cut_every_operation_fails() {
        let disk = with_folder(1);
        let file = write(&disk, "a", b"one", 0);
        let n = disk.operations();
        let disk = disk.cut_at(n);
        assert_eq!(Fault::of(&file.write_at(b"two", 0).unwrap_err()), Some(Fault::PowerLost));
        assert_eq!(Fault::of(&file.read_at(&mut [0], 0).unwrap_err()), Some(Fault::PowerLost));
        assert_eq!(Fault::of(&disk.list(Path::new("/folder")).unwrap_err()), Some(Fault::PowerLost));
        assert!(disk.power_lost() && !disk.after_power_loss().power_lost());
    }

    #[test]
    fn faults_come_when_planned_and_leave_what_they_say() {
        let disk = with_folder(1);
        let file = write(&disk, "a", &[1; 100], 0);
        let n = disk.operations();
        let disk = disk.fail_at(n, Fault::NoSpace, Repeat::Once, Target::Any).fail_at(
            n + 2,
            Fault::ShortWrite,
            Repeat::Once,
            Target::Any,
        );
        assert_eq!(file.write_at(&[2; 100], 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.files()[&path("a")], [1; 100]);
        file.write_at(&[3; 100], 0).unwrap();
        assert_eq!(Fault::of(&file.write_at(&[4; 100], 0).unwrap_err()), Some(Fault::ShortWrite));
        assert!(disk.files()[&path("a")].ends_with(&[3]), "never all of a short write");
        file.sync().unwrap();

        let disk = disk.clone().fail_at(disk.syncs(), Fault::Io, Repeat::ForGood, Target::Syncs);
        file.write_at(&[5; 100], 0).unwrap();
        assert_eq!(Fault::of(&file.sync().unwrap_err()), Some(Fault::Io));
        assert_eq!(Fault::of(&disk.sync_folder(Path::new("/folder")).unwrap_err()), Some(Fault::Io));
        disk.heal();
        file.sync().unwrap();
    }

    #[test]
    fn a_failed_sync_may_lose_for_good_what_a_later_one_reports_as_synced() {
        let lost = (0..50).filter(|&seed| {
            let disk = with_folder(seed);
            let file = write(&disk, "a", &[1; 512], 0);
            file.sync().unwrap();
            disk.sync_folder(Path::new("/folder")).unwrap();
            file.write_at(&[2; 512], 0).unwrap();
            let disk = disk.clone().fail_at(disk.syncs(), Fault::Io, Repeat::Once, Target::Syncs);
            file.sync().unwrap_err();
            file.sync().unwrap();
            assert_eq!(disk.files()[&path("a")], [2; 512], "reads show it until power is lost");
            disk.after_power_loss().files()[&path("a")] == [1; 512]
        });
        assert!((1..50).contains(&lost.count()));
    }

    #[test]
    fn locks_belong_to_handles() {
        let disk = with_folder(1);
        let (a, b) = (write(&disk, "a", b"x", 0), write(&disk, "a", b"x", 0));
        assert!(a.try_lock().unwrap());
        assert!(!b.try_lock().unwrap() && !b.try_lock_shared().unwrap());
        drop(a);
        assert!(b.try_lock_shared().unwrap());
        let c = disk.open(&path("a"), OpenMode::Read).unwrap();
        assert!(c.try_lock_shared().unwrap() && !c.try_lock().unwrap());
        b.unlock().unwrap();
        assert!(c.try_lock().unwrap());
    }
}

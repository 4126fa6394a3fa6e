//! What the journal promises, rule by rule; mostly on the simulated disk.

mod commit;
mod follow;
mod golden;
mod model;
mod power;
mod recovery;
mod reuse;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rederive_disk::sim::SimDisk;
use rederive_disk::{Disk, OsDisk};

use super::*;

const FOLDER: &str = "/store/journal";
const PID: u32 = 4711;

fn salts(seed: u64) -> SaltSource {
    let mut random = Random(seed);
    Box::new(move || random.next())
}

/// Switches as early as it can, so that small tests use both files.
fn small() -> JournalOptions {
    JournalOptions { switch_bytes: FRAMES_START + 4096 }
}

fn store(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_folder(Path::new("/store")).unwrap();
    disk.sync_folder(Path::new("/")).unwrap();
    disk
}

fn acquire_with(
    disk: &impl AsDisk,
    options: JournalOptions,
) -> Result<(JournalSet, Recovered), JournalError> {
    JournalSet::acquire(disk.as_disk(), Path::new(FOLDER), options, salts(99), PID)
}

fn acquire(disk: &impl AsDisk) -> (JournalSet, Recovered) {
    acquire_with(disk, JournalOptions::default()).unwrap()
}

trait AsDisk {
    fn as_disk(&self) -> Arc<dyn Disk>;
}

impl AsDisk for SimDisk {
    fn as_disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }
}

impl AsDisk for Arc<dyn Disk> {
    fn as_disk(&self) -> Arc<dyn Disk> {
        Arc::clone(self)
    }
}

fn file(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// A disk with one file's bytes changed by `change`.
fn changed(disk: &SimDisk, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> SimDisk {
    let mut files = disk.files();
    change(files.get_mut(&file(name)).unwrap());
    SimDisk::from_files(1, files)
}

fn append(journal: &JournalSet, session_key: u64, first_seq: u64, payload: &[u8]) -> FrameEnd {
    journal.append(FrameWrite { session_key, first_seq, events: 1, payload }).unwrap()
}

fn append_synced(journal: &JournalSet, session_key: u64, first_seq: u64, payload: &[u8]) {
    let end = append(journal, session_key, first_seq, payload);
    journal.ticket(end, Durability::Synced).wait().unwrap();
}

/// Session, seq and payload of each frame.
fn content(recovered: &Recovered) -> Vec<(u64, u64, Vec<u8>)> {
    recovered.frames.iter().map(|f| (f.session_key, f.first_seq, f.payload.clone())).collect()
}

fn seqs(recovered: &Recovered) -> Vec<u64> {
    recovered.frames.iter().map(|frame| frame.first_seq).collect()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[test]
fn on_the_operating_systems_disk_frames_survive_their_writer() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("journal");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let open = || JournalSet::acquire(Arc::clone(&disk), &folder, JournalOptions::default(), salts(1), 7);
    let (journal, recovered) = open().unwrap();
    assert!(recovered.frames.is_empty());
    for seq in 0..10 {
        append_synced(&journal, 3, seq, b"payload");
    }
    let (second, nothing) = open().unwrap();
    assert_eq!((second.slot(), nothing.frames.len()), (1, 0), "the first slot is held");
    assert!(matches!(recover_slot(&disk, &folder, 0), Err(JournalError::Held { slot: 0, pid: Some(7) })));
    drop(journal);
    let (journal, recovered) = open().unwrap();
    assert_eq!(journal.slot(), 0);
    assert_eq!(seqs(&recovered), (0..10).collect::<Vec<_>>());
    journal.release(3, 10);
    assert!(journal.close().unwrap());
    let states = slots(&disk, &folder).unwrap();
    assert!(matches!(states[0].state, SlotState::Clean), "{states:?}");
    assert!(matches!(states[1].state, SlotState::Held { pid: Some(7) }), "{states:?}");
}

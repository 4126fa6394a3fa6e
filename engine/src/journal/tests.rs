//! What the journal promises, rule by rule, on the simulated disk.

use std::sync::Arc;

use rederive_disk::OsDisk;

use super::*;

fn salts(mut seed: u64) -> SaltSource {
    Box::new(move || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 31)
    })
}

#[test]
fn on_the_operating_systems_disk_frames_survive_the_process() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("journal");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let open = || JournalSet::acquire(Arc::clone(&disk), &folder, JournalOptions::default(), salts(1), 7);
    let (journal, recovered) = open().unwrap();
    assert!(recovered.frames.is_empty());
    for seq in 0..10 {
        let frame = FrameWrite { session_key: 3, first_seq: seq, events: 1, payload: b"payload" };
        let end = journal.append(frame).unwrap();
        journal.ticket(end, Durability::Synced).wait().unwrap();
    }
    let (second, nothing) = open().unwrap();
    assert_eq!((second.slot(), nothing.frames.len()), (1, 0), "the first slot is held");
    assert!(matches!(recover_slot(&disk, &folder, 0), Err(JournalError::Held { slot: 0, pid: Some(7) })));
    drop(journal);
    let (journal, recovered) = open().unwrap();
    assert_eq!(journal.slot(), 0);
    assert_eq!(
        recovered.frames.iter().map(|frame| frame.first_seq).collect::<Vec<_>>(),
        (0..10).collect::<Vec<_>>()
    );
    journal.release(3, 10);
    assert!(journal.close().unwrap());
    let states = slots(&disk, &folder).unwrap();
    assert!(matches!(states[0].state, SlotState::Clean), "{states:?}");
    assert!(matches!(states[1].state, SlotState::Held { pid: Some(7) }), "{states:?}");
}

//! Two files in turns, growth, failed writes, scrubbing, closing.

use rederive_disk::sim::{Fault, Repeat, Target};

use super::*;

fn files(disk: &SimDisk) -> Vec<String> {
    let names = disk.files().into_keys();
    names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
}

#[test]
fn files_take_turns_once_the_other_one_is_free() {
    let disk = store(1);
    let (journal, _) = acquire_with(&disk, small()).unwrap();
    let sides: Vec<Side> = (0..30)
        .map(|seq| {
            let end = append(&journal, 1, seq, &[7; 1000]);
            journal.release(1, seq + 1);
            end.side
        })
        .collect();
    let expected = |turn: usize| if turn.is_multiple_of(2) { Side::A } else { Side::B };
    let turns: Vec<Side> = (0..30).map(|seq| expected(seq / 4)).collect();
    assert_eq!(sides, turns, "four frames pass the mark");
    assert!(disk.files().values().all(|bytes| bytes.len() <= 256 * 1024), "nothing grew");
}

#[test]
fn a_file_with_one_unreleased_session_is_not_reused() {
    let disk = store(1);
    let (journal, _) = acquire_with(&disk, small()).unwrap();
    append(&journal, 2, 0, b"keeps a");
    for seq in 0..600 {
        let end = append(&journal, 1, seq, &[7; 1000]);
        journal.release(1, seq + 1);
        assert_eq!(end.side, if seq < 4 { Side::A } else { Side::B }, "event {seq}");
    }
    assert_eq!(disk.files()[&file("0-b.jnl")].len(), 1024 * 1024, "b grew by doubling");
    journal.release(2, 0);
    assert_eq!(append(&journal, 1, 600, b"x").side, Side::B, "released too little");
    journal.release(2, 1);
    assert_eq!(append(&journal, 1, 601, b"x").side, Side::A);
    drop(journal);
    let (_, recovered) = acquire_with(&disk, small()).unwrap();
    assert_eq!(seqs(&recovered), (4..602).collect::<Vec<_>>(), "b before a, as they were written");
}

#[test]
fn a_large_frame_finds_room_and_an_oversized_one_is_refused() {
    let disk = store(1);
    let (journal, _) = acquire(&disk);
    let large = vec![9; 11_000_000];
    append_synced(&journal, 1, 0, &large);
    append_synced(&journal, 1, 1, b"after");
    drop(journal);
    let (_, recovered) = acquire(&disk);
    assert_eq!(content(&recovered), [(1, 0, large), (1, 1, b"after".to_vec())]);
}

#[test]
fn a_failed_write_changes_nothing_and_the_next_one_goes_on() {
    let faults = [Fault::NoSpace, Fault::Io, Fault::ShortWrite, Fault::Late];
    for (fault, payload) in faults.into_iter().flat_map(|fault| [(fault, 100), (fault, 900_000)]) {
        // A frame that fits, and one that grows the file: every operation on the way fails once.
        let mut n = 0;
        loop {
            let disk = store(n);
            let (journal, _) = acquire(&disk);
            append_synced(&journal, 1, 0, b"before");
            let disk = disk.clone().fail_at(disk.operations() + n, fault, Repeat::Once, Target::Any);
            let frame = FrameWrite { session_key: 1, first_seq: 1, events: 1, payload: &vec![1; payload] };
            let failed = match journal.append(frame) {
                Ok(_) => break,
                Err(JournalError::Write { path, .. }) => {
                    assert_eq!(path, file("0-a.jnl"));
                    append_synced(&journal, 1, 1, b"after");
                    true
                }
                Err(JournalError::Sync { .. }) => {
                    let poisoned = journal.append(frame);
                    assert!(matches!(poisoned, Err(JournalError::Poisoned { .. })), "{poisoned:?}");
                    false
                }
                Err(error) => panic!("{error:?}"),
            };
            drop(journal);
            let (_, recovered) = acquire(&disk);
            let mut expected = vec![(1, 0, b"before".to_vec())];
            expected.extend(failed.then(|| (1, 1, b"after".to_vec())));
            assert_eq!(content(&recovered), expected, "{fault:?} at {n}");
            n += 1;
        }
        assert!(0 < n, "no operation failed");
    }
}

#[test]
fn a_full_disk_is_said_and_survived() {
    let disk = store(1);
    let (journal, _) = acquire(&disk);
    append_synced(&journal, 1, 0, b"before");
    let disk = disk.clone().fail_at(disk.operations(), Fault::NoSpace, Repeat::ForGood, Target::Any);
    for _ in 0..3 {
        let frame = FrameWrite { session_key: 1, first_seq: 1, events: 1, payload: &vec![1; 300_000] };
        match journal.append(frame) {
            Err(JournalError::Write { source, .. }) => {
                assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
            }
            other => panic!("{other:?}"),
        }
    }
    disk.heal();
    append_synced(&journal, 1, 1, &vec![1; 300_000]);
    drop(journal);
    assert_eq!(seqs(&acquire(&disk).1), [0, 1]);
}

#[test]
fn scrubbing_leaves_nothing_of_what_was_released() {
    let disk = store(1);
    let (journal, _) = acquire_with(&disk, small()).unwrap();
    let marker = b"the marker text of a deleted session";
    // Spread over earlier uses of both files, and the present one.
    for seq in 0..14 {
        append_synced(&journal, 1, seq, &[marker.as_slice(), &[0; 1000]].concat());
        journal.release(1, seq + 1);
    }
    append_synced(&journal, 2, 0, b"stays");
    let found = |disk: &SimDisk| {
        let files = disk.files();
        files.values().any(|bytes| bytes.windows(marker.len()).any(|window| window == marker))
    };
    assert!(found(&disk));
    // The active file still holds frames of session 1 before the frame that stays.
    journal.scrub().unwrap();
    journal.release(2, 1);
    journal.scrub().unwrap();
    assert!(!found(&disk));
    assert!(!found(&disk.after_power_loss()));
    append_synced(&journal, 2, 1, b"goes on");
    drop(journal);
    assert_eq!(seqs(&acquire_with(&disk, small()).unwrap().1), [1]);
}

#[test]
fn a_header_whose_write_was_said_to_fail_takes_no_frame_with_it() {
    for fault in [Fault::Late, Fault::ShortWrite, Fault::Io] {
        let disk = store(1);
        let (journal, _) = acquire(&disk);
        append_synced(&journal, 1, 0, b"released");
        journal.release(1, 1);
        let disk = disk.clone().fail_at(disk.operations(), fault, Repeat::Once, Target::Any);
        assert!(matches!(journal.scrub(), Err(JournalError::Write { .. })));
        append_synced(&journal, 1, 1, b"after");
        drop(journal);
        assert!(seqs(&acquire(&disk).1).ends_with(&[1]), "{fault:?}");
        assert!(seqs(&acquire(&disk.after_power_loss()).1).ends_with(&[1]), "{fault:?}");
    }
}

#[test]
fn closing_marks_the_slot_clean_only_when_everything_was_released() {
    let disk = store(1);
    let (journal, _) = acquire_with(&disk, small()).unwrap();
    for seq in 0..8 {
        append(&journal, 1, seq, &[7; 1000]);
    }
    assert!(0 < journal.live_bytes());
    journal.release(1, 7);
    assert!(!journal.close().unwrap());
    let (journal, recovered) = acquire_with(&disk, small()).unwrap();
    assert_eq!(seqs(&recovered), (0..8).collect::<Vec<_>>(), "what is released is known to the owner alone");
    journal.release(1, u64::MAX);
    assert_eq!(journal.live_bytes(), 0);
    assert!(journal.close().unwrap());
    let clean = slots(&disk.as_disk(), Path::new(FOLDER)).unwrap();
    assert!(matches!(clean[0].state, SlotState::Clean), "{clean:?}");
    assert_eq!(files(&disk), ["0-a.jnl", "0-b.jnl", "0.lock"]);
    let (journal, recovered) = acquire_with(&disk, small()).unwrap();
    assert!(recovered.frames.is_empty());
    append_synced(&journal, 1, 8, b"after a clean close");
    drop(journal);
    assert_eq!(seqs(&acquire_with(&disk, small()).unwrap().1), [8]);
}

#[test]
fn stats_count_what_was_written() {
    let disk = store(1);
    let (journal, _) = acquire(&disk);
    let before = journal.stats();
    append_synced(&journal, 1, 0, &[1; 100]);
    append_synced(&journal, 1, 1, &[1; 100]);
    let after = journal.stats();
    assert_eq!(after.syncs - before.syncs, 2);
    assert_eq!(after.frames, 2);
    assert_eq!(after.frame_bytes, 2 * 160);
    assert_eq!(after.written_bytes - before.written_bytes, 2 * 160);
}

//! Torn tails, damage, and which is which.

use super::*;

/// Four frames in `0-a.jnl`, each synced before the next one: their offsets, and the end.
fn four_frames(disk: &SimDisk) -> Vec<usize> {
    let (journal, _) = acquire(disk);
    let mut offsets = vec![FRAMES_START as usize];
    for seq in 0..4 {
        let end = append(&journal, 1, seq, format!("payload of event {seq}").as_bytes());
        journal.ticket(end, Durability::Synced).wait().unwrap();
        offsets.push(end.offset as usize);
    }
    offsets
}

fn damaged_at(outcome: &Result<(JournalSet, Recovered), JournalError>) -> Option<(u64, Option<u64>)> {
    match outcome {
        Err(JournalError::Damaged { path, offset, next_valid }) => {
            assert_eq!(*path, file("0-a.jnl"));
            Some((*offset, *next_valid))
        }
        _ => None,
    }
}

#[test]
fn a_torn_last_frame_is_dropped_and_reported_wherever_it_tears() {
    let disk = store(1);
    let offsets = four_frames(&disk);
    let (start, end) = (offsets[3], offsets[4]);
    for fill in [0x00, 0xa5] {
        // The last payload byte stands before the padding, which nobody reads.
        for tear in start..start + FRAME_HEADER_LEN + "payload of event 3".len() {
            let torn = changed(&disk, "0-a.jnl", |bytes| bytes[tear..end].fill(fill));
            let (journal, recovered) = acquire(&torn);
            assert_eq!(seqs(&recovered), [0, 1, 2], "torn at {tear}");
            let looks_like_a_frame = start + 16 <= tear;
            assert_eq!(!recovered.dropped.is_empty(), looks_like_a_frame, "torn at {tear}");
            for tail in &recovered.dropped {
                let bytes = tail.bytes; // the claimed length may be torn as well
                assert!(0 < bytes, "torn at {tear}");
                assert_eq!(*tail, DroppedTail { path: file("0-a.jnl"), offset: start as u64, bytes });
            }
            append_synced(&journal, 1, 3, b"again");
            drop(journal);
            let (_, recovered) = acquire(&torn);
            assert_eq!(seqs(&recovered), [0, 1, 2, 3], "torn at {tear}");
            assert_eq!(recovered.frames[3].payload, b"again");
            assert!(recovered.dropped.is_empty());
        }
    }
}

#[test]
fn a_flipped_byte_gives_the_right_frames_or_damage() {
    let disk = store(1);
    let offsets = four_frames(&disk);
    let right = content(&acquire(&disk).1);
    // The second acquire above wrote the second header block.
    let fields = (0..48).chain((48..4080).step_by(191)).chain(4080..4096);
    let headers: Vec<usize> = fields.clone().chain(fields.map(|at| 4096 + at)).collect();
    for at in headers.into_iter().chain(offsets[0]..offsets[4] + 16) {
        let flipped = changed(&disk, "0-a.jnl", |bytes| bytes[at] ^= 0x10);
        let outcome = acquire_with(&flipped, JournalOptions::default());
        let frame = offsets.iter().rposition(|&offset| offset <= at);
        let in_payload = |frame: usize| at < offsets[frame] + FRAME_HEADER_LEN + "payload of event n".len();
        match frame {
            Some(frame @ 0..3) if in_payload(frame) => {
                let expected = (offsets[frame] as u64, Some(offsets[frame + 1] as u64));
                assert_eq!(damaged_at(&outcome), Some(expected), "flipped {at}");
            }
            Some(3) if in_payload(3) => {
                // Nothing behind it says that it was synced.
                assert_eq!(content(&outcome.unwrap().1), right[..3], "flipped {at}");
            }
            _ => assert_eq!(content(&outcome.unwrap().1), right, "flipped {at}"),
        }
    }
}

#[test]
fn the_only_header_destroyed_is_damage() {
    let disk = store(1);
    four_frames(&disk);
    for at in (0..48).chain(4080..4096) {
        let flipped = changed(&disk, "0-a.jnl", |bytes| bytes[at] ^= 0x01);
        let outcome = acquire_with(&flipped, JournalOptions::default());
        assert_eq!(damaged_at(&outcome), Some((0, None)), "flipped {at}");
    }
}

#[test]
fn a_truncated_file_is_damage_at_its_end() {
    let disk = store(1);
    let offsets = four_frames(&disk);
    let ends = [0, 1, 4095, 4096, 8191, 8192, 100_000, 262_143];
    for len in ends.into_iter().chain(offsets[0]..offsets[4] + 8) {
        let cut = changed(&disk, "0-a.jnl", |bytes| bytes.truncate(len));
        let outcome = acquire_with(&cut, JournalOptions::default());
        if len < 4096 {
            // Less than a header: as a creation that was cut short leaves it.
            assert_eq!(content(&outcome.unwrap().1), [], "cut to {len}");
        } else {
            assert_eq!(damaged_at(&outcome), Some((len as u64, None)), "cut to {len}");
        }
    }
}

#[test]
fn zeroed_duplicated_and_swapped_frames_are_damage() {
    let disk = store(1);
    let offsets = four_frames(&disk);
    let size = offsets[1] - offsets[0];
    for frame in 0..3 {
        let at = offsets[frame];
        let next = Some(offsets[frame + 1] as u64);
        let zeroed = changed(&disk, "0-a.jnl", |bytes| bytes[at..at + size].fill(0));
        let outcome = acquire_with(&zeroed, JournalOptions::default());
        assert_eq!(damaged_at(&outcome), Some((at as u64, next)));
        let doubled = changed(&disk, "0-a.jnl", |bytes| bytes.copy_within(offsets[3]..offsets[4], at));
        let outcome = acquire_with(&doubled, JournalOptions::default());
        assert_eq!(damaged_at(&outcome), Some((at as u64, next)), "a frame is bound to its offset");
    }
    let swapped = changed(&disk, "0-a.jnl", |bytes| {
        let (front, back) = bytes.split_at_mut(4096);
        front.swap_with_slice(&mut back[..4096]);
    });
    assert_eq!(seqs(&acquire(&swapped).1), [0, 1, 2, 3], "headers are told by their counter");
}

#[test]
fn unsynced_frames_behind_a_torn_one_are_dropped_with_it_for_good() {
    let disk = store(1);
    let (journal, _) = acquire(&disk);
    append_synced(&journal, 1, 0, b"synced");
    let bad = append(&journal, 1, 1, b"torn!!");
    for seq in 2..5 {
        append(&journal, 1, seq, b"whole!");
    }
    drop(journal);
    let torn = changed(&disk, "0-a.jnl", |bytes| bytes[bad.offset as usize - 8] ^= 1);
    let (journal, recovered) = acquire(&torn);
    assert_eq!(seqs(&recovered), [0]);
    assert_eq!(recovered.dropped.len(), 1);
    assert_eq!(recovered.dropped[0].bytes, 4 * 64);
    // Of the same length as the torn one: the frames behind it stand where one would be expected.
    append_synced(&journal, 1, 1, b"again!");
    drop(journal);
    let (_, recovered) = acquire(&torn);
    assert_eq!(seqs(&recovered), [0, 1]);
    assert_eq!(recovered.frames[1].payload, b"again!");
    // Not even where the zeroes that were written over them never reached the disk.
    let before = disk.files()[&file("0-a.jnl")].clone();
    let (from, to) = (bad.offset as usize, bad.offset as usize + 3 * 64);
    let back = changed(&torn, "0-a.jnl", |bytes| bytes[from..to].copy_from_slice(&before[from..to]));
    assert_eq!(content(&acquire(&back).1), content(&recovered));
}

#[test]
fn a_creation_cut_short_is_no_damage() {
    for len in [0, 100, 4096, 8192, 100_000] {
        let disk = SimDisk::from_files(1, [(file("0-a.jnl"), vec![0; len])]);
        let (journal, recovered) = acquire(&disk);
        assert!(recovered.frames.is_empty());
        append_synced(&journal, 1, 0, b"x");
        drop(journal);
        assert_eq!(seqs(&acquire(&disk).1), [0], "from {len} zeroes");
    }
}

#[test]
fn the_newest_header_lost_is_damage_and_not_the_frames_before_it() {
    let disk = store(1);
    let (journal, _) = acquire_with(&disk, small()).unwrap();
    // Fills a, b and a again, so that a's second header has a salt of its own.
    for seq in 0..12 {
        append_synced(&journal, 1, seq, &[seq as u8; 1000]);
        journal.release(1, seq + 1);
    }
    append_synced(&journal, 1, 12, b"alive");
    drop(journal);
    let healthy = seqs(&acquire_with(&changed(&disk, "0-a.jnl", |_| {}), small()).unwrap().1);
    assert_eq!(healthy.last(), Some(&12));
    let lost = changed(&disk, "0-a.jnl", |bytes| bytes[4096..8192].fill(0));
    let outcome = acquire_with(&lost, small());
    assert_eq!(damaged_at(&outcome), Some((4096, Some(FRAMES_START))));
}

#[test]
fn another_version_is_refused_and_named() {
    let disk = store(1);
    four_frames(&disk);
    let newer = changed(&disk, "0-a.jnl", |bytes| {
        bytes[8] = 9;
        let checksum = blake3::hash(&bytes[..4080]);
        bytes[4080..4096].copy_from_slice(&checksum.as_bytes()[..16]);
    });
    let outcome = acquire_with(&newer, JournalOptions::default());
    assert!(matches!(&outcome, Err(JournalError::Version { found: 9, supported: 1, .. })), "{outcome:?}");
}

#[test]
fn a_journal_under_another_name_is_not_believed() {
    let disk = store(1);
    four_frames(&disk);
    let bytes = disk.files()[&file("0-a.jnl")].clone();
    for name in ["0-b.jnl", "1-a.jnl"] {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::from_files(1, [(file(name), bytes.clone())]));
        let states = slots(&disk, Path::new(FOLDER)).unwrap();
        let damaged = matches!(
            &states[0].state,
            SlotState::Unreadable(JournalError::Damaged { path, offset: 0, .. }) if *path == file(name)
        );
        assert!(damaged, "{states:?}");
    }
}

#[test]
fn lengths_that_are_claimed_are_not_allocated_nor_searched_without_end() {
    let disk = store(1);
    let offsets = four_frames(&disk);
    let salt = disk.files()[&file("0-a.jnl")][24..32].to_vec();
    let hostile = changed(&disk, "0-a.jnl", |bytes| {
        let len = bytes.len();
        for at in (offsets[4]..len - 64).step_by(64) {
            let left = (len - at - FRAME_HEADER_LEN) as u32;
            bytes[at..at + 4].copy_from_slice(&left.to_le_bytes());
            bytes[at + 4] = 1;
            bytes[at + 8..at + 16].copy_from_slice(&salt);
            bytes[at + 32..at + 40].copy_from_slice(&(at as u64).to_le_bytes());
        }
    });
    let outcome = acquire_with(&hostile, JournalOptions::default());
    assert_eq!(damaged_at(&outcome), Some((offsets[4] as u64, None)));
    let huge = changed(&disk, "0-a.jnl", |bytes| {
        bytes[offsets[3]..offsets[3] + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    });
    assert_eq!(seqs(&acquire(&huge).1), [0, 1, 2]);
}

#[test]
fn a_dead_slot_is_recovered_reset_and_scrubbed_by_another_process() {
    let sim = store(1);
    let (first, _) = acquire(&sim);
    let (second, _) = acquire(&sim);
    assert_eq!((first.slot(), second.slot()), (0, 1));
    append_synced(&first, 5, 0, b"left behind");
    let disk = sim.as_disk();
    let folder = Path::new(FOLDER);
    let held = recover_slot(&disk, folder, 0);
    assert!(matches!(held, Err(JournalError::Held { slot: 0, pid: Some(PID) })), "{held:?}");
    drop(first);
    let dirty: &SlotStatus = &slots(&disk, folder).unwrap()[0];
    assert_eq!(dirty.slot, 0);
    assert!(matches!(dirty.state, SlotState::Dirty { frames: 1, dropped_bytes: 0 }), "{dirty:?}");

    drop(recover_slot(&disk, folder, 0).unwrap());
    let mut recovery: SlotRecovery = recover_slot(&disk, folder, 0).unwrap();
    assert_eq!(content(recovery.recovered()), [(5, 0, b"left behind".to_vec())]);
    assert!(matches!(recover_slot(&disk, folder, 0), Err(JournalError::Held { .. })));
    recovery.reset(&mut salts(3)).unwrap();
    assert!(recovery.recovered().frames.is_empty());
    drop(recovery);
    assert!(matches!(slots(&disk, folder).unwrap()[0].state, SlotState::Clean));

    recover_slot(&disk, folder, 0).unwrap().scrub(&mut salts(3)).unwrap();
    let bytes = &sim.files()[&file("0-a.jnl")];
    assert!(bytes[FRAMES_START as usize..].iter().all(|&byte| byte == 0));
    let (again, recovered) = acquire(&sim);
    assert_eq!((again.slot(), recovered.frames.len()), (0, 0));
    append_synced(&again, 5, 1, b"works");
}

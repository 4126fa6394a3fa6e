//! Reading a live journal from another process.

use super::*;

fn follower(disk: &SimDisk, session_key: u64, from_seq: u64) -> JournalFollower {
    JournalFollower::open(disk.as_disk(), Path::new(FOLDER), 0, session_key, from_seq)
}

fn polled(follower: &mut JournalFollower) -> Vec<u64> {
    follower.poll().unwrap().iter().map(|frame| frame.first_seq).collect()
}

#[test]
fn frames_of_one_session_arrive_as_they_are_appended() {
    let disk = store(1);
    let mut early = follower(&disk, 1, 0);
    assert_eq!(polled(&mut early), [], "before the journal exists");
    let (journal, _) = acquire(&disk);
    append(&journal, 1, 0, b"a");
    append(&journal, 2, 0, b"of another session");
    append(&journal, 1, 1, b"b");
    let frames = early.poll().unwrap();
    assert_eq!(frames[1], FollowedFrame { first_seq: 1, events: 1, payload: b"b".to_vec() });
    assert_eq!(frames.len(), 2);
    assert_eq!(polled(&mut early), []);
    append(&journal, 1, 2, b"c");
    assert_eq!(polled(&mut early), [2]);
    assert_eq!(early.next_seq(), 3);
    assert_eq!(polled(&mut follower(&disk, 1, 2)), [2], "from a seq on");
    let mut skipping = follower(&disk, 1, 0);
    skipping.skip_to(1);
    assert_eq!(polled(&mut skipping), [1, 2]);
}

#[test]
fn a_frame_in_the_middle_of_its_write_is_not_there_yet() {
    let disk = store(1);
    let (journal, _) = acquire(&disk);
    append(&journal, 1, 0, b"whole");
    let end = append(&journal, 1, 1, b"in the middle of its write");
    let whole = disk.files()[&file("0-a.jnl")].clone();
    let written = end.offset as usize - 8 - 2; // up to the padding
    let half = changed(&disk, "0-a.jnl", |bytes| bytes[written - 10..].fill(0));
    let mut reader = follower(&half, 1, 0);
    assert_eq!(polled(&mut reader), [0]);
    let live = half.open(&file("0-a.jnl"), OpenMode::ReadWrite).unwrap();
    live.write_at(&whole[written - 10..], written as u64 - 10).unwrap();
    assert_eq!(polled(&mut reader), [1]);
}

#[test]
fn switches_and_new_uses_are_noticed() {
    let disk = store(1);
    let (journal, _) = acquire_with(&disk, small()).unwrap();
    let mut reader = follower(&disk, 1, 0);
    let mut read = Vec::new();
    for seq in 0..40 {
        append(&journal, 1, seq, &[7; 1000]);
        journal.release(1, seq + 1);
        if seq % 3 == 0 {
            read.extend(polled(&mut reader));
        }
    }
    read.extend(polled(&mut reader));
    assert_eq!(read, (0..40).collect::<Vec<_>>());
}

#[test]
fn a_reader_that_is_too_late_sees_the_gap_that_is_sealed() {
    let disk = store(1);
    let (journal, _) = acquire_with(&disk, small()).unwrap();
    let mut reader = follower(&disk, 1, 0);
    append(&journal, 1, 0, &[7; 1000]);
    assert_eq!(polled(&mut reader), [0]);
    for seq in 1..22 {
        append(&journal, 1, seq, &[7; 1000]);
        journal.release(1, seq + 1);
    }
    let read = polled(&mut reader);
    assert_eq!(read, (16..22).collect::<Vec<_>>(), "1..16 were released and overwritten");
}

#[test]
fn a_follower_goes_on_over_a_restart_of_the_writer() {
    let disk = store(1);
    let (journal, _) = acquire_with(&disk, small()).unwrap();
    let mut reader = follower(&disk, 1, 0);
    append(&journal, 1, 0, b"x");
    assert_eq!(polled(&mut reader), [0]);
    drop(journal);
    let (journal, _) = acquire_with(&disk, small()).unwrap();
    append(&journal, 1, 1, b"x");
    assert_eq!(polled(&mut reader), [1]);
    journal.release(1, 2);
    assert!(journal.close().unwrap());
    assert_eq!(polled(&mut reader), []);
    let (journal, _) = acquire_with(&disk, small()).unwrap();
    append(&journal, 1, 2, b"x");
    assert_eq!(polled(&mut reader), [2]);
}

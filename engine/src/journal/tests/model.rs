//! The journal against a naive model: a list of frames, and how far each session is released.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Append {
        session: u64,
        events: u32,
        bytes: usize,
    },
    Release {
        session: u64,
        share: u64,
    },
    Wait,
    Flush,
    Scrub,
    /// The process ends without a word.
    Kill,
    Close,
    /// The machine ends after a flush.
    PowerLoss,
    TakeOver,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u64..3, 1u32..4, prop_oneof![1usize..200, 200usize..3000]).prop_map(|(session, events, bytes)| {
            Step::Append { session, events, bytes }
        }),
        4 => (0u64..3, 0u64..3).prop_map(|(session, share)| Step::Release { session, share }),
        2 => Just(Step::Wait),
        1 => Just(Step::Flush),
        1 => Just(Step::Scrub),
        1 => Just(Step::Kill),
        1 => Just(Step::Close),
        1 => Just(Step::PowerLoss),
        1 => Just(Step::TakeOver),
    ]
}

#[derive(Default)]
struct Model {
    /// Session, first seq, events and payload of everything that was ever appended.
    frames: Vec<(u64, u64, u32, Vec<u8>)>,
    next: BTreeMap<u64, u64>,
    released: BTreeMap<u64, u64>,
}

impl Model {
    fn check(&self, recovered: &Recovered) {
        let mut history = self.frames.iter();
        for frame in &recovered.frames {
            let same = |(session, first_seq, events, payload): &&(u64, u64, u32, Vec<u8>)| {
                *session == frame.session_key
                    && *first_seq == frame.first_seq
                    && *events == frame.events
                    && *payload == frame.payload
            };
            assert!(history.any(|written| same(&written)), "{frame:?} was not written, or not in this order");
        }
        for (session, first_seq, events, _) in &self.frames {
            let released = self.released.get(session).copied().unwrap_or(0);
            let found = recovered
                .frames
                .iter()
                .any(|frame| frame.session_key == *session && frame.first_seq == *first_seq);
            assert!(
                found || first_seq + u64::from(*events) <= released,
                "session {session}, seq {first_seq} is lost"
            );
        }
        assert!(recovered.dropped.is_empty(), "{:?}", recovered.dropped);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_journal_holds_what_a_list_would(
        steps in prop::collection::vec(step(), 1..60),
        switch in 0u64..12_000,
        seed: u64,
    ) {
        let options = JournalOptions { switch_bytes: FRAMES_START + switch };
        let open = |disk: &SimDisk| {
            JournalSet::acquire(disk.as_disk(), Path::new(FOLDER), options, salts(seed), PID).unwrap()
        };
        let mut disk = store(seed);
        let mut model = Model::default();
        let mut journal = open(&disk).0;
        let mut last = None;
        let mut reader = JournalFollower::open(disk.as_disk(), Path::new(FOLDER), 0, 0, 0);
        for (nth, step) in steps.into_iter().enumerate() {
            match step {
                Step::Append { session, events, bytes } => {
                    let next = model.next.entry(session).or_insert(0);
                    let payload = vec![nth as u8; bytes];
                    let frame = FrameWrite { session_key: session, first_seq: *next, events, payload: &payload };
                    last = Some(journal.append(frame).unwrap());
                    model.frames.push((session, *next, events, payload));
                    *next += u64::from(events);
                }
                Step::Release { session, share } => {
                    let next = model.next.get(&session).copied().unwrap_or(0);
                    let to = next.saturating_sub(share);
                    journal.release(session, to);
                    let released = model.released.entry(session).or_insert(0);
                    *released = to.max(*released);
                }
                Step::Wait => {
                    if let Some(end) = last.take() {
                        journal.ticket(end, Durability::Synced).wait().unwrap();
                    }
                }
                Step::Flush => journal.flush().unwrap(),
                Step::Scrub => journal.scrub().unwrap(),
                Step::Kill | Step::Close | Step::PowerLoss | Step::TakeOver => {
                    last = None;
                    match step {
                        Step::Close => drop(journal.close().unwrap()),
                        Step::PowerLoss => {
                            journal.flush().unwrap();
                            drop(journal);
                            disk = disk.after_power_loss();
                        }
                        Step::TakeOver => {
                            drop(journal);
                            let mut recovery =
                                recover_slot(&disk.as_disk(), Path::new(FOLDER), 0).unwrap();
                            model.check(recovery.recovered());
                            recovery.reset(&mut salts(seed ^ 1)).unwrap();
                            model.released = model.next.clone();
                        }
                        _ => drop(journal),
                    }
                    let recovered;
                    (journal, recovered) = open(&disk);
                    model.check(&recovered);
                    reader = JournalFollower::open(disk.as_disk(), Path::new(FOLDER), 0, 0, reader.next_seq());
                }
            }
            // Every frame of session 0 is followed once, or was released before it was read.
            let known = reader.next_seq();
            let frames = reader.poll().unwrap();
            let expected: Vec<_> = model
                .frames
                .iter()
                .filter(|(session, first_seq, ..)| *session == 0 && known <= *first_seq)
                .map(|(_, first_seq, events, payload)| FollowedFrame {
                    first_seq: *first_seq,
                    events: *events,
                    payload: payload.clone(),
                })
                .collect();
            prop_assert_eq!(frames, expected);
        }
    }
}

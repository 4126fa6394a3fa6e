//! Power cut, and errors injected, at every operation of a seeded workload.

use std::collections::BTreeMap;

use rederive_disk::sim::{Fault, Repeat, Target};

use super::*;

const SESSIONS: u64 = 3;

/// What the host knows after a run.
#[derive(Default)]
struct History {
    /// Payloads of each session, by seq.
    written: BTreeMap<u64, Vec<Vec<u8>>>,
    /// How many of them were acknowledged as synced.
    acknowledged: BTreeMap<u64, u64>,
    released: BTreeMap<u64, u64>,
    /// The last append failed in a way that leaves open whether it is there.
    unsure: bool,
}

impl History {
    fn next(&self, session: u64) -> u64 {
        self.written.get(&session).map_or(0, |payloads| payloads.len() as u64)
    }

    fn acknowledge_all(&mut self) {
        for (session, payloads) in &self.written {
            self.acknowledged.insert(*session, payloads.len() as u64);
        }
    }

    /// What is recovered follows on what is released without a gap, is what was written, and goes
    /// at least up to what was acknowledged.
    fn check(&self, recovered: &Recovered, context: &str) {
        for session in 0..SESSIONS {
            let released = self.released.get(&session).copied().unwrap_or(0);
            let acknowledged = self.acknowledged.get(&session).copied().unwrap_or(0);
            let mut next = released;
            for frame in recovered.frames.iter().filter(|frame| frame.session_key == session) {
                let written = self.written.get(&session);
                let written = written.and_then(|payloads| payloads.get(frame.first_seq as usize));
                assert_eq!(Some(&frame.payload), written, "{context}: session {session}");
                if released <= frame.first_seq {
                    assert_eq!(frame.first_seq, next, "{context}: session {session}");
                    next += 1;
                }
            }
            assert!(acknowledged <= next, "{context}: session {session}: {next} of {acknowledged}");
        }
    }

    /// What a host knows after it has read what survived.
    fn adopt(&mut self, recovered: &Recovered) {
        for (session, payloads) in &mut self.written {
            let frames = recovered.frames.iter().filter(|frame| frame.session_key == *session);
            let found = frames.map(|frame| frame.first_seq + 1).max().unwrap_or(0);
            let released = self.released.get(session).copied().unwrap_or(0);
            payloads.truncate(found.max(released) as usize);
        }
        self.acknowledge_all();
    }

    /// How many frames are not released.
    fn unreleased(&self) -> u64 {
        let of = |session: &u64| self.next(*session) - self.released.get(session).copied().unwrap_or(0);
        self.written.keys().map(of).sum()
    }
}

/// Runs a workload until it ends, or until an error that `goes_on` does not know.
///
/// With `goes_on`, errors are met as a host would: a frame that failed is not written, a poisoned
/// journal is reopened.
fn run(disk: &SimDisk, seed: u64, goes_on: bool, history: History) -> Result<History, History> {
    let mut random = Random(seed);
    let mut history = history;
    let open = |history: &mut History, salt: u64| {
        let options = JournalOptions { switch_bytes: FRAMES_START + 6000 };
        let mut tries = 0;
        loop {
            let opened =
                JournalSet::acquire(disk.as_disk(), Path::new(FOLDER), options, salts(seed ^ salt), PID);
            match opened {
                Ok((journal, recovered)) => {
                    history.check(&recovered, &format!("seed {seed}, reopened"));
                    let frames = recovered.frames.len() as u64;
                    if std::mem::take(&mut history.unsure) {
                        history.adopt(&recovered);
                    }
                    assert!(history.unreleased() <= frames, "seed {seed}: a kill loses nothing");
                    history.acknowledge_all();
                    return Some(journal);
                }
                Err(JournalError::Damaged { path, offset, .. }) => {
                    panic!("seed {seed}: {} called damaged at {offset}", path.display())
                }
                Err(_) if goes_on && tries < 3 => tries += 1,
                Err(_) => return None,
            }
        }
    };
    let Some(mut journal) = open(&mut history, 0) else { return Err(history) };
    for nth in 1..=30 {
        let session = random.below(SESSIONS);
        let outcome = match random.below(16) {
            0..8 => {
                let first_seq = history.next(session);
                // Now and then one that makes its file grow.
                let bytes = if random.below(24) == 0 { 300_000 } else { random.below(2500) };
                let payload = vec![nth as u8; 1 + bytes as usize];
                let synced = random.below(2) == 0;
                let frame = FrameWrite { session_key: session, first_seq, events: 1, payload: &payload };
                let appended = journal.append(frame);
                if !(goes_on && matches!(appended, Err(JournalError::Write { .. }))) {
                    history.unsure = appended.is_err();
                    history.written.entry(session).or_default().push(payload);
                }
                appended.and_then(|end| {
                    if synced {
                        journal.ticket(end, Durability::Synced).wait()?;
                        history.acknowledged.insert(session, first_seq + 1);
                    }
                    Ok(())
                })
            }
            8..12 => {
                let to = history.next(session);
                journal.release(session, to);
                history.released.insert(session, to);
                Ok(())
            }
            12 => journal.flush().map(|()| history.acknowledge_all()),
            13 => journal.scrub(),
            14 => {
                let closed = journal.close().map(drop);
                let Some(opened) = open(&mut history, nth) else { return Err(history) };
                journal = opened;
                closed
            }
            _ => {
                drop(journal);
                let Some(opened) = open(&mut history, nth) else { return Err(history) };
                journal = opened;
                Ok(())
            }
        };
        match outcome {
            Ok(()) | Err(JournalError::Write { .. }) if goes_on || outcome.is_ok() => {}
            Err(_) if goes_on => {
                drop(journal);
                let Some(opened) = open(&mut history, nth) else { return Err(history) };
                journal = opened;
            }
            _ => return Err(history),
        }
    }
    Ok(history)
}

/// How many seeds the tests here take: a few, or `REDERIVE_SEEDS`. `REDERIVE_SEED` takes one.
fn seeds(few: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match number("REDERIVE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("REDERIVE_SEEDS").unwrap_or(few),
    }
}

/// Checks what is recovered from the disk, twice, and gives it.
fn recovers(disk: &SimDisk, history: &History, context: &str) -> Recovered {
    let (journal, recovered) =
        acquire_with(disk, small()).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    history.check(&recovered, context);
    drop(journal);
    for again in [disk.clone(), disk.after_power_loss()] {
        let (_, second) = acquire_with(&again, small()).unwrap();
        assert_eq!(second.frames, recovered.frames, "{context}: a second recovery");
        assert_eq!(second.dropped, [], "{context}: a second recovery");
    }
    recovered
}

#[test]
fn a_power_cut_anywhere_keeps_what_was_synced() {
    let mut cuts = 0;
    for seed in seeds(2) {
        let whole = store(seed);
        let before = whole.operations();
        assert!(run(&whole, seed, false, History::default()).is_ok(), "seed {seed}: the workload itself");
        for cut in before..whole.operations() {
            let mut disk = store(seed.wrapping_mul(1_000_003) ^ cut).cut_at(cut);
            let mut history = History::default();
            // The first life ends at the cut; the ones after it go on with what survived, and end
            // anywhere.
            for life in 0..3 {
                let seed = seed.wrapping_add(life << 32);
                history = match run(&disk, seed, false, history) {
                    Ok(history) if 0 < life => history,
                    Ok(_) => panic!("seed {seed}, cut {cut}: no cut"),
                    Err(history) => history,
                };
                let context = format!("seed {seed}, cut {cut}, life {life}");
                let survived = disk.after_power_loss();
                history.adopt(&recovers(&survived, &history, &context));
                // The same loss once more, not yet recovered.
                disk = disk.after_power_loss().cut_at(Random(seed ^ cut).below(150));
            }
            cuts += 1;
        }
    }
    assert!(50 < cuts, "{cuts} cuts");
    println!("{cuts} cuts");
}

#[test]
fn an_error_at_any_operation_loses_and_doubles_nothing() {
    let mut errors = 0;
    for seed in seeds(1) {
        let whole = store(seed);
        let before = whole.operations();
        assert!(run(&whole, seed, true, History::default()).is_ok(), "seed {seed}: the workload itself");
        for (at, fault) in (before..whole.operations()).flat_map(|at| {
            [Fault::NoSpace, Fault::Io, Fault::ShortWrite, Fault::Late].map(|fault| (at, fault))
        }) {
            let context = format!("seed {seed}, {fault:?} at {at}");
            let disk = store(seed.wrapping_mul(7919) ^ at).fail_at(at, fault, Repeat::Once, Target::Any);
            // Half of the runs meet a second error, often while they deal with the first one.
            let mut random = Random(seed ^ at);
            let second = at + 1 + random.below(12);
            let faults = [Fault::Io, Fault::ShortWrite, Fault::Late];
            let disk = match faults.get(random.below(6) as usize) {
                Some(fault) => disk.fail_at(second, *fault, Repeat::Once, Target::Any),
                None => disk,
            };
            let Ok(mut history) = run(&disk, seed, true, History::default()) else {
                panic!("{context}: did not go on")
            };
            disk.heal();
            recovers(&disk.after_power_loss(), &history, &format!("{context}, power loss"));
            let acknowledged = std::mem::take(&mut history.acknowledged);
            history.acknowledge_all();
            recovers(&disk, &history, &context);
            assert!(acknowledged.len() <= history.acknowledged.len());
            errors += 1;
        }
    }
    assert!(100 < errors, "{errors} errors");
    println!("{errors} errors");
}

#[test]
fn a_cut_while_a_file_grows_is_no_damage() {
    for seed in 0..40 {
        for cut in 0.. {
            let disk = store(seed);
            let (journal, _) = acquire(&disk);
            append_synced(&journal, 1, 0, b"before");
            let disk = disk.clone().cut_at(disk.operations() + cut);
            let frame = FrameWrite { session_key: 1, first_seq: 1, events: 1, payload: &vec![1; 300_000] };
            let appended = journal.append(frame);
            let synced = appended.and_then(|end| journal.ticket(end, Durability::Synced).wait()).is_ok();
            let (_, recovered) = acquire(&disk.after_power_loss());
            assert!(seqs(&recovered).starts_with(&[0]), "seed {seed}, cut {cut}");
            if synced {
                assert_eq!(seqs(&recovered), [0, 1], "seed {seed}, cut {cut}");
                break;
            }
        }
    }
}

#[test]
fn a_frame_whose_write_was_said_to_fail_never_turns_up() {
    for seed in 0..20 {
        let disk = store(seed);
        let (journal, _) = acquire(&disk);
        append_synced(&journal, 1, 0, b"before");
        let disk = disk.clone().fail_at(disk.operations(), Fault::Late, Repeat::Once, Target::Any);
        let frame = FrameWrite { session_key: 1, first_seq: 1, events: 1, payload: b"written all the same" };
        assert!(matches!(journal.append(frame), Err(JournalError::Write { .. })));
        assert_eq!(seqs(&acquire(&disk.after_power_loss()).1), [0], "seed {seed}");
    }
}

#[test]
fn a_synced_frame_in_one_file_has_its_buffered_predecessors_in_the_other() {
    for seed in 0..20 {
        let disk = store(seed);
        let (journal, _) = acquire_with(&disk, small()).unwrap();
        let sides: Vec<Side> = (0..5).map(|seq| append(&journal, 1, seq, &[1; 1000]).side).collect();
        assert_eq!(sides, [Side::A, Side::A, Side::A, Side::A, Side::B]);
        append_synced(&journal, 1, 5, b"synced");
        let (_, recovered) = acquire_with(&disk.after_power_loss(), small()).unwrap();
        assert_eq!(seqs(&recovered), (0..6).collect::<Vec<_>>(), "seed {seed}");
    }
}

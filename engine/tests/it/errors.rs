//! An operation of the disk that fails gives a typed error, and loses and doubles nothing.

use std::collections::BTreeMap;

use rederive_disk::sim::{Fault, Repeat, SimDisk, Target};

use crate::sim::{Floor, History, Mode, Named, Outcome, in_parallel, is_long, run, seeds};

const OPERATIONS: u64 = 24;

#[derive(Clone, Copy, Debug)]
struct Case {
    seed: u64,
    at: u64,
    fault: Fault,
    repeat: Repeat,
    target: Target,
}

/// Every fault at every operation, and at every sync.
fn cases(seed: u64) -> Vec<Case> {
    let disk = SimDisk::new(seed);
    let outcome = run(&disk, seed, Mode::Cut, OPERATIONS, &mut History::default());
    assert_eq!(outcome, Outcome::Closed, "seed {seed}: the workload itself");
    let mut cases = Vec::new();
    for at in 0..disk.operations() {
        for (fault, repeat) in [
            (Fault::NoSpace, Repeat::Once),
            (Fault::NoSpace, Repeat::ForGood),
            (Fault::Io, Repeat::Once),
            (Fault::Io, Repeat::ForGood),
            (Fault::ShortWrite, Repeat::Once),
            (Fault::ShortWrite, Repeat::ForGood),
            (Fault::Late, Repeat::Once),
        ] {
            cases.push(Case { seed, at, fault, repeat, target: Target::Any });
        }
    }
    for at in 0..disk.syncs() {
        for repeat in [Repeat::Once, Repeat::ForGood] {
            cases.push(Case { seed, at, fault: Fault::Io, repeat, target: Target::Syncs });
        }
    }
    cases
}

fn check(case: &Case) {
    let Case { seed, at, fault, repeat, target } = *case;
    let context = format!("{case:?}");
    let _named = Named(context.clone());
    let disk = SimDisk::new(seed.wrapping_mul(7919) ^ at).fail_at(at, fault, repeat, target);
    let mut history = History::default();
    let outcome = run(&disk, seed, Mode::Fault, OPERATIONS, &mut history);
    assert_eq!(outcome, Outcome::Closed, "{context}");
    disk.heal();
    history.clone().survives(&disk.after_power_loss(), Floor::Synced, &format!("{context}, power lost"));
    history.survives(&disk, Floor::Visible, &context);
}

/// Short: a sample of all faults of a few seeds. `REDERIVE_LONG=1`: every fault of many.
#[test]
fn an_error_at_any_operation_loses_and_doubles_nothing() {
    let seeds = seeds(4, 24);
    let mut chosen = Vec::new();
    for (nth, seed) in seeds.iter().enumerate() {
        let sample = if is_long() { 1 } else { 41 };
        chosen.extend(cases(*seed).into_iter().skip(nth).step_by(sample));
    }
    in_parallel(&chosen, check);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for case in &chosen {
        *counts.entry(format!("{:?} {:?} {:?}", case.fault, case.repeat, case.target)).or_default() += 1;
    }
    println!("{} errors, {} seeds: {counts:?}", chosen.len(), seeds.len());
    assert!(100 < chosen.len());
}

/// A commit of the index that fails may be there: the import must leave its segments alone.
#[test]
fn an_import_whose_commit_fails_late_is_whole_or_absent() {
    for at in 234..244 {
        for fault in [Fault::Io, Fault::Late] {
            check(&Case { seed: 1, at, fault, repeat: Repeat::Once, target: Target::Any });
        }
    }
}

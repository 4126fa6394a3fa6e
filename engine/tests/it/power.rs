//! A loss of power at any operation of the disk is no damage and loses nothing that was synced.

use rederive_disk::sim::SimDisk;

use crate::sim::{Floor, History, Mode, Named, Outcome, Random, in_parallel, is_long, run, seeds};

/// How many things a life does.
const OPERATIONS: u64 = 24;

/// How many operations of the disk the workload of `seed` takes.
fn disk_operations(seed: u64) -> u64 {
    let disk = SimDisk::new(seed);
    let mut history = History::default();
    assert_eq!(run(&disk, seed, Mode::Cut, OPERATIONS, &mut history), Outcome::Closed, "seed {seed}");
    history.survives(&disk.after_power_loss(), Floor::Synced, &format!("seed {seed}, no cut"));
    disk.operations()
}

/// Cuts the workload of `seed` at operation `cut`, then the life that recovers from it; the third
/// life comes to its end. Gives how many cuts came about.
fn check(seed: u64, cut: u64) -> u64 {
    let context = format!("seed {seed}, cut {cut}");
    let _named = Named(context.clone());
    let mut history = History::default();
    let disk = SimDisk::new(seed.wrapping_mul(1_000_003) ^ cut).cut_at(cut);
    if run(&disk, seed, Mode::Cut, OPERATIONS, &mut history) == Outcome::Closed {
        return 0;
    }
    if cut % 4 == 0 {
        let killed = SimDisk::from_files(seed, disk.files());
        history.clone().survives(&killed, Floor::Visible, &format!("{context}, killed"));
    }
    history.survives(&disk.after_power_loss(), Floor::Synced, &context);
    // The same loss once more, not yet recovered: often the recovery itself is cut.
    let mut random = Random(seed ^ (cut << 20));
    let within = if random.one_in(2) { 40 } else { 400 };
    let disk = disk.after_power_loss().cut_at(random.below(within));
    let outcome = run(&disk, random.next(), Mode::Cut, OPERATIONS / 2, &mut history);
    let disk = disk.after_power_loss();
    history.survives(&disk, Floor::Synced, &format!("{context}, second life"));
    let last = run(&disk, random.next(), Mode::Cut, OPERATIONS / 3, &mut history);
    assert_eq!(last, Outcome::Closed, "{context}, third life");
    history.survives(&disk.after_power_loss(), Floor::Synced, &format!("{context}, third life"));
    1 + u64::from(outcome == Outcome::Cut)
}

/// Short: a sample of all cuts of a few seeds. `REDERIVE_LONG=1`: every cut of many.
#[test]
fn a_power_cut_anywhere_keeps_what_was_synced() {
    let seeds = seeds(6, 60);
    let sample = if is_long() { 1 } else { 17 };
    let mut pairs = Vec::new();
    for (nth, seed) in seeds.iter().enumerate() {
        let first = nth as u64 % sample;
        pairs.extend((first..disk_operations(*seed)).step_by(sample as usize).map(|cut| (*seed, cut)));
    }
    let cuts: u64 = in_parallel(&pairs, |(seed, cut)| check(*seed, *cut)).into_iter().sum();
    println!("{cuts} cuts, {} seeds", seeds.len());
    assert!(pairs.len() as u64 <= cuts, "{cuts} of {}", pairs.len());
}

/// Where a store was cut off while it was made: without folders beside its name, the name of a
/// segment was never durable; an index that was half made did not open.
#[test]
fn a_store_that_was_cut_off_while_it_was_made_is_made_or_opened() {
    for (seed, cut) in (0..20).flat_map(|seed| (0..45).map(move |cut| (seed, cut))).step_by(31) {
        assert!(0 < check(seed, cut), "seed {seed}, cut {cut}");
    }
    assert!(0 < check(0, 8) && 0 < check(0, 26));
}

//! A put leaves a whole object or none, whatever happens to the disk meanwhile.

use std::path::Path;

use rederive_cas::{Digest, GetError, Objects, PutError};
use rederive_disk::sim::{Fault, Repeat, SimDisk, Target};
use rederive_disk::{Disk, OpenMode};

use crate::samples::{self, noise};

const FOLDER: &str = "/store/objects";

fn objects_of_every_kind() -> [Vec<u8>; 2] {
    [noise(3, 3000), b"a text that repeats itself, ".repeat(100)]
}

fn try_open(disk: &SimDisk) -> Option<Objects> {
    let options = samples::options(&samples::Clock::default());
    Objects::open(std::sync::Arc::new(disk.clone()), FOLDER, options).ok()
}

/// A disk with a store in it that holds one object.
fn prepared(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    try_open(&disk).unwrap().put(b"there before").unwrap();
    disk
}

/// What was acknowledged is there; what was not is there whole or not at all.
fn check(disk: SimDisk, object: &[u8], acknowledged: bool, context: &str) {
    let objects = samples::open(disk, FOLDER);
    let digest = Digest::of(object);
    assert_eq!(objects.get(&Digest::of(b"there before")).unwrap(), b"there before", "{context}");
    match objects.get(&digest) {
        Ok(got) => assert_eq!(got, object, "{context}"),
        Err(GetError::Missing { .. }) => assert!(!acknowledged, "{context}"),
        Err(other) => panic!("{context}: {other}"),
    }
    let report = objects.verify(|_| {}).unwrap();
    assert!(report.bad.is_empty() && report.foreign.is_empty(), "{context}: {report:?}");
    assert_eq!(objects.put(object).unwrap(), digest, "{context}");
    assert_eq!(objects.get(&digest).unwrap(), object, "{context}");
}

#[test]
fn a_power_cut_anywhere_in_a_put_leaves_a_whole_object_or_none() {
    let seeds = std::env::var("REDERIVE_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let mut cuts = 0;
    for seed in seeds.map_or(0..40, |seed| seed..seed + 1) {
        for object in objects_of_every_kind() {
            for cut in 0.. {
                let disk = prepared(seed);
                let disk = disk.clone().cut_at(disk.operations() + cut);
                let acknowledged = try_open(&disk).is_some_and(|objects| objects.put(&object).is_ok());
                let was_cut = disk.power_lost();
                check(disk.after_power_loss(), &object, acknowledged, &format!("seed {seed}, cut {cut}"));
                if !was_cut {
                    assert!(acknowledged);
                    break;
                }
                cuts += 1;
            }
        }
    }
    assert!(1 < cuts, "a put has operations");
}

#[test]
fn a_failure_anywhere_in_a_put_is_an_error_that_can_be_tried_again() {
    for fault in [Fault::NoSpace, Fault::Io, Fault::ShortWrite, Fault::Late] {
        for repeat in [Repeat::Once, Repeat::ForGood] {
            for object in objects_of_every_kind() {
                for at in 0..40 {
                    let context = format!("{fault:?} {repeat:?} at {at}");
                    let disk = prepared(at);
                    let disk = disk.clone().fail_at(disk.operations() + at, fault, repeat, Target::Any);
                    let objects = try_open(&disk).unwrap();
                    let put = objects.put(&object);
                    disk.heal();
                    if let Err(error) = &put {
                        assert!(matches!(error, PutError::Disk(_)), "{context}: {error}");
                    }
                    // In the same process, which knows what it cannot trust; then after a loss of power.
                    assert_eq!(objects.put(&object).unwrap(), Digest::of(&object), "{context}");
                    check(disk.after_power_loss(), &object, true, &context);
                }
            }
        }
    }
}

#[test]
fn a_full_disk_leaves_no_object_and_no_leftover() {
    let object = noise(5, 5000);
    let mut failed = 0;
    for at in 0..40 {
        let disk = prepared(at);
        let disk = disk.clone().fail_at(disk.operations() + at, Fault::NoSpace, Repeat::ForGood, Target::Any);
        let objects = try_open(&disk).unwrap();
        if let Err(error) = objects.put(&object) {
            failed += 1;
            assert!(matches!(error, PutError::Disk(_)));
            assert!(matches!(objects.get(&Digest::of(&object)), Err(GetError::Missing { .. })), "at {at}");
            assert_eq!(disk.list(&Path::new(FOLDER).join("tmp")).unwrap(), [], "at {at}");
        }
    }
    assert!(0 < failed);
}

#[test]
fn a_store_is_made_whole_or_made_again() {
    for seed in 0..20 {
        for cut in 0..30 {
            let disk = SimDisk::new(seed).cut_at(cut);
            let acknowledged = try_open(&disk).is_some_and(|objects| objects.put(b"first").is_ok());
            let objects = samples::open(disk.after_power_loss(), FOLDER);
            let got = objects.get(&Digest::of(b"first"));
            assert!(got.is_ok() || !acknowledged, "seed {seed}, cut {cut}");
            objects.put(b"first").unwrap();
        }
    }
}

#[test]
fn a_put_of_what_another_process_has_not_made_durable_yet_makes_it_durable() {
    let disk = SimDisk::new(9);
    let other = samples::open(disk.clone(), FOLDER);
    let digest = other.put(b"seen, not synced").unwrap();
    // The same file under its name, as a put leaves it between its rename and its sync.
    let path = other.path(&digest);
    let file = disk.open(&path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    rederive_disk::read_exact_at(&*file, &mut bytes, 0).unwrap();
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let objects = samples::open(disk.clone(), FOLDER);
        let temporary = Path::new(FOLDER).join("tmp/other");
        let file = disk.open(&temporary, OpenMode::CreateNew).unwrap();
        file.write_at(&bytes, 0).unwrap();
        file.sync().unwrap();
        disk.create_folder(path.parent().unwrap()).unwrap();
        disk.rename(&temporary, &path).unwrap();
        objects.put(b"seen, not synced").unwrap();
        let after = samples::open(disk.after_power_loss(), FOLDER);
        assert_eq!(after.get(&digest).unwrap(), b"seen, not synced", "seed {seed}");
    }
}

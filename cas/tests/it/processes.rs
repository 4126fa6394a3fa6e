//! Equal puts end in one object, and a kill leaves a whole one or none.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rederive_cas::{Digest, Objects, Sweep};
use rederive_disk::OsDisk;

use crate::samples::{self, noise};

const FOLDER: &str = "REDERIVE_CAS_TEST_FOLDER";
const SEED: &str = "REDERIVE_CAS_TEST_SEED";

/// Not a test of its own: what the other processes run. Puts objects from a seed and says so, until
/// it is killed or has put 50.
#[test]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let objects = samples::open(OsDisk, folder);
    for number in seed..seed + 50 {
        println!("put {}", objects.put(&object(number)).unwrap());
    }
}

fn object(number: u64) -> Vec<u8> {
    let mut object = noise(number, 200_000);
    if number.is_multiple_of(2) {
        // Bytes that compress.
        for byte in &mut object {
            *byte &= 3;
        }
    }
    object
}

fn spawn(folder: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["processes::child", "--exact", "--nocapture"])
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn lines(child: &mut Child) -> impl Iterator<Item = Digest> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.filter_map(|line| line.split("put ").nth(1)?.parse().ok())
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn equal_puts_of_several_threads_end_in_one_object() {
    let folder = tempfile::tempdir().unwrap();
    let objects = samples::open(OsDisk, folder.path());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).map(object).for_each(|object| assert!(objects.put(&object).is_ok())));
        }
    });
    check(&objects, 20);
}

#[test]
fn equal_puts_of_several_processes_end_in_one_object() {
    let folder = tempfile::tempdir().unwrap();
    let mut children = [(); 3].map(|()| spawn(folder.path(), 0));
    for child in &mut children {
        assert_eq!(lines(child).count(), 50);
        assert!(child.wait().unwrap().success());
    }
    check(&samples::open(OsDisk, folder.path()), 50);
}

fn check(objects: &Objects, expected: u64) {
    let report = objects.verify(|_| {}).unwrap();
    assert_eq!((report.sound, report.bad.len(), report.foreign.len()), (expected, 0, 0));
    assert_eq!(files(&objects.folder().join("tmp")), 0);
    for number in 0..expected {
        assert_eq!(objects.get(&Digest::of(&object(number))).unwrap(), object(number));
    }
}

#[test]
fn a_kill_at_any_moment_leaves_whole_objects_and_what_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let objects = samples::open(OsDisk, folder.path());
    let mut killed = 0;
    for round in 0..30 {
        let mut child = spawn(folder.path(), round * 50);
        let mut put = lines(&mut child);
        let mut acknowledged: Vec<_> = put.by_ref().take(round as usize % 7).collect();
        // A moment that differs from round to round, inside the put that follows.
        for _ in 0..round * 20_000 {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        acknowledged.extend(put);
        for digest in acknowledged {
            objects.get(&digest).unwrap();
        }
        let report = objects.verify(|_| {}).unwrap();
        assert!(report.bad.is_empty() && report.foreign.is_empty(), "round {round}: {report:?}");
    }
    assert!(0 < killed);
    let sweep = Sweep { now_ms: 0, grace: Duration::ZERO, dry_run: false };
    let report = objects.sweep(|_| true, sweep).unwrap();
    assert!(report.freed.is_empty() && !report.busy);
    assert_eq!(files(&folder.path().join("tmp")), 0);
}

//! A sweep frees what nobody references, and nothing else.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rederive_cas::{Digest, Objects, Sweep};
use rederive_disk::{Disk, OpenMode, OsDisk};

use crate::samples::{self, Clock};

fn store() -> (tempfile::TempDir, Clock, Objects) {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::default());
    let objects = Objects::open(Arc::new(OsDisk), folder.path(), samples::options(&clock)).unwrap();
    (folder, clock, objects)
}

/// At `now_ms`, with a grace of ten seconds; the store adds its refresh of one.
fn at(now_ms: u64) -> Sweep {
    Sweep { now_ms, grace: Duration::from_secs(10), dry_run: false }
}

#[test]
fn only_what_is_old_and_not_referenced_goes() {
    let (_folder, clock, objects) = store();
    clock.set(1000);
    let [kept, old] = [b"kept", b"gone"].map(|object| objects.put(object).unwrap());
    clock.set(5000);
    let young = objects.put(b"young").unwrap();
    let is_referenced = |digest: &Digest| *digest == kept;

    let dry = objects.sweep(is_referenced, Sweep { dry_run: true, ..at(12_000) }).unwrap();
    assert_eq!(objects.list().unwrap().len(), 3);
    assert_eq!(dry.freed.iter().map(|freed| freed.digest).collect::<Vec<_>>(), [old]);
    let report = objects.sweep(is_referenced, at(12_000)).unwrap();
    assert_eq!((report.freed, report.freed_bytes), (dry.freed, 64 + 4));
    assert_eq!((report.referenced, report.young, report.busy), (1, 1, false));
    let mut left = vec![kept, young];
    left.sort_unstable();
    assert_eq!(objects.list().unwrap(), left);
    assert_eq!(objects.sweep(|_| false, at(15_999)).unwrap().freed.len(), 1);
    assert_eq!(objects.sweep(|_| false, at(16_000)).unwrap().freed.len(), 1);
    assert_eq!(objects.list().unwrap(), []);
}

#[test]
fn an_equal_put_gives_the_grace_anew() {
    let (_folder, clock, objects) = store();
    clock.set(1000);
    let digest = objects.put(b"used again").unwrap();
    clock.set(2000); // within the refresh: not written again, which the sweep makes up for
    objects.put(b"used again").unwrap();
    assert_eq!(objects.stat(&digest).unwrap().put_ms, 1000);
    assert!(objects.sweep(|_| false, at(11_999)).unwrap().freed.is_empty());
    clock.set(11_999);
    objects.put(b"used again").unwrap();
    assert_eq!(objects.stat(&digest).unwrap().put_ms, 11_999);
    assert!(objects.sweep(|_| false, at(20_000)).unwrap().freed.is_empty());
}

#[test]
fn leftovers_and_damage_go_and_a_living_put_keeps_its_file() {
    let (folder, _clock, objects) = store();
    let digest = objects.put(b"soon damaged").unwrap();
    fs::remove_file(objects.path(&digest)).unwrap();
    fs::write(objects.path(&digest), "damage").unwrap();
    let left = folder.path().join("tmp").join("0123456789abcdef-1-1");
    fs::write(&left, [0; 100]).unwrap();
    let referenced = objects.sweep(|_| true, Sweep { dry_run: true, ..at(0) }).unwrap();
    assert_eq!((referenced.referenced, referenced.leftovers), (1, vec![left.clone()]));
    assert!(left.exists());
    let report = objects.sweep(|_| false, at(0)).unwrap();
    assert_eq!((report.freed.len(), report.freed_bytes), (1, 106));
    assert!(!left.exists() && !objects.path(&digest).exists());

    // A put holds the lock shared; while it does, a sweep waits and removes nothing.
    let lock = OsDisk.open(&folder.path().join("lock"), OpenMode::Create).unwrap();
    assert!(lock.try_lock_shared().unwrap());
    fs::write(&left, "a living put's").unwrap();
    std::thread::scope(|scope| {
        let sweep = scope.spawn(|| objects.sweep(|_| false, at(0)).unwrap());
        for _ in 0..10_000 {
            assert!(left.exists() && !sweep.is_finished());
            std::thread::yield_now();
        }
        lock.unlock().unwrap();
        assert_eq!(sweep.join().unwrap().leftovers, std::slice::from_ref(&left));
    });
    assert!(!left.exists());
}

#[test]
fn a_sweep_beside_puts_never_takes_what_a_put_has_acknowledged() {
    let (folder, clock, objects) = store();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sweeps = scope.spawn(|| {
            // As another process has it: with handles of its own.
            let other = Objects::open(Arc::new(OsDisk), folder.path(), samples::options(&clock)).unwrap();
            let mut freed = 0;
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                freed += other.sweep(|_| false, at(clock.now())).unwrap().freed.len();
            }
            freed
        });
        let puts = scope.spawn(|| {
            for round in 1..=300 {
                clock.set(round * 12_000); // what was put in the round before is now old enough to go
                for object in [b"used in every round".as_slice(), b"this one too"] {
                    let digest = objects.put(object).unwrap();
                    assert_eq!(objects.get(&digest).unwrap(), object, "round {round}");
                }
            }
        });
        let puts = puts.join();
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(0 < sweeps.join().unwrap(), "the sweeps had something to do");
        puts.unwrap();
    });
}

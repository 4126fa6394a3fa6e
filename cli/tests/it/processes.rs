//! Several processes, one store: nobody waits without end, and every refusal names who holds what
//! (field cases 3 and 18).

use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Home, Random, Writer, command, numbered, numbered_with, rounds, signal, stderr};

#[test]
fn two_writers_on_two_sessions_do_not_meet() {
    let home = Home::new();
    let (mut a, mut b) = (home.writer("a"), home.writer("b"));
    for number in 0..50 {
        assert_eq!(a.append(&numbered(number)), number);
        assert_eq!(b.append(&numbered(number)), number);
    }
    a.close();
    b.close();
    assert_eq!((home.events("a").len(), home.events("b").len()), (50, 50));
}

#[test]
fn a_second_writer_is_told_who_writes_and_takes_over_when_that_one_is_dead() {
    let home = Home::new();
    let mut random = Random::new();
    let (mut next, mut number) = (0, 0);
    for round in 0..rounds(10, 300) {
        let mut first =
            Writer::start(command(&home.path()).args(["append", "s", "--durability", "buffered"]));
        let mut kept = Vec::new();
        for _ in 0..=random.below(3) {
            number += 1;
            kept.push((first.append(&numbered(number)), number));
        }
        let began = Instant::now();
        let refused = home.run(&["append", "s"]);
        assert_eq!(refused.status.code(), Some(1));
        let said = stderr(&refused);
        assert!(said.contains(&format!("session s is written by process {}", first.pid())), "{said}");
        assert!(began.elapsed() < Duration::from_secs(10), "round {round}: {:?}", began.elapsed());
        // One more that may be written or not when it dies.
        number += 1;
        first.send(&numbered(number));
        first.lines.kill();
        let mut second = home.writer("s");
        let seq = second.append(&numbered(number + 1));
        let events = home.events("s");
        assert_eq!(events.len() as u64, seq + 1);
        assert_eq!(events[seq as usize]["data"]["n"], number + 1);
        for (seq, number) in kept {
            assert_eq!(events[seq as usize]["data"]["n"], number, "round {round}");
        }
        let times = events.iter().filter(|event| event["data"]["n"] == number).count();
        assert!(times <= 1, "round {round}: event {number} is there {times} times");
        number += 1;
        assert!(next < seq);
        next = seq;
        second.close();
    }
}

/// Process ids come again; the locks of a dead process do not. In a process namespace of its own,
/// each writer is process 1.
#[test]
fn a_process_id_that_comes_again_is_no_owner() {
    let within = |home: &Home| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", env!("CARGO_BIN_EXE_rederive"), "--store"]);
        command.arg(home.path()).args(["append", "s"]);
        command
    };
    let works = Command::new("unshare").args(["--pid", "--fork", "--kill-child", "true"]).output();
    if !works.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no process namespaces here");
        return;
    }
    let home = Home::new();
    let mut first = Writer::start(&mut within(&home));
    assert_eq!(first.append(&numbered(1)), 0);
    let mut second = Writer::start(&mut within(&home));
    second.send(&numbered(2));
    assert_eq!(second.acknowledged(), None);
    let (success, said) = second.end();
    assert!(!success && said.contains("session s is written by process 1"), "{said}");
    first.lines.kill();
    // Its child dies a moment later.
    let began = Instant::now();
    loop {
        let mut third = Writer::start(&mut within(&home));
        third.send(&numbered(3));
        if third.acknowledged() == Some(2) {
            third.close();
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{}", third.end().1);
    }
    let events = home.events("s");
    assert_eq!((&events[0]["data"]["n"], &events[2]["data"]["n"]), (&1.into(), &3.into()));
}

#[test]
fn eight_processes_append_synced_each_to_its_own_session() {
    let home = Home::new();
    let each = rounds(40, 500) as u64;
    let mut waits: Vec<Duration> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|name| {
                let home = &home;
                scope.spawn(move || {
                    let mut writer = home.writer(&format!("s{name}"));
                    let mut waits = Vec::new();
                    for number in 0..each {
                        let began = Instant::now();
                        assert_eq!(writer.append(&numbered_with(number, 1000)), number);
                        waits.push(began.elapsed());
                    }
                    writer.close();
                    // The first one includes the start of the process.
                    waits.remove(0);
                    waits
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    for name in 0..8 {
        assert_eq!(home.events(&format!("s{name}")).len() as u64, each);
    }
    waits.sort_unstable();
    let (median, p99) = (waits[waits.len() / 2], waits[waits.len() * 99 / 100]);
    eprintln!("8 processes, {each} synced appends each: median {median:?}, p99 {p99:?}");
    assert!(p99 < Duration::from_secs(2), "p99 {p99:?}");
}

#[test]
fn sixteen_processes_make_one_store_at_once() {
    for round in 0..rounds(3, 50) {
        let home = Home::new();
        let mut writers: Vec<Writer> = (0..16).map(|name| home.writer(&format!("s{name}"))).collect();
        for writer in &mut writers {
            writer.send(&numbered(7));
        }
        for (name, mut writer) in writers.into_iter().enumerate() {
            let first = writer.acknowledged();
            assert_eq!(first, Some(0), "round {round}, process {name}: {}", writer.end().1);
            writer.close();
        }
        assert_eq!(home.json(&["ls"]).as_array().unwrap().len(), 16, "round {round}");
        home.ok(&["doctor"]);
    }
}

/// Stops a writer while it holds the index.
fn stopped_inside_a_seal(home: &Home, random: &mut Random) -> Writer {
    let mut writer = home.writer("stopped");
    writer.append(&numbered(0));
    let lock = File::open(home.path().join("index.lock")).unwrap();
    for _ in 0..2000 {
        // Each fills a segment.
        writer.send(&numbered_with(1, 1_100_000));
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        signal(writer.pid(), "STOP");
        // The signal is delivered before kill returns to its caller, or a moment later.
        std::thread::sleep(Duration::from_millis(1));
        if lock.try_lock().is_err() {
            return writer;
        }
        lock.unlock().unwrap();
        signal(writer.pid(), "CONT");
    }
    panic!("the writer was never caught inside a seal");
}

#[test]
fn a_process_stopped_inside_a_seal_keeps_others_from_sealing_only() {
    let home = Home::new();
    let mut random = Random::new();
    let mut other = home.writer("other");
    assert_eq!(other.append(&numbered(0)), 0);
    for end in ["CONT", "KILL"] {
        let stopped = stopped_inside_a_seal(&home, &mut random);
        let before = other.append(&numbered(1));
        for number in 1..20 {
            assert_eq!(other.append(&numbered(number)), before + number, "appends go on");
        }
        // Those who only read, read.
        assert_eq!(home.events("other").len() as u64, before + 20);
        home.ok(&["ls"]);
        let began = Instant::now();
        let refused = home.run(&["append", "third", "--lock-timeout", "300"]);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let said = stderr(&refused);
        assert!(said.contains(&format!("held by process {}", stopped.pid())), "{said}");
        signal(stopped.pid(), end);
        if end == "CONT" {
            stopped.close();
        } else {
            assert!(!stopped.end().0);
        }
        let mut third = home.writer("third");
        third.append(&numbered(1));
        third.close();
        home.ok(&["verify", "--all"]);
    }
    other.close();
    home.ok(&["doctor"]);
}

/// Handles that only read and handles that write come and go beside each other in both orders.
#[test]
fn a_reader_and_a_writer_open_beside_each_other() {
    let home = Home::new();
    let mut writer = home.writer("s");
    writer.append(&numbered(0));
    // The writer first, then a reader that stays.
    let mut reader =
        crate::support::Lines::start(command(&home.path()).args(["tail", "s", "--follow", "--from", "0"]));
    assert!(reader.line().unwrap().contains("\"n\":0"));
    writer.append(&numbered(1));
    assert!(reader.line().unwrap().contains("\"n\":1"));
    writer.close();
    // The reader is there, and a writer comes.
    let began = Instant::now();
    let mut writer = home.writer("s");
    assert_eq!(writer.append(&numbered(2)), 3, "behind the marker of the resume");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(reader.line().unwrap().contains("session/end-seed"));
    assert!(reader.line().unwrap().contains("\"n\":2"));
    writer.close();
}

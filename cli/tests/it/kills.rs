//! What was acknowledged survives SIGKILL at any moment (field cases 1 and 8).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::{Home, Random, numbered, numbered_with, rounds};

/// Appends until it is killed, and notes what was acknowledged.
fn append_until_killed(
    home: &Home,
    random: &mut Random,
    number: &mut u64,
    acknowledged: &mut BTreeMap<u64, u64>,
) {
    let mut writer = home.writer("s");
    let mut sent = Vec::new();
    // Sometimes a seal is under way: events that fill a segment.
    let bytes = if random.below(4) == 0 { 300_000 } else { 100 };
    let count = 1 + random.below(30);
    for _ in 0..count {
        *number += 1;
        if !writer.send(&numbered_with(*number, bytes)) {
            break;
        }
        sent.push(*number);
    }
    std::thread::sleep(Duration::from_micros(random.below(60_000)));
    for (seq, number) in writer.lines.kill().iter().zip(sent) {
        let seq = seq.parse().unwrap();
        assert!(acknowledged.insert(seq, number).is_none(), "seq {seq} was given out twice");
    }
}

#[test]
fn every_acknowledged_event_is_there_after_a_kill_at_any_moment() {
    let home = Home::new();
    home.writer("s").close();
    let mut random = Random::new();
    let (mut number, mut acknowledged) = (0, BTreeMap::new());
    let (rounds, mut kept) = (rounds(40, 1000), 0);
    for round in 0..rounds {
        if round % 40 == 39 {
            // A fresh session, so that reading it stays cheap.
            kept += acknowledged.len();
            acknowledged.clear();
            home.ok(&["rm", "s"]);
            home.writer("s").close();
        }
        append_until_killed(&home, &mut random, &mut number, &mut acknowledged);
        // A reader sees it before anybody has recovered it, and so does the next writer.
        if round % 2 == 0 {
            let events = home.events("s");
            for (seq, number) in &acknowledged {
                assert_eq!(events[*seq as usize]["data"]["n"], *number, "round {round}, seq {seq}");
            }
        }
        if round % 16 == 15 {
            let mut writer = home.writer("s");
            number += 1;
            let seq = writer.append(&numbered(number));
            acknowledged.insert(seq, number);
            writer.close();
            let events = home.events("s");
            for (seq, number) in &acknowledged {
                assert_eq!(events[*seq as usize]["data"]["n"], *number, "round {round}, seq {seq}");
            }
            home.ok(&["verify", "--all"]);
            home.ok(&["doctor"]);
        }
    }
    eprintln!("{rounds} kills, {} events acknowledged, all there", kept + acknowledged.len());
}

#[test]
fn a_kill_while_another_one_is_recovered_loses_nothing() {
    let home = Home::new();
    home.writer("s").close();
    let mut random = Random::new();
    let (mut number, mut acknowledged) = (0, BTreeMap::new());
    for _ in 0..rounds(10, 200) {
        append_until_killed(&home, &mut random, &mut number, &mut acknowledged);
        for _ in 0..3 {
            // It recovers what the last one left, and is killed while it does.
            let mut recovering = home.writer("other");
            std::thread::sleep(Duration::from_micros(random.below(8_000)));
            recovering.lines.kill();
        }
    }
    home.writer("s").close();
    let events = home.events("s");
    for (seq, number) in &acknowledged {
        assert_eq!(events[*seq as usize]["data"]["n"], *number, "seq {seq}");
    }
    home.ok(&["doctor"]);
}

/// The turn of an interrupted session ends the same, whether it is shown or written.
#[test]
fn closers_are_shown_before_they_are_written() {
    let home = Home::new();
    let mut writer = home.writer("s");
    for event in [
        r#"{"type":"turn/start","data":{"turn":1}}"#,
        r#"{"type":"step/start","data":{"turn":1,"step":1}}"#,
        r#"{"type":"user/message","data":{"id":"u","role":"user","content":[{"type":"text","text":"U"}]},"surfaceOp":"append"}"#,
        r#"{"type":"request/header","data":{"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}}"#,
        r#"{"type":"assistant/message","data":{"message":{"id":"a","role":"assistant","source":{"kind":"model","provider":"p","model":"m"},"content":[{"type":"tool-call","id":"c","name":"t","arguments":"{}"}]}},"surfaceOp":"append"}"#,
    ] {
        writer.append(event);
    }
    assert_eq!(home.json(&["messages", "s", "--closed"]).as_array().unwrap().len(), 2, "its writer lives");
    writer.lines.kill();
    assert_eq!(home.json(&["messages", "s"]).as_array().unwrap().len(), 2);
    let shown = home.ok(&["request", "s", "--next", "--closed"]);
    assert!(shown.contains("interrupted-5") && !shown.contains("TOOL_NOT_STARTED"), "{shown}");
    home.writer("s").close();
    assert_eq!(home.ok(&["request", "s", "--next"]), shown);
}

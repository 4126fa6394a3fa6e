//! A reader in another process sees a live session's events, in order and each once, over seals,
//! journal switches, kills and changes of the writer.

use crate::support::{Home, Lines, Random, command, numbered_with, rounds};

#[test]
fn a_follower_goes_on_over_seals_kills_and_owners() {
    let home = Home::new();
    let mut random = Random::new();
    home.writer("s").close();
    let mut follower = Lines::start(command(&home.path()).args(["tail", "s", "--follow", "--from", "0"]));
    // Another session in the same journals.
    let mut beside = home.writer("beside");
    let mut number = 0;
    for round in 0..rounds(8, 100) {
        let mut writer = home.writer("s");
        for _ in 0..4 + random.below(8) {
            number += 1;
            let bytes = if random.below(3) == 0 { 700_000 } else { 500 };
            writer.append(&numbered_with(number, bytes));
            beside.append(&numbered_with(number, 10));
        }
        if round % 2 == 0 {
            writer.lines.kill();
        } else {
            writer.close();
        }
    }
    let log = home.ok(&["export", "s"]);
    let expected: Vec<&str> = log.lines().skip(1).collect();
    for (seq, line) in expected.iter().enumerate() {
        let seen = follower.line().unwrap();
        assert!(seen == *line, "event {seq}: {seen:.200} instead of {line:.200}");
    }
    let mut late = Lines::start(command(&home.path()).args(["tail", "s"]));
    for line in &expected[expected.len() - 10..] {
        assert!(late.line().unwrap() == **line);
    }
    assert_eq!(late.line(), None);
    beside.close();
}

//! The sample logs are what their README says.

use rederive_fuzz::Model;

use crate::support::{check, in_workspace, logs};

fn sample(name: &str) -> (Model, String) {
    let path = in_workspace("examples").join(name).with_extension("jsonl");
    (check(&path, true), std::fs::read_to_string(path).unwrap())
}

#[test]
fn every_sample_is_known_and_of_a_readable_size() {
    let logs = logs(&in_workspace("examples"));
    let readme = std::fs::read_to_string(in_workspace("examples/README.md")).unwrap();
    assert_eq!(logs.len(), 3);
    for log in logs {
        let name = log.file_name().unwrap().to_string_lossy().into_owned();
        let events = check(&log, true).next_seq();
        assert!((50..=400).contains(&events), "{name}: {events} events");
        assert!(readme.contains(&name), "{name} is not in the README");
    }
}

#[test]
fn parallel_calls_extends_throughout() {
    let (model, text) = sample("parallel-calls");
    assert_eq!(model.generation(), 0);
    assert!(text.contains("\"cacheReadTokens\"") && text.contains("\"text-delta\""));
}

#[test]
fn long_session_is_rewritten_in_every_way() {
    let (model, text) = sample("long-session");
    assert!(3 <= model.generation());
    let replaces = |kind: &str| {
        let start = format!("{{\"type\":\"{kind}\"");
        text.lines().filter(|line| line.starts_with(&start) && line.contains("\"op\":\"replace\"")).count()
    };
    assert!(replaces("user/message") > 0 && replaces("tool/result") > 0 && replaces("system/message") > 0);
    let prompts = text.lines().filter(|line| line.starts_with("{\"type\":\"system/message\"")).count();
    assert!(3 <= prompts, "{prompts} system messages: at first, in history, at the head");
}

#[test]
fn crash_ends_in_the_middle_of_a_turn() {
    let (_, text) = sample("crash");
    let last = text.lines().last().unwrap();
    assert!(!last.contains("turn/end"), "{last}");
    let count = |kind: &str| text.matches(&format!("{{\"type\":\"{kind}\"")).count();
    assert_eq!(count("turn/start"), count("turn/end") + 1);
    assert_eq!(text.matches("{\"type\":\"tool-call\"").count(), count("tool/result") + 2);
    assert_eq!(count("tool/call"), count("tool/result") + 1);
}

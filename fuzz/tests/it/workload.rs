//! Every generated log is what its generator says it is.

use std::collections::BTreeMap;

use rederive_fuzz::workload::{self, BREAKS, Lines, Operation, Options};
use rederive_fuzz::{Model, Refusal};

/// Folds a generated log and gives its length in bytes.
fn admitted(mut lines: Lines, requests: bool) -> (Model, usize) {
    let head = lines.next().expect("a header line");
    let mut model = Model::opened_by(&head).expect("a header");
    if !requests {
        model = model.without_requests();
    }
    let mut bytes = head.len() + 1;
    for line in lines {
        bytes += line.len() + 1;
        if let Err(refusal) = model.push_line(&line) {
            panic!("{}: {refusal}\n{line}", model.session());
        }
    }
    (model, bytes)
}

#[test]
fn random_logs_are_admitted() {
    let (mut replaces, mut requests, mut silent) = (0, 0, 0);
    for seed in 0..80 {
        let (model, _) = admitted(workload::random(seed, &Options::swarm(seed)), true);
        replaces += model.generation();
        requests += model.requests().len();
        silent += usize::from(model.next_seq() > 0 && model.requests().is_empty());
        assert_eq!(model.surface_at(model.next_seq()), model.surface(), "seed {seed}");
    }
    assert!(200 < replaces && 600 < requests, "{replaces} replaces, {requests} requests");
    assert!(silent < 16, "{silent} logs without a request");
}

#[test]
fn everything_happens_in_some_log() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..30 {
        for line in workload::random(seed, &Options::everything()).skip(1) {
            let event: BTreeMap<String, Box<serde_json::value::RawValue>> =
                serde_json::from_str(&line).unwrap();
            let replaces = event.get("surfaceOp").is_some_and(|op| op.get().starts_with('{'));
            let kind = event["type"].get().trim_matches('"').to_owned();
            *seen.entry(if replaces { format!("{kind} replaces") } else { kind }).or_default() += 1;
        }
    }
    for kind in [
        "system/message",
        "system/message replaces",
        "user/message",
        "user/message replaces",
        "assistant/message",
        "tool/result",
        "tool/result replaces",
        "tool/call",
        "assistant/attempt",
        "llm/retry",
        "request/header",
        "compaction/start",
        "compaction/summary",
        "compaction/end",
        "compaction/prune",
        "agent/inbox/spliced",
        "session/title",
        "todo/write",
        "request/context",
        "session/end-seed",
        "x-host/progress",
        "turn/end",
    ] {
        assert!(seen.get(kind).is_some_and(|count| 3 < *count), "{kind}: {seen:?}");
    }
}

#[test]
fn what_is_left_out_is_not_there() {
    for seed in 0..20 {
        let options = [Operation::Prune, Operation::Compaction, Operation::AnyRange, Operation::TailReplace]
            .into_iter()
            .chain([Operation::PromptHead, Operation::PromptAppend])
            .fold(Options::everything(), Options::without);
        let (model, _) = admitted(workload::random(seed, &options), false);
        assert_eq!(model.generation(), 0, "seed {seed}");
    }
}

#[test]
fn a_seed_means_one_log() {
    let log = |seed| workload::random(seed, &Options::swarm(seed)).collect::<Vec<_>>();
    assert_eq!(log(5), log(5));
    assert_ne!(log(5), log(6));
}

#[test]
fn broken_logs_break_their_rule_in_their_last_line() {
    for index in 0..BREAKS {
        for seed in 0..2 {
            let broken = workload::broken_by(index, seed);
            let name = format!("{}--{} of seed {seed}", broken.rule, broken.what);
            let (last, valid) = broken.lines.split_last().unwrap();
            let mut model = Model::opened_by(&valid[0]).unwrap();
            for line in &valid[1..] {
                model.push_line(line).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
            }
            let before = model.expected();
            let refused: Result<(), Refusal> = model.push_line(last);
            let rule = refused.map_err(|refusal| (refusal.seq, refusal.rule));
            assert_eq!(rule, Err((model.next_seq(), broken.rule)), "{name}: {last}");
            assert_eq!(model.expected(), before, "{name}");
        }
    }
}

#[test]
fn steps_have_their_size() {
    let (model, bytes) = admitted(workload::steps(1, 100), true);
    assert!((900_000..1_100_000).contains(&bytes), "{bytes} bytes of 100 steps");
    assert_eq!(model.requests().len(), 100);
}

#[test]
fn long_ends_with_its_live_nodes() {
    let (model, bytes) = admitted(workload::long_of(1, 300, 100, 50), false);
    assert_eq!(model.surface().len(), 50);
    let each = bytes as u64 / model.next_seq();
    assert!((70..100).contains(&each), "{each} bytes an event");
}

#[test]
fn requests_and_rebuild_and_images_and_fanout_are_admitted() {
    let (model, _) = admitted(workload::requests_of(1, 20), true);
    assert_eq!((model.requests().len(), model.surface().len()), (40, 20 * 7 + 1));
    let (model, _) = admitted(workload::rebuild_of(1, 3_000), false);
    assert_eq!(model.next_seq(), 3_000);
    assert!(0 < model.generation());
    let (model, _) = admitted(workload::images_of(1, 20), true);
    assert_eq!((model.requests().len(), model.surface().len()), (40, 20 * 4 + 1));
    let sessions: Vec<Lines> = workload::fanout(1, 3, 10).collect();
    assert_eq!(sessions.len(), 3);
    for lines in sessions {
        let (model, bytes) = admitted(lines, true);
        assert_eq!(model.next_seq(), 10);
        assert!((6_000..12_000).contains(&bytes), "{bytes} bytes");
    }
}

#[test]
#[ignore = "the full sizes: run with --release -- --ignored"]
fn full_sizes() {
    let (model, bytes) = admitted(workload::long(1), false);
    eprintln!("long: {} events, {bytes} bytes", model.next_seq());
    assert_eq!(model.surface().len(), 2_000);
    assert!((1_200_000..1_400_000).contains(&model.next_seq()));
    assert!((110_000_000..125_000_000).contains(&bytes), "{bytes}");
    let (model, bytes) = admitted(workload::steps(1, 2_000), false);
    eprintln!("steps: {} events, {bytes} bytes", model.next_seq());
    assert!((18_000_000..22_000_000).contains(&bytes), "{bytes}");
    let (model, bytes) = admitted(workload::rebuild(1), false);
    eprintln!("rebuild: {} events, {bytes} bytes", model.next_seq());
    assert_eq!(model.next_seq(), 90_000);
}

//! Each break of a prefix is attributed to the operation that made it, with its place in bytes.

use rederive_engine::{Reader, Seq, Store};
use rederive_fuzz::workload::{self, Options};
use rederive_projection::audit::{Audit, Cause, audit, html};
use rederive_projection::{RequestRef, diff, reconstruct, verify};

const HEADER: &str =
    "{\"type\":\"session\",\"version\":3,\"id\":\"case\",\"createdAt\":1,\"isSeeded\":false}";

/// A store in a folder that lives as long as it does, and the log of `lines` in it.
struct Imported {
    _folder: tempfile::TempDir,
    reader: Reader,
}

fn import(log: &str) -> Imported {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(folder.path().join("store")).unwrap();
    let imported = store.import(log.as_bytes()).unwrap();
    let reader = store.read_session(imported.id()).unwrap();
    Imported { _folder: folder, reader }
}

/// A fixture, with a settlement at its end so that the last request is audited as well.
fn case(name: &str) -> (Imported, Audit) {
    let path = format!("{}/../engine/tests/fixtures/cases/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let mut log = std::fs::read_to_string(path).unwrap();
    let seq = log.lines().count() - 1;
    let settled = format!(
        "{{\"type\":\"assistant/attempt\",\"seq\":{seq},\"time\":1700000009999,\"data\":{{\"turn\":1,\"step\":1,\"stream\":[]}}}}\n"
    );
    log.push_str(&settled);
    let imported = import(&log);
    let audit = audit(&imported.reader).unwrap();
    (imported, audit)
}

#[test]
fn tools_in_another_order_are_named_once() {
    let (_, audit) = case("tools-in-another-order");
    let last = audit.requests.last().unwrap();
    assert_eq!((last.extends, last.kept_bytes), (false, 67));
    assert_eq!(last.causes, [Cause::ToolsReordered]);
    assert_eq!(audit.summary.breaks, 1);
}

#[test]
fn a_prompt_at_the_head_costs_one_break_and_one_in_history_none() {
    let (_, head) = case("prompt-changed-at-the-head");
    let last = head.requests.last().unwrap();
    assert_eq!((last.extends, last.kept_bytes), (false, 124));
    assert_eq!(last.causes, [Cause::SystemPrompt { seq: 6 }]);
    let (_, history) = case("prompt-changed-in-history");
    let last = history.requests.last().unwrap();
    assert_eq!((last.extends, last.kept_bytes), (true, 272));
    assert_eq!(last.causes, []);
}

#[test]
fn a_prune_says_where_the_prefix_ends() {
    let (_, audit) = case("pruned-result");
    let last = audit.requests.last().unwrap();
    // The request before is that of event 8: 600 bytes, of which 554 are kept, inside node 9.
    assert_eq!((last.keepable_bytes, last.kept_bytes), (598, 554));
    assert_eq!((last.differs_at_message, last.differs_at_seq), (Some(3), Some(9)));
    assert_eq!(last.causes, [Cause::Pruning { seq: 9 }]);
}

#[test]
fn a_compaction_is_one_cause() {
    let (_, audit) = case("message-typed-while-summarising");
    let last = audit.requests.last().unwrap();
    assert_eq!(last.causes, [Cause::Compaction { seq: 9 }]);
    assert_eq!(last.differs_at_message, Some(1));
}

#[test]
fn a_pair_that_is_cut_is_named() {
    let (_, audit) = case("cut-inside-parallel-calls");
    let problem = audit.problems.first().unwrap();
    assert_eq!((problem.seq, problem.call.as_deref()), (9, Some("c2")));
    let (_, audit) = case("cut-behind-parallel-calls");
    assert_eq!(audit.problems, []);
}

#[test]
fn each_prune_of_a_shown_result_is_a_break() {
    let prefix = std::fs::read_to_string(format!(
        "{}/../engine/tests/fixtures/cases/prefix.jsonl",
        env!("CARGO_MANIFEST_DIR")
    ))
    .unwrap();
    let mut log = prefix;
    let mut seq = 5;
    let mut line = |kind: &str, data: String, rest: String| {
        log.extend([format!(
            "{{\"type\":\"{kind}\",\"seq\":{seq},\"time\":1700000000999,\"data\":{data}{rest}}}\n"
        )]);
        seq += 1;
        seq - 1
    };
    let append = ",\"surfaceOp\":\"append\"";
    let result = |id: u32, text: &str| {
        format!(
            "{{\"message\":{{\"id\":\"r{id}\",\"role\":\"user\",\"content\":[{{\"type\":\"tool-result\",\"toolCallId\":\"c{id}\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}]}}}}"
        )
    };
    for id in 0..20 {
        line(
            "assistant/message",
            format!(
                "{{\"message\":{{\"role\":\"assistant\",\"source\":{{\"provider\":\"p\",\"model\":\"m\"}},\"content\":[{{\"type\":\"tool-call\",\"id\":\"c{id}\",\"name\":\"t\",\"arguments\":\"{{}}\"}}]}}}}"
            ),
            append.into(),
        );
        let node = line("tool/result", result(id, "a long output"), append.into());
        let rest = format!(
            ",\"surfaceOp\":{{\"op\":\"replace\",\"startSeq\":{node},\"endSeq\":{node}}},\"sourceEventSeqs\":[{node}]"
        );
        // Pruned right away, before any request has shown it: no break. The one of the step before
        // that was shown would break.
        if id % 2 == 1 {
            line("assistant/message", "{\"message\":{\"role\":\"assistant\",\"source\":{\"provider\":\"p\",\"model\":\"m\"},\"content\":[{\"type\":\"text\",\"text\":\"seen\"}]}}".into(), append.into());
            line("tool/result", result(id, "[pruned]"), rest);
            line("assistant/attempt", "{\"stream\":[]}".into(), String::new());
        }
    }
    let imported = import(&log);
    let audit = audit(&imported.reader).unwrap();
    assert_eq!(audit.summary.breaks, 10);
    let sum = audit.summary.by_cause.first().unwrap();
    assert_eq!((sum.cause, sum.breaks), ("pruning", 10));
}

#[test]
fn the_page_escapes_what_the_log_says() {
    let log = format!("{HEADER}\n").replace("\"case\"", "\"<script>alert(1)</script>\"");
    let imported = import(&log);
    let page = html(&audit(&imported.reader).unwrap());
    assert!(page.contains("&lt;script&gt;") && !page.contains("<script"));
    assert!(!page.contains("http"), "nothing comes from elsewhere");
}

/// Length of the common prefix of two requests' canonical bytes, the closing ones aside.
fn common(a: &[u8], b: &[u8]) -> u64 {
    let shared = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    shared.min(a.len() - 2) as u64
}

#[test]
fn on_random_logs_kept_bytes_are_those_of_a_plain_comparison() {
    for seed in 0..24 {
        let lines: Vec<String> = workload::random(seed, &Options::swarm(seed)).collect();
        let imported = import(&lines.join("\n"));
        let audit = audit(&imported.reader).unwrap();
        let requests: Vec<Vec<u8>> = audit
            .requests
            .iter()
            .map(|request| {
                let rebuilt = reconstruct(&imported.reader, RequestRef::Seq(Seq::new(request.seq))).unwrap();
                assert_eq!(rebuilt.digest().to_string(), request.blake3, "seed {seed}, {}", request.seq);
                rebuilt.to_vec()
            })
            .collect();
        for (pair, audited) in requests.windows(2).zip(audit.requests.iter().skip(1)) {
            let kept = common(&pair[0], &pair[1]);
            // Where texts part, a plain comparison may run on into equal punctuation.
            assert!(
                audited.kept_bytes == kept || audited.kept_bytes + 2 >= kept,
                "seed {seed}, request {}: {} and {kept}",
                audited.seq,
                audited.kept_bytes
            );
            assert!(audited.kept_bytes <= kept, "seed {seed}, request {}", audited.seq);
            assert_eq!(
                audited.extends,
                kept == pair[0].len() as u64 - 2,
                "seed {seed}, request {}",
                audited.seq
            );
            assert_eq!(audited.extends, audited.causes.is_empty(), "seed {seed}, request {}", audited.seq);
            assert!(!audited.causes.contains(&Cause::Unexplained), "seed {seed}, request {}", audited.seq);
        }
        let verified = verify(&imported.reader).unwrap();
        assert_eq!(verified.mismatches, []);
        assert_eq!(verified.requests, audit.requests.len() as u64);
    }
}

#[test]
fn requests_are_named_by_step_and_compared() {
    let (imported, audit) = case("pruned-result");
    let named: RequestRef = "1.1.2".parse().unwrap();
    let by_step = reconstruct(&imported.reader, named).unwrap();
    assert_eq!(by_step.digest().to_string(), audit.requests[1].blake3);
    assert!(reconstruct(&imported.reader, "9.1".parse().unwrap()).is_err());
    assert!("1.x".parse::<RequestRef>().is_err());
    let first = reconstruct(&imported.reader, RequestRef::Seq(Seq::new(5))).unwrap();
    let diff = diff(&first, &by_step);
    assert!(diff.extends);
    assert_eq!(diff.messages.iter().map(|message| message.side).collect::<String>(), "++");
}

//! The example host, held against a fold that shares no code with the product.

use rederive_fuzz::Model;

#[expect(dead_code, reason = "the example's main is not called here")]
#[path = "../../examples/host.rs"]
mod host;

#[test]
fn an_independent_fold_of_the_exported_log_gives_every_dispatched_digest() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.jsonl");
    host::run(&out).unwrap();
    let log = std::fs::read_to_string(&out).unwrap();
    let mut lines = log.lines();
    let mut model = Model::opened_by(lines.next().unwrap()).unwrap();
    let (mut dispatched, mut types) = (0, std::collections::BTreeSet::new());
    for line in lines {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        types.insert(event["type"].as_str().unwrap().to_owned());
        if event["type"] == "request/dispatch" {
            let request = model.next_request().unwrap();
            let data = &event["data"];
            assert_eq!(data["digest"], format!("blake3:{}", blake3::hash(&request).to_hex()), "{line}");
            assert_eq!(data["bytes"], request.len());
            assert_eq!(data["messages"], model.messages().len());
            dispatched += 1;
        }
        model.push_line(line).unwrap();
    }
    assert_eq!(dispatched, 12);
    for due in [
        "agent/inbox/spliced",
        "turn/start",
        "step/start",
        "system/message",
        "user/message",
        "request/header",
        "request/context",
        "assistant/message",
        "assistant/attempt",
        "tool/call",
        "tool/result",
        "compaction/start",
        "compaction/summary",
        "compaction/end",
        "compaction/prune",
        "session/end-seed",
        "step/end",
        "turn/end",
    ] {
        assert!(types.contains(due), "the host never wrote {due}");
    }
}

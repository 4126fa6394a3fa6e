//! Requests that the reference harness recorded, rebuilt from its own logs. Runs where the shared
//! folder stands beside the project.

use std::path::Path;

use rederive_engine::{Replay, TypeRegistry};
use rederive_projection::Rebuilder;
use serde_json::Value;

/// A message without its id, which was normalised in the record.
fn without_id(mut message: Value) -> Value {
    message.as_object_mut().unwrap().remove("id");
    message
}

/// The requests of a log as the record shows them: provider, model, tools, messages.
fn rebuilt(log: &str) -> Vec<Value> {
    let mut rebuilder = Rebuilder::new(TypeRegistry::harness());
    let mut replay = Replay::new(TypeRegistry::harness());
    let mut requests = Vec::new();
    for line in log.lines().skip(1) {
        let event = replay.push_line(line).unwrap();
        if let Some(settled) = rebuilder.push(&event).unwrap() {
            let whole: Value = serde_json::from_slice(&settled.request.to_vec()).unwrap();
            let config = &whole["header"]["config"];
            let messages = whole["messages"].as_array().unwrap().iter().cloned().map(without_id);
            requests.push(serde_json::json!({
                "provider": config["provider"],
                "model": config["model"],
                "tools": whole["header"]["tools"],
                "messages": messages.collect::<Vec<_>>(),
            }));
        }
    }
    requests
}

#[test]
fn the_harness_own_logs_give_the_requests_that_it_recorded() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    if !corpus.is_dir() {
        println!("skipped: there is no {}", corpus.display());
        return;
    }
    for (name, due) in [("tool-call-turn", 2), ("dynamic-tools", 4), ("retry-attempt", 2)] {
        let log = corpus.join(format!("dsh-v3/reqrec-{name}.envelope.jsonl"));
        let record = corpus.join(format!("dsh-v3-requests/reqrec-{name}.expected-requests.json"));
        let recorded: Value = serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
        let recorded: Vec<Value> = recorded["requests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|request| {
                let messages = request["messages"].as_array().unwrap().iter().cloned().map(without_id);
                serde_json::json!({
                    "provider": request["provider"],
                    "model": request["model"],
                    "tools": request["tools"],
                    "messages": messages.collect::<Vec<_>>(),
                })
            })
            .collect();
        let rebuilt = rebuilt(&std::fs::read_to_string(log).unwrap());
        assert_eq!(rebuilt.len(), recorded.len(), "{name}");
        for (index, (rebuilt, recorded)) in rebuilt.iter().zip(&recorded).enumerate() {
            assert_eq!(rebuilt, recorded, "{name}, request {index}");
        }
        assert!(due <= recorded.len(), "{name}: {} requests", recorded.len());
    }
}

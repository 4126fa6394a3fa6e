//! A log that a crash or two writers spoiled is refused with line, rule and column, and nothing of it
//! is kept (field cases 1b, 2c and 3b).

use std::path::{Path, PathBuf};

use crate::support::Home;

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures/cases").join(name)
}

fn check(name: &str, line: u64, seq: u64, rule: &str, says: &str) -> serde_json::Value {
    let home = Home::new();
    let file = case(name);
    let output = home.run(&["import", file.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(1), "{name}");
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &rows[0];
    assert_eq!((&row["line"], &row["seq"], &row["rule"]), (&line.into(), &seq.into(), &rule.into()), "{row}");
    assert!(row["error"].as_str().unwrap().contains(says), "{row}");
    assert_eq!(home.json(&["ls"]), serde_json::json!([]), "nothing of it is kept");
    home.ok(&["doctor"]);
    let output = home.run(&["replay", file.to_str().unwrap(), "--json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_record_glued_to_a_torn_one() {
    let report = check("torn-record-glued-to-the-next.jsonl", 7, 5, "json", "column");
    assert_eq!(report["surface"], serde_json::json!([2, 3]));
    assert_eq!(report["next"]["bytes"], 249);
    assert_eq!(report["next"]["blake3"], "4a8c3b1e1060f8451e642a79ffd28f1d095a34a435aad3490a29145c7014fe2d");
}

#[test]
fn a_line_of_nul_bytes() {
    let report = check("zeroes-in-the-middle.jsonl", 7, 5, "json", "column");
    assert_eq!(report["surface"], serde_json::json!([2, 3]));
    assert_eq!(report["events"], 5);
}

#[test]
fn one_seq_with_two_events() {
    let report = check("one-seq-two-events.jsonl", 10, 8, "seq", "7 where 8 is due");
    assert_eq!(report["surface"], serde_json::json!([2, 3, 5]));
    assert_eq!((&report["generation"], &report["next"]["messages"]), (&0.into(), &3.into()));
    assert_eq!(report["next"]["bytes"], 376);
    assert_eq!(report["next"]["blake3"], "b76da3f318fb25e438c78968a9c0cbfb72c78756978a06b775925405a9effb48");
}

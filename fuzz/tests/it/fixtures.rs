//! The project's own small logs give what stands beside them, and cover every clause.
//!
//! `UPDATE_FIXTURES=1` writes them anew. `cases` are written by hand; their logs are never touched.

use std::collections::BTreeSet;
use std::path::Path;

use rederive_fuzz::workload::{self, BREAKS, Operation, Options};

use crate::support::{check, check_anywhere, in_workspace, logs};

/// Rules of the admission table that no file can break: one guards the public append, one is a
/// matter of settings.
const NOT_IN_FILES: [&str; 2] = ["reserved", "too-large"];
const RULES: [&str; 17] = [
    "json",
    "json-depth",
    "json-duplicate-key",
    "envelope",
    "seq",
    "unknown-type",
    "surface-metadata",
    "surface-op",
    "source-seqs",
    "system-head",
    "tool-rewrite",
    "tool-error",
    "header",
    "legacy",
    "payload",
    "reserved",
    "too-large",
];

/// Name, seed, turns, and what is left out.
const VALID: [(&str, u64, u64, &[Operation]); 10] = [
    ("everything", 11, 9, &[]),
    ("everything-again", 12, 12, &[]),
    ("plain-spelling", 13, 8, &Operation::ODD),
    ("no-prompt", 14, 8, &[Operation::Prompt, Operation::PromptAppend, Operation::PromptHead]),
    ("append-only", 15, 8, &REWRITES),
    ("answered-calls", 16, 8, &[Operation::AnyRange, Operation::TailReplace, Operation::Crash]),
    ("prunes-only", 17, 8, &[Operation::AnyRange, Operation::TailReplace, Operation::Compaction]),
    ("no-sidelines", 18, 8, &[Operation::Foreign, Operation::Sideline, Operation::Attempt]),
    ("one-header", 19, 8, &[Operation::Header, Operation::Crash]),
    ("crash-in-the-first-turn", 21, 1, &Operation::ODD),
];
const REWRITES: [Operation; 6] = [
    Operation::Prune,
    Operation::Compaction,
    Operation::AnyRange,
    Operation::TailReplace,
    Operation::PromptHead,
    Operation::PromptAppend,
];

fn renew(path: &Path, lines: impl Iterator<Item = String>) {
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        let text: String = lines.flat_map(|line| [line, "\n".to_owned()]).collect();
        std::fs::write(path, text).unwrap();
    }
}

#[test]
fn valid_fixtures_give_their_requests() {
    let folder = in_workspace("engine/tests/fixtures/valid");
    for (name, seed, turns, without) in VALID {
        let options = without.iter().copied().fold(Options::everything().turns(turns), Options::without);
        let path = folder.join(name).with_extension("jsonl");
        renew(&path, workload::random(seed, &options));
        let model = check(&path, true);
        assert!(model.expected().admitted, "{name}");
        assert!(!model.surface().is_empty(), "{name}");
    }
    assert_eq!(logs(&folder).len(), VALID.len(), "a fixture that no test knows");
}

#[test]
fn refused_fixtures_are_refused_for_every_clause() {
    let folder = in_workspace("engine/tests/fixtures/refused");
    let mut covered = BTreeSet::new();
    for index in 0..BREAKS {
        let broken = workload::broken_by(index, 40 + index as u64);
        let path = folder.join(format!("{}--{}.jsonl", broken.rule, broken.what));
        renew(&path, broken.lines.into_iter());
        check(&path, true);
        covered.insert(broken.rule);
    }
    assert_eq!(logs(&folder).len(), BREAKS, "a fixture that no test knows");
    covered.extend(NOT_IN_FILES);
    assert_eq!(covered, RULES.into_iter().collect());
}

#[test]
fn cases_give_what_stands_beside_them() {
    let logs = logs(&in_workspace("engine/tests/fixtures/cases"));
    assert!(!logs.is_empty());
    for log in logs {
        check_anywhere(&log, true);
    }
}

//! The project's own small logs through a real store: admitted whole, or refused at their last line
//! with nothing left behind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rederive_engine::{
    AppendError, Draft, Durability, ImportError, NewSession, Refusal, Replay, Rule, Seq, SessionId, Store,
    StoreOptions, TypeRegistry,
};
use serde_json::Value;

use crate::sim::{check_against_model, model_of, read_all};

/// Rules that no refused log can show, and where they are shown.
const NOT_IN_LOGS: [(Rule, &str); 3] = [
    (Rule::Reserved, "guards the public append alone: `the_public_append_refuses_what_the_store_writes`"),
    (Rule::TooLarge, "depends on a setting: `an_event_at_the_limit_is_admitted_and_one_over_it_refused`"),
    (Rule::Version, "concerns the header line: `a_log_of_another_version_is_refused`"),
];

fn logs(kind: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind);
    let mut logs: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .collect();
    logs.sort();
    assert!(!logs.is_empty(), "{} holds logs", folder.display());
    logs
}

fn expected(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path.with_extension("expected.json")).unwrap()).unwrap()
}

fn with_store<T>(test: impl FnOnce(&Store) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create_with(folder.path().join("store"), StoreOptions::default().seal_inline());
    test(&store.unwrap())
}

fn seqs(fold: &rederive_engine::Fold) -> Value {
    fold.surface().seqs().iter().map(|seq| seq.value()).collect()
}

fn check_admitted(store: &Store, path: &Path, bytes: &[u8]) {
    let name = path.display();
    let expected = expected(path);
    let imported = store.import(bytes).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let reader = store.read_session(imported.id()).unwrap();
    assert_eq!(reader.id().as_str(), expected["session"], "{name}");
    assert_eq!(reader.fold().next_seq().value(), expected["events"], "{name}");
    assert_eq!(seqs(reader.fold()), expected["surface"], "{name}");
    assert_eq!(reader.fold().surface().generation().value(), expected["generation"], "{name}");
    let lines = read_all(&reader);
    check_against_model(reader.fold(), &model_of(lines.iter().map(String::as_str)), &name.to_string());
    let exported = format!("{}\n{}\n", reader.header_line().as_str(), lines.join("\n"));
    assert_eq!(exported.as_bytes(), bytes, "{name}: exported");
}

/// Checks a refused log; gives its refusal.
fn check_refused(store: &Store, path: &Path, bytes: &[u8]) -> Refusal {
    let name = path.display();
    let expected = expected(path);
    let before = store.sessions(None, usize::MAX).unwrap().len();
    let (line, refusal) = match store.import(bytes) {
        Err(ImportError::Refused { line, refusal }) => (line, refusal),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(refusal.rule().name(), expected["rule"], "{name}: {refusal}");
    assert_eq!(refusal.seq().value(), expected["seq"], "{name}: {refusal}");
    assert_eq!(line, refusal.seq().value() + 2, "{name}: a header, then one line an event");
    assert_eq!(store.sessions(None, usize::MAX).unwrap().len(), before, "{name}: nothing is left behind");
    // The same door, line by line: the refusal leaves the fold as it was.
    let mut replay = Replay::new(TypeRegistry::new());
    let mut lines = bytes.split(|byte| *byte == b'\n').skip(1);
    let refused = lines.find_map(|line| replay.push_bytes(&Bytes::copy_from_slice(line)).err()).unwrap();
    assert_eq!((refused.rule(), refused.seq()), (refusal.rule(), refusal.seq()), "{name}");
    assert_eq!(seqs(replay.fold()), expected["surface"], "{name}");
    assert_eq!(replay.fold().surface().generation().value(), expected["generation"], "{name}");
    refusal
}

#[test]
fn every_valid_fixture_is_stored_and_exported_byte_for_byte() {
    with_store(|store| {
        for path in logs("valid") {
            check_admitted(store, &path, &std::fs::read(&path).unwrap());
        }
    });
}

#[test]
fn every_case_gives_what_stands_beside_it() {
    for path in logs("cases") {
        let bytes = std::fs::read(&path).unwrap();
        with_store(|store| {
            if expected(&path)["admitted"] == true {
                check_admitted(store, &path, &bytes);
            } else {
                check_refused(store, &path, &bytes);
            }
        });
    }
}

#[test]
fn every_rule_has_a_refused_fixture() {
    let mut shown: BTreeSet<&str> = BTreeSet::new();
    with_store(|store| {
        for path in logs("refused") {
            shown.insert(check_refused(store, &path, &std::fs::read(&path).unwrap()).rule().name());
        }
    });
    for rule in Rule::ALL {
        let elsewhere = NOT_IN_LOGS.iter().any(|(other, _)| other == rule);
        assert_ne!(shown.contains(rule.name()), elsewhere, "{}", rule.name());
    }
}

fn rule_of(error: &AppendError) -> Rule {
    match error {
        AppendError::Refused(refusal) => refusal.rule(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_public_append_refuses_what_the_store_writes() {
    with_store(|store| {
        let mut session = store.create_session(NewSession::new("s")).unwrap();
        for kind in ["session/end-seed", "request/dispatch"] {
            let batch = vec![Draft::new("turn/start", "{\"turn\":1}"), Draft::new(kind, "{}").ignorable()];
            let refused = session.append(batch, Durability::Buffered).unwrap_err();
            assert_eq!(rule_of(&refused), Rule::Reserved, "{kind}");
            assert_eq!(session.fold().next_seq(), Seq::FIRST, "{kind}: the whole batch is refused");
        }
    });
}

#[test]
fn an_event_at_the_limit_is_admitted_and_one_over_it_refused() {
    let folder = tempfile::tempdir().unwrap();
    let line = r#"{"type":"session/title","seq":0,"time":1,"data":{"title":"t"}}"#;
    let options = StoreOptions::default().event_bytes_max(line.len() as u64);
    let store = Store::create_with(folder.path().join("store"), options).unwrap();
    let mut session = store.create_session(NewSession::new("s")).unwrap();
    let over = Bytes::from(line.replace("\"t\"}}", "\"tt\"}}"));
    let refused = session.append_lines(&[over], Durability::Buffered).unwrap_err();
    assert_eq!(rule_of(&refused), Rule::TooLarge);
    drop(session.append_lines(&[Bytes::from(line)], Durability::Buffered).unwrap());
    assert_eq!(session.fold().next_seq(), Seq::new(1));
}

#[test]
fn a_log_of_another_version_is_refused() {
    with_store(|store| {
        for version in ["0", "2", "4"] {
            let line =
                format!("{{\"type\":\"session\",\"version\":{version},\"id\":\"s\",\"createdAt\":1}}\n");
            match store.import(line.as_bytes()) {
                Err(ImportError::Refused { line: 1, refusal }) => {
                    assert_eq!(refusal.rule(), Rule::Version, "{version}: {refusal}");
                }
                other => panic!("{version}: {other:?}"),
            }
        }
        assert!(store.read_session(&SessionId::new("s").unwrap()).is_err());
    });
}

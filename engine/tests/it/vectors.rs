//! Every conformance vector gives exactly what it must give.

use std::path::{Path, PathBuf};

use rederive_engine::{HeaderLine, Refusal, Replay, TypeRegistry};

/// The folder `shared/vectors` beside the project, where it exists.
fn shared(kind: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/vectors").join(kind);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: there is no {}", folder.display());
    None
}

fn logs(folder: &Path) -> Vec<PathBuf> {
    let mut logs: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .collect();
    logs.sort();
    assert!(!logs.is_empty(), "{} holds logs", folder.display());
    logs
}

fn replay(path: &Path) -> (Replay, usize, Option<Refusal>) {
    let bytes = std::fs::read(path).unwrap();
    let mut lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    HeaderLine::read(std::str::from_utf8(lines.next().unwrap()).unwrap()).unwrap();
    let mut replay = Replay::new(TypeRegistry::new());
    let rest: Vec<&[u8]> = lines.collect();
    for (index, line) in rest.iter().enumerate() {
        match replay.push_bytes(&bytes::Bytes::copy_from_slice(line)) {
            Ok(event) => {
                let mut out = Vec::new();
                event.write_line(&mut out);
                assert_eq!(out, *line, "{}: line {}", path.display(), index + 2);
            }
            Err(refusal) => return (replay, rest.len() - index, Some(refusal)),
        }
    }
    (replay, 0, None)
}

fn expected(path: &Path) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(path.with_extension("expected.json")).unwrap()).unwrap()
}

fn surface(replay: &Replay) -> serde_json::Value {
    replay.fold().surface().seqs().iter().map(|seq| seq.value()).collect()
}

#[test]
fn every_valid_vector_is_admitted_whole() {
    let Some(folder) = shared("valid") else { return };
    for path in logs(&folder) {
        let (replay, _, refusal) = replay(&path);
        assert!(refusal.is_none(), "{}: {}", path.display(), refusal.unwrap());
        let expected = expected(&path);
        assert_eq!(surface(&replay), expected["surface"], "{}", path.display());
        assert_eq!(
            replay.fold().surface().generation().value(),
            expected["generation"],
            "{}",
            path.display()
        );
    }
}

#[test]
fn every_refused_vector_is_refused_at_its_last_line_under_its_rule() {
    let Some(folder) = shared("refused") else { return };
    for path in logs(&folder) {
        let (replay, left, refusal) = replay(&path);
        let refusal = refusal.unwrap_or_else(|| panic!("{} was admitted", path.display()));
        assert_eq!(left, 1, "{}: only the last line is refused, {refusal}", path.display());
        let expected = expected(&path);
        assert_eq!(refusal.rule().name(), expected["rule"], "{}: {refusal}", path.display());
        assert_eq!(refusal.seq().value(), expected["seq"], "{}: {refusal}", path.display());
        assert_eq!(surface(&replay), expected["surface"], "{}", path.display());
        assert_eq!(
            replay.fold().surface().generation().value(),
            expected["generation"],
            "{}",
            path.display()
        );
    }
}

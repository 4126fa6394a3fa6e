//! Files that tests read, and the one comparison of a log with what stands beside it.

use std::path::{Path, PathBuf};

use rederive_fuzz::{Expected, Model, RefusedExpected, fold};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A path in the workspace.
pub(crate) fn in_workspace(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The `.jsonl` files of a folder, by name.
pub(crate) fn logs(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut logs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|end| end == "jsonl"));
    logs.sort();
    logs
}

/// Holds an admitted or a refused log against its `.expected.json`.
///
/// `UPDATE_FIXTURES=1` writes the file instead, for logs of this project.
pub(crate) fn check(path: &Path, own: bool) -> Model {
    let log = std::fs::read(path).unwrap();
    let (model, end) = fold(&log);
    let beside = path.with_extension("expected.json");
    match end {
        Ok(()) => compare::<Expected>(&beside, own, &model.expected()),
        Err(refusal) => {
            let lines = log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() as u64;
            assert_eq!(
                model.next_seq() + 2,
                lines,
                "{} is refused before its last line: {refusal}",
                path.display()
            );
            compare::<RefusedExpected>(&beside, own, &model.expected_refused(&refusal));
        }
    }
    model
}

fn compare<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    beside: &Path,
    own: bool,
    found: &T,
) {
    if own && std::env::var_os("UPDATE_FIXTURES").is_some() {
        std::fs::write(beside, serde_json::to_string_pretty(found).unwrap() + "\n").unwrap();
    }
    let text =
        std::fs::read_to_string(beside).unwrap_or_else(|error| panic!("{}: {error}", beside.display()));
    let expected: T =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", beside.display()));
    assert_eq!(*found, expected, "{}", beside.display());
}

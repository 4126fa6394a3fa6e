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

/// Holds a log that is admitted, or refused at its last line, against its `.expected.json`.
///
/// `UPDATE_FIXTURES=1` writes the file instead, for logs of this project.
pub(crate) fn check(path: &Path, own: bool) -> Model {
    let model = check_anywhere(path, own);
    let lines =
        std::fs::read(path).unwrap().split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    let admitted = model.next_seq() as usize + 1;
    assert!(admitted == lines || admitted + 1 == lines, "{}: {admitted} of {lines} lines", path.display());
    model
}

/// [`check`] of a log that may go on behind the refused line.
pub(crate) fn check_anywhere(path: &Path, own: bool) -> Model {
    let (model, end) = fold(&std::fs::read(path).unwrap());
    let beside = path.with_extension("expected.json");
    match end {
        Ok(()) => compare::<Expected>(&beside, own, &model.expected()),
        Err(refusal) => compare::<RefusedExpected>(&beside, own, &model.expected_refused(&refusal)),
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

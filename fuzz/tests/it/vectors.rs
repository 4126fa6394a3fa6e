//! The model gives what an independent reference gave.
//!
//! The vectors lie beside the workspace, or where `REDERIVE_VECTORS` says.

use std::path::PathBuf;

use crate::support::{check, in_workspace, logs};

fn all_of(kind: &str) {
    let folder = std::env::var_os("REDERIVE_VECTORS").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| in_workspace("../shared/vectors")).join(kind);
    if !folder.is_dir() {
        eprintln!("skipped: no conformance vectors beside the workspace");
        return;
    }
    let logs = logs(&folder);
    assert!(!logs.is_empty());
    for log in &logs {
        check(log, false);
    }
    eprintln!("{} {kind} vectors", logs.len());
}

#[test]
fn valid_vectors_give_their_requests() {
    all_of("valid");
}

#[test]
fn refused_vectors_are_refused_at_their_last_line() {
    all_of("refused");
}

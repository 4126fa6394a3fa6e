//! What the fuzz targets check, each as a function of bytes, so that plain tests replay inputs.
//!
//! A target panics on a finding. Bytes that a target takes apart by itself mean the same in every
//! build: edits of files are laid over files that are made here, not stored.

#![expect(clippy::missing_panics_doc, reason = "a panic is a finding")]

mod events; // reading order, not the alphabet
mod files;
mod lines;

pub use events::{admission_events, projection};
pub use files::{journal, object, segment};
pub use lines::{admission_bytes, import};

/// A target: its name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, by the name of its binary and of its folder under `fuzz/corpus`.
pub const TARGETS: [Target; 7] = [
    ("admission-bytes", admission_bytes),
    ("admission-events", admission_events),
    ("import", import),
    ("journal", journal),
    ("segment", segment),
    ("object", object),
    ("projection", projection),
];

use rederive_engine::Fold;
use rederive_fuzz::Model;

/// The fold is what the model says.
fn check_fold(fold: &Fold, model: &Model) {
    let surface: Vec<u64> = fold.surface().seqs().into_iter().map(rederive_engine::Seq::value).collect();
    assert_eq!(fold.next_seq().value(), model.next_seq());
    assert_eq!(surface, model.surface());
    assert_eq!(fold.surface().generation().value(), model.generation());
    assert_eq!(fold.header().map(|header| (header.seq().value(), header.text())), model.header());
}

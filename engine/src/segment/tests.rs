//! What a segment promises: exact events back, or a typed error.

use std::path::Path;

use rederive_disk::{Disk, OpenMode, OsDisk};

use super::sample::Sample;
use super::*;
use crate::event::Event;
use crate::fold::Checkpoint;

fn meta() -> SegmentMeta {
    SegmentMeta {
        session: "s".into(),
        header_line: r#"{"type":"session","version":3,"id":"s","createdAt":1}"#.into(),
        types: vec!["my/own".into()],
        previous: Some(SegmentId(6)),
        base: Some(Base { key: SessionKey(1), cut: Seq::FIRST }),
    }
}

const ID: SegmentId = SegmentId(0x1234_5678_9abc_def0);

fn sealed(events: &[Event], end: &Checkpoint) -> Vec<u8> {
    let input = SegmentInput { id: ID, key: SessionKey(9), meta: &meta(), events, end };
    encode(&input, &mut Packer::new(LEVEL_DEFAULT)).unwrap()
}

fn open(bytes: &[u8], folder: &Path) -> Result<SegmentReader, SegmentError> {
    let path = folder.join("a.seg");
    std::fs::write(&path, bytes).unwrap();
    SegmentReader::open(&OsDisk, &path, ID)
}

/// Everything that is read from `bytes` is what `events` and `end` say.
fn check(bytes: &[u8], events: &[Event], end: &Checkpoint, folder: &Path) {
    let reader = open(bytes, folder).unwrap();
    let first = events[0].seq;
    assert_eq!((reader.id(), reader.key()), (ID, SessionKey(9)));
    assert_eq!((reader.first_seq(), reader.count()), (first, events.len() as u64));
    assert_eq!(reader.meta().unwrap(), meta());
    assert_eq!(reader.events(Seq::FIRST..Seq::new(u64::MAX)).unwrap(), events);
    for (envelope, event) in reader.envelopes().unwrap().iter().zip(events) {
        assert_eq!(
            (envelope.seq, envelope.time_ms, &envelope.kind, envelope.op),
            (event.seq, event.time_ms, &event.kind, event.op)
        );
    }
    let middle = events.len() / 2;
    let range = events[middle / 2].seq..events[middle].seq;
    assert_eq!(reader.events(range).unwrap(), events[middle / 2..middle]);
    let steps: Vec<StepMark> = events
        .iter()
        .filter_map(|event| Some(StepMark { seq: event.seq, kind: encode::step_kind(&event.kind)? }))
        .collect();
    assert_eq!(reader.steps().unwrap(), steps);

    let with_text: Vec<&Event> = events.iter().filter(|event| event.visible.is_some()).collect();
    let seqs: Vec<Seq> = with_text.iter().map(|event| event.seq).collect();
    assert_eq!(reader.visible_seqs().collect::<Vec<_>>(), seqs);
    for (found, event) in reader.visible(&seqs).unwrap().iter().zip(&with_text) {
        assert_eq!(&*found.text, event.visible().unwrap().as_bytes());
    }
    let some: Vec<Seq> = seqs.iter().copied().step_by(3).collect();
    assert_eq!(reader.visible(&some).unwrap().len(), some.len());

    let mut references: Vec<[u8; 32]> = Vec::new();
    for event in &with_text {
        references::for_each(event.visible().unwrap().as_bytes(), |digest| references.push(digest));
    }
    references.sort_unstable();
    references.dedup();
    assert_eq!(reader.references().unwrap(), references);

    let found = reader.checkpoint().unwrap();
    if first == Seq::FIRST {
        let live: Vec<Seq> = found.nodes.iter().map(|node| node.seq).collect();
        let mut ascending = live.clone();
        ascending.sort_unstable();
        let mut texts = reader.visible(&ascending).unwrap();
        let in_order = live.iter().map(|seq| texts[ascending.binary_search(seq).unwrap()].clone()).collect();
        texts.clear();
        assert_eq!(restore(found, in_order, None).checkpoint(), Checkpoint { header: None, ..end.clone() });
    }
}

#[test]
fn a_log_reads_back_exactly_whole_and_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..6 {
        let log = Sample::rich(seed, 40 + seed * 60);
        let end = log.fold().checkpoint();
        check(&sealed(&log.events, &end), &log.events, &end, folder.path());
        let tail = &log.events[log.events.len() / 3..];
        check(&sealed(tail, &end), tail, &end, folder.path());
    }
}

#[test]
fn texts_of_every_length_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Sample::new(1);
    for bytes in [0, 1, 100, 32_000, 33_000, 70_000, 10, 600_000, 5, 5] {
        let text = log.rng.prose(bytes);
        log.user(&text);
        let filler = log.rng.prose(bytes * 2);
        log.push("todo/write", &format!(r#"{{"filler":"{filler}"}}"#), "");
    }
    let end = log.fold().checkpoint();
    check(&sealed(&log.events, &end), &log.events, &end, folder.path());
}

#[test]
fn the_conformance_vectors_read_back() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/vectors/valid");
    let Ok(entries) = std::fs::read_dir(&vectors) else {
        eprintln!("skipped: there is no {}", vectors.display());
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut logs = 0;
    for entry in entries {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "jsonl") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let mut log = Sample::new(0);
        for line in text.lines().skip(1).filter(|line| !line.is_empty()) {
            log.push_line(line);
        }
        let end = log.fold().checkpoint();
        check(&sealed(&log.events, &end), &log.events, &end, folder.path());
        logs += 1;
    }
    assert!(logs > 0, "{} holds logs", vectors.display());
}

/// Reads everything from `bytes`: what it says is what `whole` says, or an error.
fn same_or_error(bytes: &[u8], whole: &[Event], folder: &Path, what: &str) {
    let Ok(reader) = open(bytes, folder) else { return };
    if let Ok(events) = reader.events(Seq::FIRST..Seq::new(u64::MAX)) {
        assert_eq!(events, whole, "{what}");
    }
    assert!(reader.verify().is_err(), "{what}: damage is found");
}

#[test]
fn every_flipped_byte_and_every_cut_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let log = Sample::rich(3, 4);
    let bytes = sealed(&log.events, &log.fold().checkpoint());
    for at in 0..bytes.len() {
        for bit in [0x10] {
            let mut flipped = bytes.clone();
            flipped[at] ^= bit;
            same_or_error(&flipped, &log.events, folder.path(), &format!("bit {bit:#x} of byte {at}"));
        }
        let cut = open(&bytes[..at], folder.path());
        assert!(matches!(cut, Err(SegmentError::Damaged { .. })), "cut at {at}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(open(&longer, folder.path()), Err(SegmentError::Damaged { .. })));
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert!(matches!(open(&newer, folder.path()), Err(SegmentError::Version { found: 2, .. })));
    let other = SegmentReader::open(&OsDisk, &folder.path().join("none"), ID);
    assert!(matches!(other, Err(SegmentError::Missing { .. })));
}

#[test]
fn a_written_segment_is_found_listed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("segments");
    OsDisk.create_folder(&root).unwrap();
    let log = Sample::rich(5, 3);
    let bytes = sealed(&log.events, &log.fold().checkpoint());
    write_segment(&OsDisk, &root, ID, &bytes).unwrap();
    let path = segment_path(&root, ID);
    assert!(path.ends_with("f0/123456789abcdef0.seg"), "{}", path.display());
    SegmentReader::open(&OsDisk, &path, ID).unwrap().verify().unwrap();
    let wrong = SegmentReader::open(&OsDisk, &path, SegmentId(7));
    assert!(matches!(wrong, Err(SegmentError::Damaged { section: "header", .. })));
    OsDisk.open(&root.join("f0/123456789abcdef0.tmp"), OpenMode::Create).unwrap();
    let listed = list_segments(&OsDisk, &root).unwrap();
    assert_eq!(listed.segments, [(ID, bytes.len() as u64)]);
    assert_eq!(listed.others, [root.join("f0/123456789abcdef0.tmp")]);
    remove_segments(&OsDisk, &root, &[ID, SegmentId(8)]).unwrap();
    assert!(list_segments(&OsDisk, &root).unwrap().segments.is_empty());
    assert!(matches!(SegmentReader::open(&OsDisk, &path, ID), Err(SegmentError::Missing { .. })));
}

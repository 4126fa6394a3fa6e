//! What a segment promises: exact events back, or a typed error.

use std::path::Path;

use rederive_disk::sim::SimDisk;
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

fn open(bytes: &[u8]) -> Result<SegmentReader, SegmentError> {
    let path = Path::new("/a.seg");
    let disk = SimDisk::from_files(1, [(path.to_owned(), bytes.to_vec())]);
    SegmentReader::open(&disk, path, ID)
}

/// Everything that is read from `bytes` is what `events` and `end` say.
fn check(bytes: &[u8], events: &[Event], end: &Checkpoint) {
    let reader = open(bytes).unwrap();
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
        assert_eq!(&*found.text, event.visible().unwrap());
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
    for seed in 0..6 {
        let log = Sample::rich(seed, 40 + seed * 60);
        let end = log.fold().checkpoint();
        check(&sealed(&log.events, &end), &log.events, &end);
        let tail = &log.events[log.events.len() / 3..];
        check(&sealed(tail, &end), tail, &end);
    }
}

#[test]
fn texts_of_every_length_read_back() {
    let mut log = Sample::new(1);
    for bytes in [0, 1, 100, 32_000, 33_000, 70_000, 10, 600_000, 5, 5] {
        let text = log.rng.prose(bytes);
        log.user(&text);
        let filler = log.rng.prose(bytes * 2);
        log.push("todo/write", &format!(r#"{{"filler":"{filler}"}}"#), "");
    }
    let end = log.fold().checkpoint();
    check(&sealed(&log.events, &end), &log.events, &end);
}

/// Over the size from which two threads unpack.
#[test]
fn many_texts_read_back_in_order() {
    let mut log = Sample::new(2);
    for nth in 0..120 {
        let text = log.rng.prose(if nth % 7 == 0 { 90_000 } else { 12_000 });
        log.user(&text);
    }
    let end = log.fold().checkpoint();
    let bytes = sealed(&log.events, &end);
    check(&bytes, &log.events, &end);
    // Damage in either half is found.
    for part in [3, 5, 6] {
        let mut damaged = bytes.clone();
        damaged[bytes.len() * part / 8] ^= 1;
        let Ok(reader) = open(&damaged) else { continue };
        let seqs: Vec<Seq> = reader.visible_seqs().collect();
        assert!(reader.visible(&seqs).is_err() || reader.events(Seq::FIRST..Seq::new(999)).is_err());
    }
}

#[test]
fn the_conformance_vectors_read_back() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/vectors/valid");
    let Ok(entries) = std::fs::read_dir(&vectors) else {
        eprintln!("skipped: there is no {}", vectors.display());
        return;
    };
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
        check(&sealed(&log.events, &end), &log.events, &end);
        logs += 1;
    }
    assert!(logs > 0, "{} holds logs", vectors.display());
}

/// Reads everything from `bytes`: what it says is what `whole` says, or an error.
fn same_or_error(bytes: &[u8], whole: &[Event], what: &str) {
    let Ok(reader) = open(bytes) else { return };
    if let Ok(events) = reader.events(Seq::FIRST..Seq::new(u64::MAX)) {
        assert_eq!(events, whole, "{what}");
    }
    assert!(reader.verify().is_err(), "{what}: damage is found");
}

#[test]
fn every_flipped_byte_and_every_cut_is_found() {
    let log = Sample::rich(3, 4);
    let bytes = sealed(&log.events, &log.fold().checkpoint());
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        same_or_error(&flipped, &log.events, &format!("byte {at}"));
        let cut = open(&bytes[..at]);
        assert!(matches!(cut, Err(SegmentError::Damaged { .. })), "cut at {at}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(open(&longer), Err(SegmentError::Damaged { .. })));
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert!(matches!(open(&newer), Err(SegmentError::Version { found: 2, .. })));
    let other = SegmentReader::open(&SimDisk::new(1), Path::new("/none"), ID);
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

/// `cargo test --release -p rederive-engine --lib measure -- --ignored --nocapture --test-threads=1`
#[test]
#[ignore = "measures, and says little without --release"]
#[expect(clippy::cast_precision_loss, reason = "ratios for a human")]
fn measure_segments() {
    use std::time::Instant;
    let folder = tempfile::tempdir().unwrap();
    // The workload `steps`: 40 deltas a settlement, 600-byte answers, 2.5 KB tool results.
    let mut log = Sample::new(1);
    log.push("turn/start", r#"{"turn":1}"#, "");
    for step in 1..=1000 {
        log.step(step, 40, 600, 2500);
    }
    let end = log.fold().checkpoint();
    let lines: usize = log.events.iter().map(|event| event.to_line().len() + 1).sum();
    for level in [1, 3, 6] {
        let meta = meta();
        let input = SegmentInput { id: ID, key: SessionKey(9), meta: &meta, events: &log.events, end: &end };
        let mut packer = Packer::new(level);
        let start = Instant::now();
        let bytes = encode(&input, &mut packer).unwrap();
        let took = start.elapsed();
        let jsonl: Vec<u8> = log.events.iter().flat_map(|e| (e.to_line() + "\n").into_bytes()).collect();
        let whole = zstd::bulk::compress(&jsonl, level).unwrap();
        println!(
            "level {level}: {} events, {lines} bytes of lines, {} stored ({:.1} an event, {:.3} of the lines, {:.2} of one zstd frame), {:.0} MB/s",
            log.events.len(),
            bytes.len(),
            bytes.len() as f64 / log.events.len() as f64,
            bytes.len() as f64 / lines as f64,
            bytes.len() as f64 / whole.len() as f64,
            lines as f64 / 1e6 / took.as_secs_f64(),
        );
        assert!(bytes.len() < lines / 2);
        let reader = open(&bytes).unwrap();
        for section in layout::Section::ALL {
            let entry = reader.section(section);
            println!("  {:<11} {:>9} of {:>9}", section.name(), entry.stored, entry.raw);
        }
        let start = Instant::now();
        let events = reader.events(Seq::FIRST..Seq::new(u64::MAX)).unwrap();
        println!("  all events: {:.0} MB/s", lines as f64 / 1e6 / start.elapsed().as_secs_f64());
        assert_eq!(events.len(), log.events.len());
    }
    for nodes in [2_000_u64, 100_000] {
        let mut log = Sample::new(2);
        log.push("turn/start", r#"{"turn":1}"#, "");
        for step in 1..=nodes / 2 {
            log.step(step, 4, 600, 600);
        }
        let end = log.fold().checkpoint();
        let bytes = sealed(&log.events, &end);
        let path = folder.path().join("a.seg");
        std::fs::write(&path, &bytes).unwrap();
        let start = Instant::now();
        let reader = SegmentReader::open(&OsDisk, &path, ID).unwrap();
        let opened = start.elapsed();
        let checkpoint = reader.checkpoint().unwrap();
        let with_checkpoint = start.elapsed();
        let seqs: Vec<Seq> = checkpoint.nodes.iter().map(|node| node.seq).collect();
        let texts = reader.visible(&seqs).unwrap();
        let with_texts = start.elapsed();
        let live: usize = texts.iter().map(|text| text.text.len()).sum();
        let fold = restore(checkpoint, texts, None);
        println!(
            "{nodes} nodes: open {opened:?}, checkpoint {with_checkpoint:?}, {live} bytes of texts {with_texts:?}, fold {:?}; checkpoint {} bytes, directory {}",
            start.elapsed(),
            reader.section(layout::Section::Checkpoint).stored,
            reader.section(layout::Section::Directory).stored,
        );
        assert_eq!(fold.surface().len() as u64, nodes);
    }
    // Tiny events, as stream deltas of their own: about 77 bytes a line.
    let mut log = Sample::new(3);
    for _ in 0..100_000 {
        let text = log.rng.prose(4);
        log.push("hook/invoked", &format!(r#"{{"t":"{text}"}}"#), "");
    }
    let bytes = sealed(&log.events, &log.fold().checkpoint());
    println!("tiny: {:.1} bytes an event", bytes.len() as f64 / 1e5);
    assert!(bytes.len() < 1_500_000);
}

mod any_event {
    use std::sync::Arc;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::event::json::Span;
    use crate::event::line::KeyOrder;
    use crate::event::{Kind, LogOnly, Shape, SurfaceOp};

    fn kind() -> impl Strategy<Value = Kind> {
        prop_oneof![
            Just(Kind::SystemMessage),
            Just(Kind::UserMessage),
            Just(Kind::AssistantMessage),
            Just(Kind::ToolResult),
            (0..LogOnly::ALL.len()).prop_map(|index| Kind::LogOnly(LogOnly::ALL[index])),
            "[a-z]{1,3}/own".prop_map(|name| Kind::Foreign(name.into())),
        ]
    }

    fn shape() -> impl Strategy<Value = Shape> {
        prop_oneof![
            Just(Shape::Order(KeyOrder(0x4321))),
            Just(Shape::Order(KeyOrder(0x4231))),
            (".{0,12}", ".{0,12}").prop_map(|(before, behind)| Shape::Verbatim {
                before: Bytes::from(before),
                behind: Bytes::from(behind)
            }),
        ]
    }

    type Parts = (Kind, Shape, [String; 3], u64, Option<(u64, u64)>, Option<Vec<u64>>, bool);

    fn parts() -> impl Strategy<Value = Parts> {
        let texts = [".{0,30}", ".{0,30}", ".{0,30}"];
        let op = proptest::option::of((any::<u64>(), any::<u64>()));
        let sources = proptest::option::of(proptest::collection::vec(any::<u64>(), 0..4));
        (kind(), shape(), texts, any::<u64>(), op, sources, any::<bool>())
    }

    fn event(seq: Seq, (kind, shape, [head, text, tail], time_ms, op, sources, ignorable): Parts) -> Event {
        let on_surface = kind.node().is_some();
        let whole = kind == Kind::UserMessage;
        let visible = (on_surface || kind == Kind::LogOnly(LogOnly::RequestHeader)).then(|| {
            let start = if whole { 0 } else { head.len() };
            Span { start: start as u32, end: (start + text.len()) as u32 }
        });
        let data = if whole { text } else { head + &text + &tail };
        let op = on_surface.then(|| {
            op.map_or(SurfaceOp::Append, |(start, end)| SurfaceOp::Replace {
                start: Seq::new(start),
                end: Seq::new(end),
            })
        });
        let sources: Option<Arc<[Seq]>> =
            sources.filter(|_| on_surface).map(|seqs| seqs.into_iter().map(Seq::new).collect());
        Event { seq, time_ms, kind, op, sources, ignorable, data: data.into(), visible, shape }
    }

    proptest! {
        #[test]
        fn whatever_an_event_holds_reads_back(
            first in prop_oneof![0..100_u64, Just(u64::MAX - 50)],
            parts in proptest::collection::vec(parts(), 1..30),
        ) {
            let events: Vec<Event> =
                parts.into_iter().zip(first..).map(|(parts, seq)| event(Seq::new(seq), parts)).collect();
            let end = Checkpoint { next: Seq::new(first + events.len() as u64), ..Checkpoint::default() };
            let reader = open(&sealed(&events, &end)).unwrap();
            prop_assert_eq!(reader.events(Seq::FIRST..Seq::new(u64::MAX)).unwrap(), events);
            reader.verify().unwrap();
        }

        #[test]
        fn no_bytes_make_a_reader_panic(
            at in proptest::collection::vec((0..4000_usize, any::<u8>()), 1..4),
            seed in 0..3_u64,
        ) {
            // The checksums are made right again, so that the decoders behind them are reached.
            let log = Sample::rich(seed, 3);
            let end = log.fold().checkpoint();
            let input = SegmentInput { id: ID, key: SessionKey(9), meta: &meta(), events: &log.events, end: &end };
            let mut bytes = encode(&input, &mut Packer::storing()).unwrap();
            let length = bytes.len();
            for (at, value) in at {
                bytes[layout::HEADER_LEN + at % (length - layout::HEADER_LEN)] = value;
            }
            let mut header = layout::Header::read(&encode(&input, &mut Packer::storing()).unwrap(), length as u64).unwrap();
            for (entry, section) in header.sections.iter_mut().zip(layout::Section::ALL) {
                let stored = &bytes[entry.offset as usize..(entry.offset + entry.stored) as usize];
                if !section.is_column() {
                    entry.checksum = layout::checksum(stored);
                }
            }
            bytes[..layout::HEADER_LEN].copy_from_slice(&header.write());
            if let Ok(reader) = open(&bytes) {
                let _ = reader.verify();
                let seqs: Vec<Seq> = reader.visible_seqs().collect();
                let _ = reader.visible(&seqs);
            }
        }
    }
}

mod golden {
    use std::fmt::Write;

    use super::*;

    const HEX: &str = "tests/golden/v1/segment.hex";

    fn log() -> Sample {
        let mut log = Sample::new(0);
        for line in [
            r#"{"type":"user/message","seq":0,"time":1700000000000,"data":{"role":"user","content":[{"type":"text","text":"hi"}]},"surfaceOp":"append"}"#,
            r#"{ "type":"todo/write","seq":1,"time":1700000000250,"data":{"items":[]}}"#,
            r#"{"type":"assistant/message","seq":2,"time":1700000000100,"data":{"turn":1,"message":{"role":"assistant","content":[],"source":{"provider":"p","model":"m"}},"usage":{}},"surfaceOp":"append"}"#,
            r#"{"type":"my/own","seq":3,"time":1700000000100,"data":{},"ignorable":true}"#,
            r#"{"type":"user/message","seq":4,"time":1700000000101,"data":{"role":"user","content":[]},"surfaceOp":{"op":"replace","startSeq":0,"endSeq":2},"sourceEventSeqs":[0,2]}"#,
        ] {
            log.push_line(line);
        }
        log
    }

    fn bytes(log: &Sample) -> Vec<u8> {
        let end = log.fold().checkpoint();
        let input =
            SegmentInput { id: ID, key: SessionKey(9), meta: &meta(), events: &log.events, end: &end };
        encode(&input, &mut Packer::storing()).unwrap()
    }

    fn dump(bytes: &[u8]) -> String {
        let header = layout::Header::read(bytes, bytes.len() as u64).unwrap();
        let mut out = String::from("# A segment of five events, nothing compressed. FORMAT.md, Segments.\n");
        let mut part = |name: &str, from: usize, to: usize| {
            let _ = writeln!(out, "# {name}, at {from}");
            for row in bytes[from..to].chunks(16) {
                let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
                let _ = writeln!(out, "{}", hex.join(" "));
            }
        };
        part("magic, version, number of sections", 0, 16);
        part("id, session key, first seq, count, file length, reserved", 16, 64);
        for (index, section) in layout::Section::ALL.iter().enumerate() {
            let at = 64 + index * 48;
            part(&format!("{}: kind, codec, offset, stored, raw, checksum", section.name()), at, at + 48);
        }
        part("checksum of the header", layout::HEADER_LEN - 16, layout::HEADER_LEN);
        for (entry, section) in header.sections.iter().zip(layout::Section::ALL) {
            part(section.name(), entry.offset as usize, (entry.offset + entry.stored) as usize);
        }
        out
    }

    #[test]
    fn the_golden_segment_is_written_and_read_as_ever() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(HEX);
        let log = log();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, dump(&bytes(&log))).unwrap();
        }
        let hex = std::fs::read_to_string(&path).unwrap();
        assert_eq!(dump(&bytes(&log)), hex);
        let golden: Vec<u8> = hex
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(|line| line.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()))
            .collect();
        check(&golden, &log.events, &log.fold().checkpoint());
    }
}

#[test]
fn a_write_that_fails_or_loses_power_leaves_a_whole_segment_or_none() {
    use rederive_disk::sim::{Fault, Repeat, Target};
    let root = Path::new("/segments");
    let path = segment_path(root, ID);
    let log = Sample::rich(5, 1);
    let bytes = sealed(&log.events, &log.fold().checkpoint());
    let made = |disk: &SimDisk| {
        disk.create_folder(root).unwrap();
        disk.sync_folder(Path::new("/")).unwrap();
        disk.operations()
    };
    let whole = SimDisk::new(1);
    let first = made(&whole);
    write_segment(&whole, root, ID, &bytes).unwrap();
    for at in first..whole.operations() {
        for fault in [Fault::NoSpace, Fault::Io, Fault::ShortWrite, Fault::Late] {
            let disk = SimDisk::new(at).fail_at(at, fault, Repeat::Once, Target::Any);
            made(&disk);
            let failed = write_segment(&disk, root, ID, &bytes);
            assert!(matches!(failed, Err(SegmentError::Io { .. })), "operation {at}, {fault}");
            if disk.exists(&path).unwrap() {
                SegmentReader::open(&disk, &path, ID).unwrap().verify().unwrap();
            }
            write_segment(&disk, root, ID, &bytes).unwrap();
            let after = disk.after_power_loss();
            SegmentReader::open(&after, &path, ID).unwrap().verify().unwrap();
        }
        let disk = SimDisk::new(at).cut_at(at);
        made(&disk);
        assert!(write_segment(&disk, root, ID, &bytes).is_err());
        let after = disk.after_power_loss();
        if after.exists(&path).unwrap() {
            SegmentReader::open(&after, &path, ID).unwrap().verify().unwrap();
        }
        write_segment(&after, root, ID, &bytes).unwrap();
        SegmentReader::open(&after.after_power_loss(), &path, ID).unwrap().verify().unwrap();
    }
}

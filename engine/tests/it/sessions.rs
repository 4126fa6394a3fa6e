//! Whatever a session goes through, it reads back as it was written and folds as the model folds.

use std::sync::Arc;

use bytes::Bytes;
use rederive_disk::{Disk, sim::SimDisk};
use rederive_engine::{Durability, NewSession, Reader, Seq, SessionId, Store};
use rederive_fuzz::Model;
use rederive_fuzz::workload::{self, Operation, Options};

use crate::sim::{FOLDER, Log, Random, check_against_model, in_parallel, model_of, options, read_all, seeds};

fn open(disk: &SimDisk) -> Store {
    Store::open_on(Arc::new(disk.clone()), FOLDER, options()).unwrap()
}

fn create(seed: u64) -> (SimDisk, Store) {
    let disk = SimDisk::new(seed);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    (disk, Store::create_on(shared, FOLDER, options()).unwrap())
}

/// The surface before some events, from the reader and from the model.
fn check_the_past(reader: &Reader, model: &Model, random: &mut Random, context: &str) {
    for _ in 0..4 {
        let seq = random.below(model.next_seq() + 1);
        let past = reader.fold_at(Seq::new(seq)).unwrap();
        let surface: Vec<u64> = past.surface().seqs().into_iter().map(Seq::value).collect();
        assert_eq!(surface, model.surface_at(seq), "{context}: before {seq}");
        assert_eq!(past.next_seq().value(), seq, "{context}");
    }
}

#[test]
fn an_appended_log_equals_the_model_after_every_batch_seal_and_reopen() {
    in_parallel(&seeds(24, 2000), |seed| appended(*seed));
}

fn appended(seed: u64) {
    let mut random = Random(seed);
    let (disk, mut store) = create(seed);
    let turns = 1 + random.below(8);
    let swarm = Options::swarm(seed).turns(turns).without(Operation::OddKeys);
    let id = SessionId::new("s").unwrap();
    let mut log = Log::new(workload::random(seed, &swarm).skip(1).collect());
    let mut session = store.create_session(NewSession::new("s")).unwrap();
    loop {
        let context = format!("seed {seed}, event {}", log.visible);
        let count = if random.one_in(8) { 40 } else { 1 + random.index(4) };
        let entries = log.next_lines(count);
        if entries.is_empty() {
            break;
        }
        let lines: Vec<Bytes> = entries.iter().map(|entry| Bytes::from(entry.line.clone())).collect();
        drop(session.append_lines(&lines, Durability::Buffered).unwrap());
        log.attempt(entries);
        log.confirm();
        match random.below(12) {
            0 => session.seal().unwrap(),
            1 => store.seal_all().unwrap(),
            2 => {
                session.close().unwrap();
                if random.one_in(2) {
                    store.close().unwrap();
                    store = open(&disk);
                }
                session = store.open_session(&id).unwrap();
                log.adopt_end(&read_all(&session.reader()));
            }
            _ => {}
        }
        check_against_model(&session.fold(), &log.model, &context);
        if random.one_in(6) {
            let reader = store.read_session(&id).unwrap();
            check_the_past(&reader, &log.model, &mut random, &context);
            let lines = read_all(&reader);
            assert_eq!(lines, log.lines(), "{context}");
        }
    }
    session.close().unwrap();
    store.close().unwrap();
    let reader = open(&disk).read_session(&id).unwrap();
    check_against_model(reader.fold(), &log.model, &format!("seed {seed}, at the end"));
    assert_eq!(read_all(&reader), log.lines(), "seed {seed}");
}

#[test]
fn an_imported_log_exports_byte_for_byte() {
    in_parallel(&seeds(40, 4000), |seed| imported(*seed));
}

fn imported(seed: u64) {
    let mut random = Random(seed ^ 0x1a9);
    let (disk, store) = create(seed);
    let lines: Vec<String> = workload::random(seed, &Options::swarm(seed)).collect();
    let id = store.import(lines.join("\n").as_bytes()).unwrap().id().clone();
    let model = model_of(lines.iter().skip(1).map(String::as_str));
    for context in [format!("seed {seed}, imported"), format!("seed {seed}, reopened")] {
        let store = if context.ends_with("imported") { store.clone() } else { open(&disk) };
        let reader = store.read_session(&id).unwrap();
        check_against_model(reader.fold(), &model, &context);
        check_the_past(&reader, &model, &mut random, &context);
        let exported: Vec<String> =
            std::iter::once(reader.header_line().as_str().to_owned()).chain(read_all(&reader)).collect();
        assert_eq!(exported, lines, "{context}");
    }
}

//! Files of a store with edits in them: the right data, or a typed error.
//!
//! With `--cfg fuzzing` the engine's checksums are all zero, so that edits reach what they guard;
//! then what is read is only held against the rules, not against what was written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arbitrary::{Arbitrary, Unstructured};
use bytes::Bytes;
use rederive_cas::{Digest, Objects, ObjectsOptions};
use rederive_disk::sim::SimDisk;
use rederive_engine::{Durability, NewSession, Seq, SessionId, Store, StoreError, StoreOptions};
use rederive_fuzz::{Model, workload};

use crate::check_fold;

const FOLDER: &str = "/store";

#[derive(Arbitrary, Debug)]
enum Edit {
    Put {
        at: u16,
        bytes: Vec<u8>,
    },
    /// Four bytes, little-endian: a length, an offset, a count.
    Number {
        at: u16,
        value: u32,
    },
    Copy {
        from: u16,
        to: u16,
        len: u8,
    },
    Cut {
        at: u16,
    },
}

fn apply(edit: &Edit, file: &mut Vec<u8>) {
    let mut put = |at: usize, bytes: &[u8]| {
        for (offset, byte) in bytes.iter().enumerate() {
            if let Some(place) = file.get_mut(at + offset) {
                *place = *byte;
            }
        }
    };
    match edit {
        Edit::Put { at, bytes } => put(usize::from(*at), bytes),
        Edit::Number { at, value } => put(usize::from(*at), &value.to_le_bytes()),
        Edit::Copy { from, to, len } => {
            let from = usize::from(*from);
            let bytes = file.get(from..from + usize::from(*len)).unwrap_or_default().to_vec();
            apply(&Edit::Put { at: *to, bytes }, file);
        }
        Edit::Cut { at } => file.truncate(usize::from(*at)),
    }
}

fn edited(data: &[u8], file: &mut Vec<u8>) {
    let mut bytes = Unstructured::new(data);
    for _ in 0..16 {
        if bytes.is_empty() {
            return;
        }
        let Ok(edit) = Edit::arbitrary(&mut bytes) else { return };
        apply(&edit, file);
    }
}

struct Base {
    files: BTreeMap<PathBuf, Vec<u8>>,
    lines: Vec<String>,
}

fn options() -> StoreOptions {
    StoreOptions::default().clock(Arc::new(|| 1)).seal_inline()
}

/// A store with one session of some events: in the journal alone, as a kill leaves it, or sealed.
fn base(is_sealed: bool) -> Base {
    let host = |line: &String| !line.contains("session/end-seed") && !line.contains("request/dispatch");
    let log = workload::random(3, &workload::Options::everything().turns(2));
    // Up to the first event that only the store writes, so that the seqs stay.
    let lines: Vec<String> = log.skip(1).take_while(host).take(40).collect();
    let disk = SimDisk::new(1);
    let store = Store::create_on(Arc::new(disk.clone()), FOLDER, options()).expect("an empty disk");
    let mut session = store.create_session(NewSession::new("s")).expect("it is new");
    for batch in lines.chunks(7) {
        let batch: Vec<Bytes> = batch.iter().map(|line| Bytes::from(line.clone())).collect();
        drop(session.append_lines(&batch, Durability::Buffered).expect("a valid log"));
    }
    if is_sealed {
        session.close().expect("it seals");
        store.close().expect("it closes");
        Base { files: disk.files(), lines }
    } else {
        Base { files: disk.files(), lines }
    }
}

/// Opens the store of `files` and reads all of it.
fn read(files: BTreeMap<PathBuf, Vec<u8>>, lines: &[String]) {
    let disk = SimDisk::from_files(1, files);
    let Ok(store) = Store::open_on(Arc::new(disk), FOLDER, options()) else { return };
    let _ = read_session(&store, lines);
}

fn read_session(store: &Store, lines: &[String]) -> Result<(), StoreError> {
    let id = SessionId::new("s").expect("a name");
    let reader = store.read_session(&id)?;
    let _ = reader.steps()?;
    let mut found = Vec::new();
    for event in reader.events(Seq::FIRST..reader.fold().next_seq())? {
        found.push(event?.to_line());
    }
    let past = reader.fold_at(Seq::new(found.len() as u64 / 2))?;
    assert!(past.next_seq().value() <= found.len() as u64);
    if cfg!(fuzzing) {
        return Ok(());
    }
    assert!(lines.starts_with(&found), "what was never written is read");
    let mut model = Model::new().without_requests();
    for line in &found {
        model.push_line(line).expect("it was admitted before");
    }
    check_fold(reader.fold(), &model);
    Ok(())
}

/// Recovery of a killed process's journal with edits in it.
pub fn journal(data: &[u8]) {
    static BASE: OnceLock<Base> = OnceLock::new();
    let base = BASE.get_or_init(|| base(false));
    let mut files = base.files.clone();
    let file = files.get_mut(Path::new("/store/journal/0-a.jnl")).expect("the first journal");
    // Zeroes ahead are of no interest.
    file.truncate(60_000);
    edited(data, file);
    read(files, &base.lines);
}

/// A sealed segment with edits in it.
pub fn segment(data: &[u8]) {
    static BASE: OnceLock<Base> = OnceLock::new();
    let base = BASE.get_or_init(|| base(true));
    let mut files = base.files.clone();
    let is_segment = |path: &&PathBuf| path.extension().is_some_and(|end| end == "seg");
    let path = files.keys().find(is_segment).expect("it was sealed").clone();
    edited(data, files.get_mut(&path).expect("it is there"));
    read(files, &base.lines);
}

/// An object's file with edits in it: its bytes, or a typed error; the digest is always checked.
pub fn object(data: &[u8]) {
    type Base = (BTreeMap<PathBuf, Vec<u8>>, [Digest; 2]);
    static BASE: OnceLock<Base> = OnceLock::new();
    let contents: [Vec<u8>; 2] = [b"abc ".repeat(300), (0..=255).collect()];
    let options = || ObjectsOptions { clock_ms: Arc::new(|| 1), ..ObjectsOptions::default() };
    let open = |disk: SimDisk| Objects::open(Arc::new(disk), "/objects", options()).expect("a folder");
    let (files, digests) = BASE.get_or_init(|| {
        let disk = SimDisk::new(1);
        let objects = open(disk.clone());
        let digests = [0, 1].map(|nth| objects.put(&contents[nth]).expect("an empty disk"));
        (disk.files(), digests)
    });
    let (nth, data) = data.split_first().map_or((0, data), |(first, rest)| (usize::from(first % 2), rest));
    let mut files = files.clone();
    let disk = SimDisk::from_files(1, files.clone());
    let path = open(disk).path(&digests[nth]);
    edited(data, files.get_mut(&path).expect("it was put"));
    if let Ok(found) = open(SimDisk::from_files(1, files)).get(&digests[nth]) {
        assert_eq!(found, contents[nth], "another object under the digest");
    }
}

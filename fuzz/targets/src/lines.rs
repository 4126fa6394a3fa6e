//! Logs as bytes.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use rederive_disk::sim::SimDisk;
use rederive_engine::{ImportError, Replay, Seq, Store, StoreError, StoreOptions, TypeRegistry};
use rederive_fuzz::Model;

use crate::check_fold;

/// Lines through the door, each after the last: admitted or refused as by the model, and what was
/// admitted writes the same line.
pub fn admission_bytes(data: &[u8]) {
    let mut replay = Replay::new(TypeRegistry::new());
    let mut model = Model::new().without_requests();
    for line in data.split(|byte| *byte == b'\n') {
        push(&mut replay, &mut model, line);
    }
    check_fold(replay.fold(), &model);
}

/// Pushes one line into both.
pub(crate) fn push(replay: &mut Replay, model: &mut Model, line: &[u8]) {
    let admitted = replay.push_bytes(&Bytes::copy_from_slice(line));
    let expected = model.push_bytes(line);
    let shown = String::from_utf8_lossy(line);
    match (admitted, expected) {
        (Ok(event), Ok(())) => assert_eq!(event.to_line().as_bytes(), line),
        // A line that breaks several rules is refused under any of them; fixtures break one alone.
        (Err(found), Err(expected)) => assert_eq!(found.seq().value(), expected.seq, "{shown}"),
        (found, expected) => panic!("{shown}: {found:?}, the model: {expected:?}"),
    }
}

thread_local! {
    static STORE: RefCell<Option<(Store, u32)>> = const { RefCell::new(None) };
}

/// A whole log into a store: in as it is and out byte for byte, or refused with nothing left.
pub fn import(data: &[u8]) {
    STORE.with_borrow_mut(|slot| {
        // A new one now and then, so that its simulated disk stays small.
        if slot.as_ref().is_none_or(|(_, uses)| *uses >= 500) {
            let options = StoreOptions::default().segment_bytes(4096).seal_inline();
            let store = Store::create_on(Arc::new(SimDisk::new(1)), "/store", options);
            *slot = Some((store.expect("an empty disk takes a store"), 0));
        }
        let (store, uses) = slot.as_mut().expect("it was just made");
        *uses += 1;
        import_into(store, data);
    });
}

fn import_into(store: &Store, data: &[u8]) {
    let (model, end) = rederive_fuzz::fold(data);
    match (store.import(data), end) {
        (Ok(imported), end) => {
            // The model takes every line for one; the store reads none behind the last line feed.
            assert!(end.is_ok() || data.is_empty(), "{end:?}");
            let reader = store.read_session(imported.id()).expect("it was imported");
            check_fold(reader.fold(), &model);
            let mut out = reader.header_line().as_str().as_bytes().to_vec();
            for event in reader.events(Seq::FIRST..reader.fold().next_seq()).expect("it reads") {
                out.push(b'\n');
                event.expect("it reads").write_line(&mut out);
            }
            assert_eq!(out, data.strip_suffix(b"\n").unwrap_or(data));
            store.delete_session(imported.id()).expect("nobody has it open");
        }
        (Err(ImportError::Refused { line, refusal }), Err(expected)) => {
            if line > 1 {
                assert_eq!(refusal.seq().value(), expected.seq);
            }
        }
        (Err(ImportError::Empty), _) => assert!(data.is_empty()),
        // A name of no or too many bytes, or a header line that the model is not strict about.
        (Err(ImportError::Store(StoreError::BadName { .. })), _)
        | (Err(ImportError::Refused { line: 1, .. }), Ok(())) => {}
        (found, expected) => panic!("{found:?}, the model: {expected:?}"),
    }
    assert_eq!(store.sessions(None, 1).expect("it lists").len(), 0);
}

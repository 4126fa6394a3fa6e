//! A turn that a crash left open is closed once, by whoever opens the session next.

use bytes::Bytes;
use rederive_engine::{Durability, Event, Reader, Seq, SessionId, Store, list_items, object_member};

const P: &str = include_str!("../fixtures/cases/call-without-result.jsonl");

fn events(reader: &Reader) -> Vec<Event> {
    reader.events(Seq::FIRST..reader.fold().next_seq()).unwrap().map(Result::unwrap).collect()
}

fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.kind().name()).collect()
}

/// A store that holds the case's log, as a crash left it.
fn crashed(folder: &std::path::Path) -> (Store, SessionId, u64) {
    let store = Store::create(folder.join("store")).unwrap();
    let imported = store.import(P.as_bytes()).unwrap();
    (store, imported.id().clone(), imported.events())
}

#[test]
fn each_unanswered_call_gets_one_result_that_says_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let (store, id, before) = crashed(folder.path());
    let session = store.open_session(&id).unwrap();
    let all = events(&session.reader());
    let closers = &all[usize::try_from(before).unwrap()..];
    assert_eq!(kinds(closers), ["tool/result", "tool/result", "step/end", "turn/end", "session/end-seed"]);
    let code = |event: &Event| event.data_at(&["error", "code"]).unwrap().to_owned();
    assert_eq!(code(&closers[0]), "\"TOOL_OUTCOME_UNKNOWN\"");
    assert_eq!(closers[0].source_event_seqs(), [Seq::new(6)], "the recorded call is cited");
    assert_eq!(code(&closers[1]), "\"TOOL_NOT_STARTED\"");
    assert!(closers[1].source_event_seqs().is_empty());
    let block = list_items(object_member(closers[0].visible().unwrap(), "content").unwrap())[0].to_owned();
    assert_eq!(object_member(&block, "toolCallId"), Some("\"c1\""));
    assert_eq!(object_member(&block, "isError"), Some("true"));
    assert_eq!(closers[3].data_at(&["reason", "kind"]), Some("\"interrupted\""));
    let last = all[usize::try_from(before).unwrap() - 1].time_ms();
    assert!(closers[..4].iter().all(|event| event.time_ms() == last), "times repeat the last event's");
    let seqs: Vec<u64> = session.fold().surface().seqs().iter().map(|seq| seq.value()).collect();
    assert_eq!(seqs, [2, 3, 5, 7, 8], "both results stand right behind their call");
}

#[test]
fn opening_again_adds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (store, id, _) = crashed(folder.path());
    store.open_session(&id).unwrap().close().unwrap();
    let once = events(&store.read_session(&id).unwrap());
    store.open_session(&id).unwrap().close().unwrap();
    store.open_session(&id).unwrap().close().unwrap();
    assert_eq!(events(&store.read_session(&id).unwrap()), once);
}

#[test]
fn a_reader_sees_the_same_closers_before_any_writer_came() {
    let folder = tempfile::tempdir().unwrap();
    let (store, id, before) = crashed(folder.path());
    let reader = store.read_session(&id).unwrap();
    assert_eq!(reader.fold().next_seq().value(), before, "as it stands, nothing is closed");
    let shown = events(&reader.with_closers());
    store.open_session(&id).unwrap().close().unwrap();
    let mut written = events(&store.read_session(&id).unwrap());
    assert_eq!(written.pop().unwrap().kind().name(), "session/end-seed");
    assert_eq!(shown, written);
    assert_eq!(
        events(&store.read_session(&id).unwrap().with_closers()).len(),
        written.len() + 1,
        "nothing is open"
    );
}

#[test]
fn a_live_turn_is_not_closed_for_readers() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(folder.path().join("store")).unwrap();
    let mut session = store.create_session(rederive_engine::NewSession::new("live")).unwrap();
    let line = Bytes::from_static(br#"{"type":"turn/start","data":{"turn":1}}"#);
    session.append_lines(&[line], Durability::Synced).unwrap().wait().unwrap();
    let reader = store.read_session(session.id()).unwrap();
    assert_eq!(reader.with_closers().fold().next_seq(), reader.fold().next_seq());
}

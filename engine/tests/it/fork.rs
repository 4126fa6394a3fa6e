//! A fork shares its parent's events up to the cut, and goes on by itself.

use rederive_engine::{
    Draft, Durability, ForkError, NewSession, Reader, Seq, Session, SessionId, Store, StoreError,
};

fn user(text: &str) -> Draft {
    let data = format!("{{\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}");
    Draft::append("user/message", data)
}

/// Appends a whole turn with one message.
fn turn(session: &mut Session, number: u64) {
    let start = Draft::new("turn/start", format!("{{\"turn\":{number}}}"));
    let end = Draft::new("turn/end", format!("{{\"turn\":{number},\"reason\":{{\"kind\":\"completed\"}}}}"));
    let batch = vec![start, user(&format!("turn {number}")), end];
    session.append(batch, Durability::Buffered).unwrap().wait().unwrap();
}

fn lines(reader: &Reader, range: std::ops::Range<Seq>) -> Vec<String> {
    reader.events(range).unwrap().map(|event| event.unwrap().to_line()).collect()
}

fn parent(store: &Store, turns: u64) -> Session {
    let mut session = store.create_session(NewSession::new("parent")).unwrap();
    for number in 1..=turns {
        turn(&mut session, number);
    }
    session
}

#[test]
fn a_fork_has_its_parents_events_and_a_marker() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(folder.path().join("store")).unwrap();
    let mut parent = parent(&store, 4);
    let child = store.fork_session(parent.id(), Seq::new(5), NewSession::new("child")).unwrap();
    turn(&mut parent, 5);
    let (of_child, of_parent) = (child.reader(), parent.reader());
    let cut = Seq::new(6);
    assert_eq!(lines(&of_child, Seq::FIRST..cut), lines(&of_parent, Seq::FIRST..cut));
    let marker = of_child.event(cut).unwrap().unwrap();
    assert_eq!((marker.kind().name(), marker.data()), ("session/end-seed", "{\"inherited\":true}"));
    assert_eq!(of_child.fold().surface().seqs(), [Seq::new(1), Seq::new(4)]);
    assert_eq!(child.header_line().parent_session(), Some("parent"));
    assert!(child.header_line().is_seeded());
}

#[test]
fn forks_of_forks_open_again_and_outlive_their_parents() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("store");
    let store = Store::create(&place).unwrap();
    parent(&store, 6).close().unwrap();
    let mut names = vec!["parent".to_owned()];
    for generation in 1..=5_u64 {
        let from = SessionId::new(names.last().unwrap()).unwrap();
        let events = store.read_session(&from).unwrap().fold().next_seq();
        let name = format!("child-{generation}");
        let mut child =
            store.fork_session(&from, events.previous().unwrap(), NewSession::new(&*name)).unwrap();
        turn(&mut child, 6 + generation);
        child.close().unwrap();
        names.push(name);
    }
    let youngest = SessionId::new("child-5").unwrap();
    let before = {
        let reader = store.read_session(&youngest).unwrap();
        lines(&reader, Seq::FIRST..reader.fold().next_seq())
    };
    for name in &names[..5] {
        store.delete_session(&SessionId::new(name).unwrap()).unwrap();
    }
    store.sweep().unwrap();
    store.close().unwrap();
    let store = Store::open(&place).unwrap();
    let reader = store.read_session(&youngest).unwrap();
    assert_eq!(lines(&reader, Seq::FIRST..reader.fold().next_seq()), before);
    assert_eq!(store.sessions(None, 10).unwrap().len(), 1);
    store.delete_session(&youngest).unwrap();
    assert_eq!(store.stats().unwrap().segments(), 0, "the last fork takes what it shared with it");
}

#[test]
fn a_cut_inside_a_turn_or_behind_the_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(folder.path().join("store")).unwrap();
    let parent = parent(&store, 2);
    let fork = |at| store.fork_session(parent.id(), Seq::new(at), NewSession::new("child"));
    for at in [0, 1, 3, 4] {
        assert!(matches!(fork(at), Err(ForkError::OpenTurn { .. })), "event {at} is inside a turn");
    }
    assert!(matches!(fork(6), Err(ForkError::NoEvent { events: 6, .. })));
    assert!(matches!(
        store.session_info(&SessionId::new("child").unwrap()),
        Err(StoreError::NoSession { .. })
    ));
    fork(2).unwrap();
}

#[test]
fn a_fork_costs_the_same_whatever_the_parents_length() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(folder.path().join("store")).unwrap();
    parent(&store, 200).close().unwrap();
    let before = store.stats().unwrap();
    for number in 0..10 {
        let id = SessionId::new("parent").unwrap();
        let child = store.fork_session(&id, Seq::new(599), NewSession::new(format!("c{number}"))).unwrap();
        child.close().unwrap();
    }
    let after = store.stats().unwrap();
    let added = (after.segment_bytes() - before.segment_bytes()) / 10;
    assert!(added < 4096, "a fork added {added} bytes of segments");
}

//! Limits: what is large or many costs what it is, and what is too large is refused.
//!
//! The large ones print what they took (a session of 2 GB, a million tiny events):
//! `cargo test --release -p rederive-engine --test it limits -- --ignored --nocapture --test-threads 1`.

use std::time::Instant;

use rederive_engine::{
    AppendError, Draft, Durability, EVENT_BYTES_MAX_DEFAULT, NewSession, Rule, Seq, SessionId, Store,
    StoreError,
};

fn name(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

/// A user message whose line has `bytes` bytes at `seq` with a time of 13 digits.
fn of_line_bytes(bytes: u64, seq: u64) -> Draft {
    let data =
        |text: &str| format!("{{\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}");
    let around = format!(
        "{{\"type\":\"user/message\",\"seq\":{seq},\"time\":1700000000000,\"data\":{},\"surfaceOp\":\"append\"}}",
        data("")
    );
    Draft::append("user/message", data(&"x".repeat(bytes as usize - around.len()))).at(1_700_000_000_000)
}

#[test]
fn an_event_at_the_limit_is_kept_and_one_byte_more_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::create(&path).unwrap();
    let mut session = store.create_session(NewSession::new("s")).unwrap();
    for (seq, bytes) in [(0, EVENT_BYTES_MAX_DEFAULT - 1024), (1, EVENT_BYTES_MAX_DEFAULT)] {
        session.append(vec![of_line_bytes(bytes, seq)], Durability::Synced).unwrap().wait().unwrap();
    }
    for bytes in [EVENT_BYTES_MAX_DEFAULT + 1, EVENT_BYTES_MAX_DEFAULT * 2] {
        let refused = session.append(vec![of_line_bytes(bytes, 2)], Durability::Synced);
        let Err(AppendError::Refused(refusal)) = refused else { panic!("{bytes} bytes were admitted") };
        assert_eq!((refusal.rule(), refusal.seq()), (Rule::TooLarge, Seq::new(2)));
    }
    assert_eq!((session.fold().next_seq(), session.fold().surface().len()), (Seq::new(2), 2));
    session.close().unwrap();
    drop(store);
    let store = Store::open_read_only(&path).unwrap();
    let reader = store.read_session(&name("s")).unwrap();
    let last = reader.event(Seq::new(1)).unwrap().unwrap();
    assert_eq!(last.to_line().len() as u64, EVENT_BYTES_MAX_DEFAULT);
}

/// Mounts a file system in memory; `None` where that is not allowed.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "tmpfs"]).arg(folder.path()).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }

    fn read_only(&self) {
        let mut mount = std::process::Command::new("mount");
        let done = mount.args(["-o", "remount,ro"]).arg(self.0.path()).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_store_on_a_read_only_file_system_opens_for_reading() {
    let Some(mounted) = Mounted::new() else {
        println!("skipped: a file system cannot be mounted here");
        return;
    };
    let path = mounted.0.path().join("store");
    let store = Store::create(&path).unwrap();
    let mut session = store.create_session(NewSession::new("s")).unwrap();
    session.append(vec![of_line_bytes(300, 0)], Durability::Synced).unwrap().wait().unwrap();
    session.close().unwrap();
    store.close().unwrap();
    mounted.read_only();
    let store = Store::open_read_only(&path).unwrap();
    assert_eq!(store.sessions(None, 10).unwrap().len(), 1);
    assert_eq!(store.read_session(&name("s")).unwrap().fold().surface().len(), 1);
    assert!(matches!(store.create_session(NewSession::new("t")), Err(StoreError::ReadOnly { .. })));
    let refused = Store::open(&path).map(|_| ());
    assert!(refused.is_err(), "it cannot be opened for writing");
}

/// Kilobytes that this process has in memory at most so far, where that can be told.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn fill(events: u64, bytes: u64, batch: u64) -> (tempfile::TempDir, std::time::Duration) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(folder.path().join("store")).unwrap();
    let mut session = store.create_session(NewSession::new("s")).unwrap();
    let started = Instant::now();
    let mut seq = 0;
    while seq < events {
        let drafts = (seq..(seq + batch).min(events))
            .map(|seq| {
                Draft::new(
                    "todo/write",
                    format!("{{\"n\":{seq},\"pad\":\"{}\"}}", "y".repeat(bytes as usize)),
                )
            })
            .collect();
        let _ticket = session.append(drafts, Durability::Buffered).unwrap();
        seq += batch;
    }
    session.append(vec![of_line_bytes(300, events)], Durability::Synced).unwrap().wait().unwrap();
    session.close().unwrap();
    store.close().unwrap();
    (folder, started.elapsed())
}

/// `alone`: no other test runs beside it, so that what the process holds is this one's.
fn opens_small(what: &str, events: u64, bytes: u64, batch: u64, alone: bool) {
    let (folder, filled) = fill(events, bytes, batch);
    let peak = peak_kb();
    let started = Instant::now();
    let store = Store::open(folder.path().join("store")).unwrap();
    let session = store.open_session(&name("s")).unwrap();
    let opened = started.elapsed();
    assert_eq!(session.fold().surface().len(), 1);
    let log = session.fold().line_bytes();
    println!(
        "{what}: {events} events, {} MB of log, written in {filled:?}, opened in {opened:?}; peak memory {} MB, {} KB of it from opening",
        log / 1_000_000,
        peak_kb() / 1024,
        peak_kb() - peak
    );
    assert!(opened.as_millis() < 1_000, "opening costs what the model sees: {opened:?}");
    assert!(!alone || peak < 400 * 1024, "appending keeps no log in memory: {peak} KB");
}

#[test]
fn many_events_open_as_fast_as_few() {
    opens_small("small", 20_000, 20, 500, false);
}

#[test]
#[ignore = "writes a million events"]
fn a_million_tiny_events() {
    opens_small("tiny events", 1_000_000, 10, 500, true);
}

#[test]
#[ignore = "writes 2 GB"]
fn a_session_of_two_gigabytes() {
    opens_small("2 GB", 2_000, 1_000_000, 1, true);
}

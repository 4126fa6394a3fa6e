//! Many threads at once: appenders, flushers, sealers, readers and those who close and open again;
//! every session ends as its own log says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rederive_engine::{Durability, NewSession, SessionId, Store, StoreError, StoreOptions};
use rederive_fuzz::workload::{self, Operation, Options};

use crate::sim::{Log, Random, check_against_model, is_long, model_of, read_all};

/// Small limits: journal files are left and reused, tails are sealed by size and when idle.
fn stressed() -> StoreOptions {
    StoreOptions::default()
        .segment_bytes(16 * 1024)
        .journal_switch_bytes(96 * 1024)
        .zstd_level(1)
        .idle_seal(Duration::from_millis(2))
}

/// Appends a whole log, now buffered, now synced, and now and then seals, flushes or closes.
fn write(store: &Store, nth: u64, shown: &AtomicU64) -> Vec<String> {
    let mut random = Random(nth);
    let swarm = Options::swarm(nth).turns(6).without(Operation::OddKeys);
    let name = format!("s{nth}");
    let id = SessionId::new(&name).unwrap();
    let generated: Vec<String> = workload::random(nth, &swarm).skip(1).collect();
    let mut log = Log::new(generated.into());
    let mut session = store.create_session(NewSession::new(&name)).unwrap();
    loop {
        let entries = log.next_lines(1 + random.index(5));
        if entries.is_empty() {
            break;
        }
        let lines: Vec<Bytes> = entries.iter().map(|entry| Bytes::from(entry.line.clone())).collect();
        let durability = if random.one_in(3) { Durability::Synced } else { Durability::Buffered };
        let ticket = session.append_lines(&lines, durability).unwrap();
        if random.one_in(4) {
            drop(ticket); // synced by the journal's own thread
        } else {
            ticket.wait().unwrap();
        }
        log.attempt(entries);
        log.confirm();
        shown.store(log.visible as u64, Ordering::Release);
        match random.below(24) {
            0 => session.seal().unwrap(),
            1 => session.flush().unwrap(),
            2 => {
                session.close().unwrap();
                session = store.open_session(&id).unwrap();
                log.adopt_end(&read_all(&session.reader()));
            }
            3 => {
                // Let go of in the background: until then this process still has it.
                drop(session);
                session = loop {
                    match store.open_session(&id) {
                        Ok(session) => break session,
                        Err(StoreError::SessionBusy { .. }) => std::thread::yield_now(),
                        Err(error) => panic!("{name}: {error:?}"),
                    }
                };
                log.adopt_end(&read_all(&session.reader()));
            }
            _ => {}
        }
        check_against_model(&session.fold(), &log.model, &name);
    }
    session.close().unwrap();
    log.lines().into_iter().map(str::to_owned).collect()
}

/// Reads a session again and again: each snapshot is a valid log that begins with the one before,
/// and has what its writer had shown when it was taken.
fn follow(store: &Store, nth: u64, shown: &AtomicU64, done: &AtomicBool) -> u64 {
    let id = SessionId::new(&format!("s{nth}")).unwrap();
    let mut last: Vec<String> = Vec::new();
    let mut snapshots = 0;
    while !done.load(Ordering::Acquire) {
        let least = shown.load(Ordering::Acquire);
        let reader = match store.read_session(&id) {
            Ok(reader) => reader,
            Err(StoreError::NoSession { .. } | StoreError::Restless { .. }) => continue,
            Err(error) => panic!("{id}: {error:?}"),
        };
        let lines = match reader.events(rederive_engine::Seq::FIRST..reader.fold().next_seq()) {
            Ok(events) => events.map(|event| event.map(|event| event.to_line())).collect(),
            Err(error) => Err(error),
        };
        let lines: Vec<String> = lines.unwrap_or_else(|error: StoreError| panic!("{id}: {error:?}"));
        assert!(least <= lines.len() as u64, "{id}: {} of {least} shown", lines.len());
        assert!(lines.starts_with(&last), "{id}: a snapshot goes back");
        check_against_model(reader.fold(), &model_of(lines.iter().map(String::as_str)), id.as_str());
        last = lines;
        snapshots += 1;
    }
    snapshots
}

fn check(sessions: u64, readers: u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::create_with(&path, stressed()).unwrap();
    let shown: Arc<Vec<AtomicU64>> = Arc::new((0..sessions).map(|_| AtomicU64::new(0)).collect());
    let done = AtomicBool::new(false);
    let (logs, snapshots) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..sessions)
            .map(|nth| {
                scope.spawn({
                    let (store, shown) = (&store, &shown);
                    move || write(store, nth, &shown[nth as usize])
                })
            })
            .collect();
        let followers: Vec<_> = (0..readers)
            .map(|nth| {
                scope.spawn({
                    let (store, shown, done) = (&store, &shown, &done);
                    move || follow(store, nth, &shown[nth as usize], done)
                })
            })
            .collect();
        let sealer = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                store.seal_all().unwrap();
                let listed = store.sessions(None, usize::MAX).unwrap();
                assert!(listed.len() as u64 <= sessions);
                std::thread::yield_now();
            }
        });
        let end = |panic| std::panic::resume_unwind(panic);
        let logs: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Release);
        let logs: Vec<Vec<String>> = logs.into_iter().map(|log| log.unwrap_or_else(end)).collect();
        sealer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let snapshots: u64 = followers
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .sum();
        (logs, snapshots)
    });
    store.close().unwrap();
    let store = Store::open_with(&path, stressed()).unwrap();
    let mut events = 0;
    for (nth, lines) in logs.iter().enumerate() {
        let reader = store.read_session(&SessionId::new(&format!("s{nth}")).unwrap()).unwrap();
        assert_eq!(read_all(&reader), *lines, "s{nth}");
        check_against_model(reader.fold(), &model_of(lines.iter().map(String::as_str)), &format!("s{nth}"));
        events += lines.len();
    }
    println!("{sessions} sessions, {events} events, {snapshots} snapshots");
}

#[test]
fn sixty_four_sessions_at_once_each_keep_their_own_log() {
    for _ in 0..if is_long() { 50 } else { 1 } {
        check(64, 4);
    }
}

#[test]
fn readers_beside_one_writer_only_ever_see_more() {
    for _ in 0..if is_long() { 200 } else { 3 } {
        check(1, 1);
    }
}

//! Deleted is gone: no file of the store holds a byte of it, neither as it is nor compressed (field
//! case 20).

use std::path::{Path, PathBuf};
use std::time::Duration;

use rederive_engine::{Draft, Durability, NewSession, Seq, SessionId, Store, StoreOptions};

use crate::support::{Home, Random, events, numbered, ok, rounds, run, stderr};

const MARKER: &str = "mark-5c1e77";
/// In what a fork shares.
const SHARED: &str = "mark-shared";

fn options() -> StoreOptions {
    StoreOptions::default().register_type("my-host/progress")
}

fn name(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn contains(bytes: &[u8], marker: &str) -> bool {
    bytes.windows(marker.len()).any(|window| window == marker.as_bytes())
}

/// The files under `folder` that hold `marker`, as it is or inside anything compressed in them.
fn holders(folder: &Path, marker: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holders(&path, marker));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let inside = || {
            let starts = (0..bytes.len().saturating_sub(4))
                .filter(|at| bytes[*at..*at + 4] == [0x28, 0xb5, 0x2f, 0xfd]);
            starts.into_iter().any(|at| {
                let mut out = Vec::new();
                if let Ok(mut decoder) = zstd::stream::read::Decoder::new(&bytes[at..]) {
                    // What follows the frame is no frame: what came before that counts.
                    let _ = std::io::Read::read_to_end(&mut decoder, &mut out);
                }
                contains(&out, marker)
            })
        };
        if contains(&bytes, marker) || inside() {
            found.push(path);
        }
    }
    found
}

/// Events that hold the marker wherever a host can put it.
fn marked(round: u64) -> Vec<Draft> {
    let text = format!("{MARKER} {}", "and much more text of it ".repeat(20));
    vec![
        Draft::append(
            "user/message",
            format!(
                "{{\"id\":\"u{round}\",\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}},\
                 {{\"type\":\"image\",\"name\":\"{MARKER}.png\"}}]}}"
            ),
        ),
        Draft::append(
            "tool/result",
            format!(
                "{{\"message\":{{\"id\":\"r{round}\",\"role\":\"user\",\"content\":[{{\"type\":\"tool-result\",\
                 \"toolCallId\":\"c\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}]}}}}"
            ),
        ),
        Draft::new("session/title", format!("{{\"title\":\"about {MARKER}\"}}")),
        Draft::new("my-host/progress", format!("{{\"note\":\"{MARKER}\"}}")),
        Draft::new(
            "agent/inbox/spliced",
            format!("{{\"messages\":[{{\"text\":\"{MARKER}\"}}],\"claimed\":true}}"),
        ),
    ]
}

fn message(id: &str, text: &str) -> Draft {
    Draft::append(
        "user/message",
        format!(
            "{{\"id\":\"{id}\",\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}"
        ),
    )
}

/// A store with a marked session, half of it sealed, and another session in the same journal.
fn marked_store(home: &Home) -> Store {
    let store = Store::create_with(home.path(), options()).unwrap();
    let mut other = store.create_session(NewSession::new("other")).unwrap();
    let mut session = store.create_session(NewSession::new("marked").cwd(format!("/work/{MARKER}"))).unwrap();
    let append = |session: &mut rederive_engine::Session, batch| {
        session.append(batch, Durability::Synced).unwrap().wait().unwrap();
    };
    append(&mut session, (0..3).map(|n| message(&format!("s{n}"), SHARED)).collect());
    append(&mut session, marked(0));
    session.seal().unwrap();
    append(&mut session, marked(1));
    append(&mut other, vec![message("o", "other")]);
    append(&mut session, marked(2));
    store
}

#[test]
fn no_file_holds_what_a_deleted_session_held() {
    let home = Home::new();
    let store = marked_store(&home);
    let found = holders(&home.path(), MARKER);
    let is = |end: &str| found.iter().any(|path| path.to_string_lossy().ends_with(end));
    assert!(is(".redb") && is(".seg") && is(".jnl"), "the search finds it while it is there: {found:?}");
    // `marked` and `other` were dropped above, and are closed in the background.
    store.seal_all().unwrap();
    let deleted = store.delete_session(&name("marked")).unwrap();
    assert!(deleted.freed_bytes() > 0 && deleted.shared_with().is_empty());
    assert!(store.sweep().unwrap().is_whole());
    assert_eq!(holders(&home.path(), MARKER), Vec::<PathBuf>::new(), "while the store is open");
    assert_eq!(holders(&home.path(), SHARED), Vec::<PathBuf>::new());
    store.close().unwrap();
    assert_eq!(holders(&home.path(), MARKER), Vec::<PathBuf>::new());
    assert_eq!(events(&home.path(), "other").len(), 1);
    ok(&home.path(), &["doctor"]);
}

#[test]
fn a_fork_keeps_what_it_shares_and_nothing_else() {
    let home = Home::new();
    let store = marked_store(&home);
    store.seal_all().unwrap();
    store.fork_session(&name("marked"), Seq::new(2), NewSession::new("child")).unwrap().close().unwrap();
    let before = events(&home.path(), "child");
    let deleted = store.delete_session(&name("marked")).unwrap();
    assert_eq!(deleted.shared_with(), [name("child")]);
    assert!(store.sweep().unwrap().is_whole());
    // The fork was cut before the first marked event: nothing of that is left.
    assert_eq!(holders(&home.path().join("journal"), MARKER), Vec::<PathBuf>::new());
    let left = holders(&home.path(), MARKER);
    assert!(left.is_empty(), "{left:?}");
    assert!(!holders(&home.path(), SHARED).is_empty());
    assert_eq!(events(&home.path(), "child"), before);
    ok(&home.path(), &["verify", "--all"]);
    ok(&home.path(), &["doctor"]);
    let deleted = store.delete_session(&name("child")).unwrap();
    assert_eq!(deleted.shared_with(), []);
    store.sweep().unwrap();
    assert_eq!(holders(&home.path(), SHARED), Vec::<PathBuf>::new());
}

/// Another process has the store open: the answer says that the sweep was not whole, and a later one
/// is.
#[test]
fn a_sweep_beside_another_process_says_what_it_could_not_reach() {
    let home = Home::new();
    marked_store(&home).close().unwrap();
    let mut beside = home.writer("beside");
    beside.append(&numbered(1));
    let output = run(&home.path(), &["rm", "marked"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("rederive gc"), "{}", stderr(&output));
    assert!(ok(&home.path(), &["doctor"]).contains("`gc` removes what is left"));
    beside.close();
    ok(&home.path(), &["gc"]);
    assert_eq!(holders(&home.path(), MARKER), Vec::<PathBuf>::new());
    assert!(!ok(&home.path(), &["doctor"]).contains("gc"));
}

#[test]
fn a_deletion_that_was_killed_is_finished_or_never_was() {
    let mut random = Random::new();
    let (mut finished, mut untouched) = (0, 0);
    for round in 0..rounds(12, 300) {
        let home = Home::new();
        let store = marked_store(&home);
        store.seal_all().unwrap();
        let forked = round % 2 == 0;
        if forked {
            let child = store.fork_session(&name("marked"), Seq::new(2), NewSession::new("child"));
            child.unwrap().close().unwrap();
        }
        store.close().unwrap();
        let mut delete = crate::support::command(&home.path()).args(["rm", "marked"]).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(random.below(70_000)));
        let _ = delete.kill();
        delete.wait().unwrap();
        // The next open for writing.
        home.writer("next").close();
        let export = run(&home.path(), &["export", "marked"]);
        if export.status.success() {
            untouched += 1;
            assert_eq!(events(&home.path(), "marked").len(), 18);
        } else {
            finished += 1;
            assert!(stderr(&export).contains("there is no session marked"), "{}", stderr(&export));
            let segments = holders(&home.path().join("segments"), MARKER);
            assert!(segments.is_empty(), "round {round}: {segments:?}");
            ok(&home.path(), &["gc"]);
            let left = holders(&home.path(), MARKER);
            assert!(left.is_empty(), "round {round}: {left:?}");
        }
        ok(&home.path(), &["doctor"]);
        if forked {
            assert_eq!(events(&home.path(), "child").len(), 4);
        }
    }
    eprintln!("{finished} deletions finished, {untouched} that never were");
}

fn bytes_in(folder: &Path) -> u64 {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            if entry.path().is_dir() { bytes_in(&entry.path()) } else { entry.metadata().unwrap().len() }
        })
        .sum()
}

#[test]
fn deletion_gives_the_space_back() {
    let (count, kept) = (rounds(200, 10_000), rounds(20, 100));
    let mut random = Random::new();
    let mut text = || (0..100_000).map(|_| char::from(b'a' + random.below(26) as u8)).collect::<String>();
    let mut sizes = Vec::new();
    for count in [kept, count] {
        let home = Home::new();
        let store = Store::create(home.path()).unwrap();
        for index in 0..count {
            let mut session = store.create_session(NewSession::new(format!("s{index}"))).unwrap();
            let _ticket = session.append(vec![message("m", &text())], Durability::Buffered).unwrap();
        }
        store.seal_all().unwrap();
        for index in kept..count {
            store.delete_session(&name(&format!("s{index}"))).unwrap();
        }
        assert!(store.sweep().unwrap().is_whole());
        store.close().unwrap();
        sizes.push(bytes_in(&home.path()));
    }
    eprintln!(
        "{kept} sessions: {} bytes; {count} sessions, all others deleted: {} bytes",
        sizes[0], sizes[1]
    );
    assert!(sizes[1] * 10 <= sizes[0] * 12, "{sizes:?}");
}

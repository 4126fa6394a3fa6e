//! Whatever happens to a file at rest, opening and reading give the right data or a typed error:
//! never a panic, a hang or wrong data (field case 2).
//!
//! `REDERIVE_LONG=1 cargo test --release -p rederive-engine --test it damage` tries every byte.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rederive_engine::{Draft, Durability, NewSession, Seq, SessionId, Store, StoreError, StoreOptions};

fn is_long() -> bool {
    std::env::var_os("REDERIVE_LONG").is_some()
}

fn said(n: u64) -> Draft {
    Draft::append(
        "user/message",
        format!(
            "{{\"id\":\"u{n}\",\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"said {n}\"}}]}}"
        ),
    )
}

/// Every file of a store, by its path under the folder.
type Files = BTreeMap<PathBuf, Vec<u8>>;
/// Every session's log, line by line.
type Logs = BTreeMap<String, Vec<String>>;

fn files_of(folder: &Path) -> Files {
    fn walk(root: &Path, folder: &Path, files: &mut Files) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, files);
            } else {
                files.insert(path.strip_prefix(root).unwrap().to_owned(), std::fs::read(&path).unwrap());
            }
        }
    }
    let mut files = Files::new();
    walk(folder, folder, &mut files);
    files
}

fn put(folder: &Path, files: &Files) {
    let _ = std::fs::remove_dir_all(folder);
    for (path, bytes) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

fn logs_of(store: &Store) -> Result<Logs, StoreError> {
    let mut logs = Logs::new();
    for info in store.sessions_page(None, 100)?.sessions() {
        let reader = store.read_session(info.id())?;
        let mut log = vec![reader.header_line().as_str().to_owned()];
        for event in reader.events(Seq::FIRST..reader.fold().next_seq())? {
            log.push(event?.to_line());
        }
        logs.insert(info.id().to_string(), log);
    }
    Ok(logs)
}

/// A folder in memory, where there is one: thousands of stores are synced here.
fn memory() -> tempfile::TempDir {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { tempfile::tempdir_in(shared).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn options() -> StoreOptions {
    StoreOptions::default().clock(Arc::new(|| 1000))
}

/// A store of a few kilobytes whose writer was killed: sealed segments, a fork, a deleted session,
/// and a journal with batches of two sessions.
fn killed_store() -> (Files, Logs) {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("store");
    let store = Store::create_with(&folder, options()).unwrap();
    let mut sealed = store.create_session(NewSession::new("sealed").cwd("/work")).unwrap();
    for n in 0..6 {
        let _ticket = sealed.append(vec![said(n)], Durability::Buffered).unwrap();
    }
    sealed.close().unwrap();
    let sealed = SessionId::new("sealed").unwrap();
    store.fork_session(&sealed, Seq::new(3), NewSession::new("fork")).unwrap().close().unwrap();
    store.create_session(NewSession::new("gone")).unwrap().close().unwrap();
    store.delete_session(&SessionId::new("gone").unwrap()).unwrap();
    let mut live = store.create_session(NewSession::new("live")).unwrap();
    let mut other = store.create_session(NewSession::new("other")).unwrap();
    for n in 0..3 {
        live.append(vec![said(n), said(n + 100)], Durability::Synced).unwrap().wait().unwrap();
        other.append(vec![said(n)], Durability::Synced).unwrap().wait().unwrap();
    }
    let logs = logs_of(&store).unwrap();
    assert_eq!(logs.len(), 4);
    // As a kill leaves it: the locks are gone, and nothing was closed.
    (files_of(&folder), logs)
}

/// No frame of these stores is longer.
const FRAME_BYTES_MAX: usize = 600;

/// Whether a journal was hit so close to its end that no whole frame stands behind to say that what
/// was hit had been synced: this reads as an end that was never whole.
fn is_unprovable(hit_file: &Path, sound: &[u8], now: &[u8]) -> bool {
    let end = sound.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    let hit = (0..sound.len()).rposition(|at| now.get(at) != Some(&sound[at])).unwrap_or(end);
    hit_file.extension().is_some_and(|end| end == "jnl") && end < hit + FRAME_BYTES_MAX
}

/// Whether what was found is right: `expected`, or an end is missing of which nothing says that it was
/// there.
fn assert_right(found: &Logs, expected: &Logs, unprovable: bool, hit: &str) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{hit}");
    let mut missing = 0;
    for (id, log) in expected {
        let found = &found[id];
        assert!(log.starts_with(found), "{hit}: session {id}: {found:#?}");
        missing += log.len() - found.len();
    }
    assert!(missing == 0 || unprovable, "{hit}: {missing} events are missing");
}

/// A damaged store is looked over, and repaired into another one that is sound: each session as it
/// was, or an earlier part of it.
fn check_repair(folder: &Path, files: &Files, expected: &Logs, hit: &str) {
    put(folder, files);
    let into = folder.with_file_name("repaired");
    let _ = std::fs::remove_dir_all(&into);
    let was_sound = match Store::examine(folder, options()) {
        Ok(found) => found.is_sound(),
        Err(error) => {
            assert!(
                matches!(error, StoreError::NoStore { .. } | StoreError::Version { .. }),
                "{hit}: {error:?}"
            );
            false
        }
    };
    let repaired = match Store::repair_into(folder, &into, options()) {
        Ok(repaired) => repaired,
        // By its name, a store of another version.
        Err(StoreError::Version { .. }) => return,
        Err(error) => panic!("{hit}: {error:?}"),
    };
    assert!(files_of(folder) == *files, "{hit}: a repair changed a file");
    let found = Store::examine(&into, options()).unwrap();
    assert!(found.is_sound(), "{hit}: {:?}", found.findings());
    let logs = logs_of(&Store::open_read_only_with(&into, options()).unwrap()).unwrap();
    let mut events = 0;
    for (id, log) in &logs {
        events += log.len() - 1;
        // A session of which only the index knew the name.
        let events = |log: &[String]| log[1..].to_vec();
        let is_part = |whole: &Vec<String>| events(whole).starts_with(&events(log));
        assert!(
            expected.get(id).map_or_else(|| expected.values().any(is_part), is_part),
            "{hit}: {id}: {log:#?}"
        );
    }
    assert_eq!((repaired.sessions(), repaired.events()), (logs.len() as u64, events as u64), "{hit}");
    if was_sound && repaired.losses().is_empty() {
        assert!(events + 1 >= expected.values().map(|log| log.len() - 1).sum(), "{hit}: {logs:#?}");
    }
}

struct Tally {
    right: u32,
    refused: u32,
}

/// Opens the store for reading, then for writing, and reads everything each time.
fn check(
    folder: &Path,
    sound: &Files,
    files: &Files,
    expected: &Logs,
    hit_file: &Path,
    hit: &str,
    tally: &mut Tally,
) {
    put(folder, files);
    let nothing = Vec::new();
    let unprovable = match sound.get(hit_file) {
        Some(sound) => is_unprovable(hit_file, sound, files.get(hit_file).unwrap_or(&nothing)),
        None => false,
    };
    let read_only = Store::open_read_only_with(folder, options()).and_then(|store| logs_of(&store));
    match read_only {
        Ok(found) => assert_right(&found, expected, unprovable, hit),
        Err(error) => assert_typed(&error, hit_file, hit),
    }
    assert!(files_of(folder) == *files, "{hit}: reading changed a file");
    match Store::open_with(folder, options()).and_then(|store| logs_of(&store)) {
        Ok(found) => {
            tally.right += 1;
            assert_right(&found, expected, unprovable, hit);
        }
        Err(error) => {
            tally.refused += 1;
            assert_typed(&error, hit_file, hit);
        }
    }
    if (tally.right + tally.refused).is_multiple_of(7) {
        check_repair(folder, files, expected, hit);
    }
}

/// Damage is called damage, and the file is named.
fn assert_typed(error: &StoreError, hit_file: &Path, hit: &str) {
    let text = error.to_string();
    let named = text.contains(hit_file.file_name().unwrap().to_str().unwrap());
    let is_format = matches!(error, StoreError::Version { .. } | StoreError::NoStore { .. });
    assert!(is_format || (error.is_damage() && named), "{hit}: {error:?}");
}

/// Positions to try: all of them, or a sample with every edge of what is not zero.
fn positions(bytes: &[u8], sample: usize) -> Vec<usize> {
    let interesting: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    if is_long() {
        // Zeroes that are never read are all alike: each block once, and all others.
        let mut all = interesting;
        all.extend((0..bytes.len()).step_by(512));
        all.sort_unstable();
        all.dedup();
        return all;
    }
    let step = interesting.len().div_ceil(sample).max(1);
    let mut chosen: Vec<usize> = interesting.into_iter().step_by(step).collect();
    chosen.extend((0..bytes.len()).step_by((bytes.len() / 8).max(1)));
    chosen
}

#[test]
fn a_damaged_file_gives_the_right_data_or_a_typed_error() {
    let (files, expected) = killed_store();
    let home = memory();
    let folder = home.path().join("store");
    let mut tally = Tally { right: 0, refused: 0 };
    check(&folder, &files, &files, &expected, Path::new("none.jnl"), "nothing", &mut tally);
    check_repair(&folder, &files, &expected, "nothing");
    assert_eq!(tally.right, 1);
    for (path, sound) in &files {
        let before = tally.right + tally.refused;
        let sample = if sound.len() > 100_000 { 70 } else { 40 };
        for at in positions(sound, sample) {
            for (name, value) in [("flipped", sound[at] ^ 0x41), ("zeroed", 0)] {
                if value == sound[at] {
                    continue;
                }
                let mut now = files.clone();
                now.get_mut(path).unwrap()[at] = value;
                let hit = format!("{}: byte {at} {name}", path.display());
                check(&folder, &files, &now, &expected, path, &hit, &mut tally);
            }
        }
        eprintln!(
            "{}: {} bytes, {} tried",
            path.display(),
            sound.len(),
            tally.right + tally.refused - before
        );
    }
    eprintln!("{} right, {} refused", tally.right, tally.refused);
    assert!(tally.refused > 0 && tally.right > 0);
}

#[test]
fn a_file_that_is_cut_or_shuffled_gives_the_right_data_or_a_typed_error() {
    let (files, expected) = killed_store();
    let home = memory();
    let folder = home.path().join("store");
    let mut tally = Tally { right: 0, refused: 0 };
    for (path, sound) in files.iter().filter(|(_, sound)| !sound.is_empty()) {
        let mut tries: Vec<(String, Option<Vec<u8>>)> = vec![("missing".into(), None)];
        let step = if is_long() { (sound.len() / 4096).max(1) } else { (sound.len() / 12).max(1) };
        for length in (0..sound.len()).step_by(step) {
            tries.push((format!("cut to {length} bytes"), Some(sound[..length].to_vec())));
        }
        tries.push(("one byte longer".into(), Some([sound.as_slice(), b"x"].concat())));
        for block in [512, 4096] {
            let blocks = sound.len() / block;
            let step = if is_long() { 1 } else { (blocks / 6).max(1) };
            for from in (0..blocks.saturating_sub(1)).step_by(step) {
                let (a, b) = (from * block, (from + 1) * block);
                let mut swapped = sound.clone();
                swapped.copy_within(b..b + block, a);
                swapped[b..b + block].copy_from_slice(&sound[a..a + block]);
                tries.push((format!("blocks {from} and {} of {block} swapped", from + 1), Some(swapped)));
                let mut doubled = sound.clone();
                doubled.copy_within(a..a + block, b);
                tries.push((format!("block {from} of {block} over the next one"), Some(doubled)));
                let mut zeroed = sound.clone();
                zeroed[a..b].fill(0);
                tries.push((format!("block {from} of {block} zeroed"), Some(zeroed)));
            }
        }
        for (what, bytes) in tries {
            let hit = format!("{}: {what}", path.display());
            let mut now = files.clone();
            match bytes {
                Some(bytes) if bytes == *sound => continue,
                Some(bytes) => now.insert(path.clone(), bytes),
                None => now.remove(path),
            };
            check(&folder, &files, &now, &expected, path, &hit, &mut tally);
        }
    }
    eprintln!("{} right, {} refused", tally.right, tally.refused);
}

/// Field case 2a and 2b: five synced frames, one of them zeroed.
#[test]
fn zeroes_are_no_end_while_valid_frames_follow() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("store");
    let store = Store::create_with(&folder, options()).unwrap();
    let mut session = store.create_session(NewSession::new("s")).unwrap();
    store.create_session(NewSession::new("beside")).unwrap().close().unwrap();
    for n in 0..5 {
        session.append(vec![said(n)], Durability::Synced).unwrap().wait().unwrap();
    }
    let files = files_of(&folder);
    let (journal, bytes) =
        files.iter().find(|(path, _)| path.extension().is_some_and(|end| end == "jnl")).unwrap();
    let frames: Vec<usize> = (0..5)
        .map(|n| {
            let text = format!("said {n}");
            bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap()
        })
        .collect();
    let id = SessionId::new("s").unwrap();
    for (index, at) in frames.iter().enumerate() {
        let mut files = files.clone();
        files.get_mut(journal).unwrap()[at - 8..at + 8].fill(0);
        let copy = home.path().join(format!("copy{index}"));
        put(&copy, &files);
        let store = Store::open_with(&copy, options()).unwrap();
        assert!(store.open_session(&SessionId::new("beside").unwrap()).is_ok());
        if index < 4 {
            // The frames behind it say that it was synced.
            let error = store.open_session(&id).unwrap_err();
            assert!(error.is_damage() && error.to_string().contains("is damaged at byte"), "{error}");
        } else {
            // Nothing says so of the last one: it reads as one that was never whole.
            assert_eq!(store.open_session(&id).unwrap().fold().next_seq().value(), 4 + 1);
        }
    }
}

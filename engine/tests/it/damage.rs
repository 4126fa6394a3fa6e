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

/// Whether what was found is right: `expected`, or an end that was never provably synced is missing.
fn assert_right(found: &Logs, expected: &Logs, journal_was_hit: bool, hit: &str) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{hit}");
    let mut missing = 0;
    for (id, log) in expected {
        let found = &found[id];
        assert!(log.starts_with(found), "{hit}: session {id}: {found:#?}");
        missing += log.len() - found.len();
    }
    assert!(missing == 0 || (journal_was_hit && missing <= 1), "{hit}: {missing} events are missing");
}

struct Tally {
    right: u32,
    refused: u32,
}

/// Opens the store for reading, then for writing, and reads everything each time.
fn check(folder: &Path, files: &Files, expected: &Logs, hit_file: &Path, hit: &str, tally: &mut Tally) {
    put(folder, files);
    let in_journal = hit_file.extension().is_some_and(|end| end == "jnl");
    let read_only = Store::open_read_only_with(folder, options()).and_then(|store| logs_of(&store));
    match read_only {
        Ok(found) => assert_right(&found, expected, in_journal, hit),
        Err(error) => assert_typed(&error, hit_file, hit),
    }
    assert!(files_of(folder) == *files, "{hit}: reading changed a file");
    match Store::open_with(folder, options()).and_then(|store| logs_of(&store)) {
        Ok(found) => {
            tally.right += 1;
            assert_right(&found, expected, in_journal, hit);
        }
        Err(error) => {
            tally.refused += 1;
            assert_typed(&error, hit_file, hit);
        }
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
    check(&folder, &files, &expected, Path::new("none.jnl"), "nothing", &mut tally);
    assert_eq!(tally.right, 1);
    for (path, sound) in &files {
        let before = tally.right + tally.refused;
        let sample = if sound.len() > 100_000 { 70 } else { 40 };
        for at in positions(sound, sample) {
            for (name, value) in [("flipped", sound[at] ^ 0x41), ("zeroed", 0)] {
                if value == sound[at] {
                    continue;
                }
                let mut files = files.clone();
                files.get_mut(path).unwrap()[at] = value;
                let hit = format!("{}: byte {at} {name}", path.display());
                check(&folder, &files, &expected, path, &hit, &mut tally);
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
            let mut files = files.clone();
            match bytes {
                Some(bytes) if bytes == *sound => continue,
                Some(bytes) => files.insert(path.clone(), bytes),
                None => files.remove(path),
            };
            check(&folder, &files, &expected, path, &hit, &mut tally);
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

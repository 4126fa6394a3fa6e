//! A list is a paged read of the index, and every session is reachable (field case 17).

use std::collections::BTreeSet;
use std::time::Instant;

use rederive_engine::{Draft, Durability, NewSession, SessionId, SessionState, Store, StoreOptions};

use crate::support::{Home, is_long, numbered, rounds};

fn filled(home: &Home, sessions: usize) -> Store {
    let store = Store::create(home.path()).unwrap();
    let mut open = Vec::new();
    for index in 0..sessions {
        let mut session = store
            .create_session(NewSession::new(format!("s{index:06}")).created_at_ms(index as u64))
            .unwrap();
        let batch = (0..10)
            .map(|n| Draft::new("todo/write", format!("{{\"n\":{n}}}")).at(1000 + index as u64))
            .collect();
        let _ticket = session.append(batch, Durability::Buffered).unwrap();
        open.push(session);
        // Closed together, so that many are sealed by one commit.
        if open.len() == 200 {
            open.clear();
            store.seal_all().unwrap();
        }
    }
    drop(open);
    store
}

#[test]
fn pages_hold_every_session_once_while_others_come_and_go() {
    let home = Home::new();
    let count = rounds(1000, 20_000);
    let store = filled(&home, count);
    store.seal_all().unwrap();
    let reader = Store::open_read_only(home.path()).unwrap();
    let began = Instant::now();
    let first = reader.sessions_page(None, 50).unwrap();
    let newest = began.elapsed();
    assert_eq!(first.sessions().len(), 50);

    let doomed: Vec<String> = (0..100).map(|n| format!("s{:06}", n * count / 100)).collect();
    let (mut seen, mut place) = (Vec::new(), None);
    let mut round = 0;
    let began = Instant::now();
    loop {
        let page = reader.sessions_page(place, 50).unwrap();
        seen.extend(page.sessions().iter().map(|info| info.id().to_string()));
        // The last session of the page may be the next to go.
        if round < 100 {
            let gone = if round % 2 == 0 { seen.last().unwrap() } else { &doomed[round] };
            let _ = store.delete_session(&SessionId::new(gone).unwrap());
            store.create_session(NewSession::new(format!("new{round}"))).unwrap().close().unwrap();
            round += 1;
        }
        place = page.next();
        if place.is_none() {
            break;
        }
    }
    let all = began.elapsed();
    let once: BTreeSet<&String> = seen.iter().collect();
    assert_eq!(once.len(), seen.len(), "no session twice");
    let mut left = BTreeSet::new();
    let mut place = None;
    loop {
        let page = reader.sessions_page(place, 1000).unwrap();
        left.extend(page.sessions().iter().map(|info| info.id().to_string()));
        place = page.next();
        if place.is_none() {
            break;
        }
    }
    let missing: Vec<&String> =
        left.iter().filter(|id| !id.starts_with("new") && !once.contains(id)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    eprintln!("{count} sessions: newest 50 in {newest:?}, all by 50 with changes between in {all:?}");
}

/// What the list costs does not grow with the store: bytes that the process read, by the kernel's
/// count.
#[test]
fn the_newest_fifty_and_an_open_by_id_read_little() {
    let home = Home::new();
    let store = filled(&home, rounds(1000, 20_000));
    store.close().unwrap();
    if is_long() {
        // Large ones do not make it dearer.
        let mut writer = home.writer("large");
        for number in 0..80 {
            writer.append(&crate::support::numbered_with(number, 1 << 20));
        }
        writer.close();
    }
    let read_by = |args: &[&str]| {
        let mut command = std::process::Command::new("strace");
        command.args(["-f", "-e", "trace=read,pread64", "-o"]);
        let trace = home.path().with_extension("trace");
        command.arg(&trace).arg(env!("CARGO_BIN_EXE_rederive")).arg("--store").arg(home.path()).args(args);
        let output = command.output().ok().filter(|output| output.status.success())?;
        drop(output);
        let text = std::fs::read_to_string(&trace).unwrap();
        let bytes = text.lines().filter_map(|line| line.rsplit_once("= ")?.1.parse::<u64>().ok());
        Some(bytes.sum::<u64>())
    };
    let (Some(list), Some(open)) = (read_by(&["ls"]), read_by(&["messages", "s000001"])) else {
        eprintln!("skipped: no strace here");
        return;
    };
    eprintln!("newest 50: {list} bytes read; open by id: {open} bytes read");
    assert!(list < 2 << 20 && open < 2 << 20, "{list} and {open} bytes");
}

#[test]
fn the_list_is_right_after_a_kill_between_append_and_seal() {
    let home = Home::new();
    let mut writer = home.writer("s");
    for number in 0..5 {
        writer.append(&numbered(number));
    }
    let row = |home: &Home| home.json(&["ls"])[0].clone();
    assert_eq!((&row(&home)["state"], &row(&home)["writer"]), (&"open".into(), &writer.pid().into()));
    writer.lines.kill();
    assert_eq!(row(&home)["state"], "interrupted");
    home.writer("other").close();
    let rows = home.json(&["ls"]);
    let row = rows.as_array().unwrap().iter().find(|row| row["id"] == "s").unwrap();
    assert_eq!((&row["state"], &row["events"]), (&"closed".into(), &5.into()));
}

#[test]
fn a_damaged_journal_is_listed_as_such_and_harms_no_other_session() {
    let home = Home::new();
    home.writer("sound").close();
    let mut writer = home.writer("s");
    for number in 0..5 {
        writer.append(&numbered(number));
    }
    writer.lines.kill();
    let path = home.path().join("journal");
    let journal = std::fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.extension().is_some_and(|end| end == "jnl")
                && std::fs::read(path).unwrap().windows(7).any(|window| window == b"{\"n\":4}")
        })
        .unwrap();
    let mut bytes = std::fs::read(&journal).unwrap();
    let at = bytes.windows(7).position(|window| window == b"{\"n\":2}").unwrap();
    bytes[at..at + 7].fill(0);
    std::fs::write(&journal, &bytes).unwrap();
    let check = |home: &Home| {
        let rows = home.json(&["ls"]);
        let row = rows.as_array().unwrap().iter().find(|row| row["id"] == "s").unwrap().clone();
        assert_eq!(row["state"], "damaged");
        let why = row["damage"].as_str().unwrap();
        assert!(
            why.contains(journal.file_name().unwrap().to_str().unwrap()) && why.contains("at byte"),
            "{why}"
        );
        for args in [["export", "s"], ["append", "s"]] {
            let refused = home.run(&args);
            assert_eq!(refused.status.code(), Some(1), "{args:?}");
            assert!(crate::support::stderr(&refused).contains("is damaged at byte"), "{args:?}");
        }
        let doctor = home.run(&["doctor"]);
        assert_eq!(doctor.status.code(), Some(1));
    };
    check(&home);
    // Others go on, for writing too, and again after that.
    for round in 0..3 {
        let mut other = home.writer("sound");
        other.append(&numbered(round));
        other.close();
        check(&home);
    }
    let info = Store::open_read_only(home.path()).unwrap();
    let info = info.session_info(&SessionId::new("s").unwrap()).unwrap();
    assert!(matches!(info.state(), SessionState::Damaged { .. }));
    // A repair saves what stands before the damage, and the other sessions whole.
    let into = home.path().with_file_name("saved");
    let repaired = Store::repair_into(home.path(), &into, StoreOptions::default()).unwrap();
    assert_eq!(repaired.sessions(), 2);
    let lost: Vec<&str> = repaired.losses().iter().map(rederive_engine::Loss::what).collect();
    assert!(lost.iter().any(|what| what.contains("events 2 to 5")), "{lost:?}");
    assert_eq!(crate::support::events(&into, "s").len(), 2);
    assert_eq!(crate::support::events(&into, "sound").len(), home.events("sound").len());
    crate::support::ok(&into, &["doctor"]);
}

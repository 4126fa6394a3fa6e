//! A full disk is said at once, and nothing that was acknowledged is lost (field case 19).

use std::path::{Path, PathBuf};
use std::process::Command;

use rederive_engine::{Draft, Durability, NewSession, Seq, Session, SessionId, Store};

use crate::support::{events, numbered, ok};

/// A small file system of its own; gone when it is dropped.
struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    /// `None` where this process must not mount.
    fn of(megabytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path()).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self { folder });
        }
        eprintln!("skipped: no small file system can be mounted here");
        None
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Leaves so many bytes free, as well as it can.
    fn fill_to(&self, free: u64) {
        let path = self.folder.path().join("ballast");
        let chunk = vec![7; 4096];
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        while std::io::Write::write_all(&mut file, &chunk).is_ok() {}
        let len = file.metadata().unwrap().len();
        file.set_len(len.saturating_sub(free)).unwrap();
    }

    fn empty(&self) {
        std::fs::remove_file(self.folder.path().join("ballast")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).output();
    }
}

fn event(n: u64) -> Vec<Draft> {
    // Text that does not compress to nothing.
    let text: String = (0..1000_u64)
        .map(|at| {
            char::from(
                b'a' + ((n + 7).wrapping_mul(at * at + 31).wrapping_mul(2_654_435_761) >> 13) as u8 % 26,
            )
        })
        .collect();
    vec![Draft::new("todo/write", format!("{{\"n\":{n},\"text\":\"{text}\"}}"))]
}

/// Appends until it is refused; gives what was acknowledged and what was said.
fn append_until_full(session: &mut Session) -> String {
    loop {
        let before = session.fold().next_seq();
        let outcome = session.append(event(before.value()), Durability::Synced);
        let error: Box<dyn std::error::Error> = match outcome {
            Ok(ticket) => match ticket.wait() {
                Ok(()) => continue,
                Err(error) => error.into(),
            },
            Err(error) => {
                assert_eq!(session.fold().next_seq(), before, "the session is as it was");
                error.into()
            }
        };
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        return text;
    }
}

fn check_log(store: &Path, id: &str, acknowledged: u64) {
    let events = events(store, id);
    assert_eq!(events.len() as u64, acknowledged);
    for (n, event) in events.iter().enumerate().filter(|(_, event)| event["type"] == "todo/write") {
        assert_eq!(event["data"]["n"], n as u64);
    }
}

#[test]
fn a_full_disk_is_said_with_the_file_and_appending_goes_on_when_there_is_room() {
    let Some(disk) = Disk::of(24) else { return };
    let store = Store::create(disk.store()).unwrap();
    let mut session = store.create_session(NewSession::new("s")).unwrap();
    for round in 0..3 {
        disk.fill_to(3 << 20);
        let said = append_until_full(&mut session);
        assert!(said.contains(".jnl") && said.contains("No space left"), "round {round}: {said}");
        let acknowledged = session.fold().next_seq().value();
        check_log(&disk.store(), "s", acknowledged);
        disk.empty();
        let _ticket = session.append(event(acknowledged), Durability::Synced).unwrap();
        assert_eq!(session.fold().next_seq().value(), acknowledged + 1, "the same handle goes on");
        session.seal().unwrap();
        check_log(&disk.store(), "s", acknowledged + 1);
    }
    let acknowledged = session.fold().next_seq().value();
    session.close().unwrap();
    store.close().unwrap();
    check_log(&disk.store(), "s", acknowledged);
    ok(&disk.store(), &["verify", "--all"]);
    ok(&disk.store(), &["doctor"]);
}

/// The index or a segment meets the wall first: the journal still has room of its own.
#[test]
fn a_seal_or_a_sweep_without_room_loses_nothing() {
    for free in [0, 8 << 10, 64 << 10, 160 << 10] {
        let Some(disk) = Disk::of(16) else { return };
        let store = Store::create(disk.store()).unwrap();
        let mut session = store.create_session(NewSession::new("s")).unwrap();
        let mut gone = store.create_session(NewSession::new("gone")).unwrap();
        gone.append(event(0), Durability::Synced).unwrap().wait().unwrap();
        gone.close().unwrap();
        for n in 0..100 {
            session.append(event(n), Durability::Synced).unwrap().wait().unwrap();
        }
        disk.fill_to(free);
        let outcomes = [
            session.seal().map_err(|error| format!("{error:?}")),
            store.delete_session(&SessionId::new("gone").unwrap()).map(|_| ()).map_err(|e| format!("{e:?}")),
            store.sweep().map(|_| ()).map_err(|error| format!("{error:?}")),
        ];
        if free == 0 {
            let refused = outcomes[0].as_ref().unwrap_err();
            assert!(refused.contains("StorageFull") && refused.contains("path"), "{refused}");
        }
        check_log(&disk.store(), "s", 100);
        assert_eq!(session.fold().next_seq(), Seq::new(100));
        disk.empty();
        session.append(event(100), Durability::Synced).unwrap().wait().unwrap();
        session.seal().unwrap();
        let acknowledged = 101;
        check_log(&disk.store(), "s", acknowledged);
        session.close().unwrap();
        store.sweep().unwrap();
        store.close().unwrap();
        check_log(&disk.store(), "s", acknowledged);
        ok(&disk.store(), &["doctor"]);
    }
}

/// A store that was killed on a full disk opens for reading there, and for writing once there is
/// room.
#[test]
fn a_killed_store_on_a_full_disk_is_readable_and_recovers_later() {
    let Some(disk) = Disk::of(16) else { return };
    let mut writer =
        crate::support::Writer::start(crate::support::command(&disk.store()).args(["append", "s"]));
    for n in 0..50 {
        assert_eq!(writer.append(&numbered(n)), n);
    }
    writer.lines.kill();
    disk.fill_to(0);
    check_log(&disk.store(), "s", 50);
    let _ = crate::support::run(&disk.store(), &["append", "other"]);
    check_log(&disk.store(), "s", 50);
    disk.empty();
    let mut writer =
        crate::support::Writer::start(crate::support::command(&disk.store()).args(["append", "s"]));
    assert_eq!(writer.append(&numbered(51)), 51);
    writer.close();
    ok(&disk.store(), &["doctor"]);
}

//! What the index promises.

use std::time::Duration;

use rederive_disk::OsDisk;
use rederive_disk::sim::SimDisk;

use super::*;
use crate::event::HeaderLine;
use crate::fold::Checkpoint;
use crate::ids::{Seq, SessionId, SessionKey};
use crate::segment::Base;

struct Home {
    folder: tempfile::TempDir,
    disk: Arc<dyn Disk>,
}

impl Home {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), disk: Arc::new(OsDisk) }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("index.redb")
    }

    fn open(&self) -> Index {
        Index::create(&self.disk, &self.path(), &options()).unwrap()
    }
}

fn options() -> IndexOptions {
    IndexOptions { lock_timeout: Duration::from_millis(200), pid: 77, ..IndexOptions::default() }
}

fn header(id: &str, created_at_ms: u64) -> HeaderLine {
    HeaderLine::build(&SessionId::new(id).unwrap(), created_at_ms, Some("/work"), None, false)
}

fn create(index: &Index, id: &str, base: Option<Base>) -> SessionKey {
    let header = header(id, 5);
    index
        .write(|tx| tx.create_session(&NewSession { header: &header, types: &[], base, owner: None }))
        .unwrap()
}

fn end(next: u64, last_activity_ms: u64) -> Checkpoint {
    let mut end =
        Checkpoint { next: Seq::new(next), title: Some(format!("title {next}")), ..Checkpoint::default() };
    end.counters.last_activity_ms = last_activity_ms;
    end
}

fn try_seal(
    index: &Index,
    key: SessionKey,
    id: u64,
    first: u64,
    count: u64,
    references: &[[u8; 32]],
) -> Result<(), IndexError> {
    let segment = SegmentRow { id: SegmentId(id), count, raw_bytes: count * 100, stored_bytes: count * 10 };
    let end = end(first + count, 100 + first + count);
    index.write(|tx| {
        tx.seal(&Seal { key, first: Seq::new(first), segment, references, end: &end, types: &[] })
    })
}

fn seal(index: &Index, key: SessionKey, id: u64, first: u64, count: u64, references: &[[u8; 32]]) {
    try_seal(index, key, id, first, count, references).unwrap();
}

fn seen(index: &Index, key: SessionKey) -> Vec<(u64, u64, u64)> {
    let segments = index.read(|tx| tx.segments(key)).unwrap();
    segments.iter().map(|s| (s.row.id.value(), s.first.value(), s.visible_to.value())).collect()
}

#[test]
fn sessions_are_made_found_owned_and_kept() {
    let home = Home::new();
    let missing = Index::open(&home.disk, &home.path(), &options());
    assert!(matches!(missing, Err(IndexError::Missing { .. })));
    let index = home.open();
    let key = create(&index, "a", None);
    let again = index.write(|tx| {
        let header = header("a", 5);
        tx.create_session(&NewSession { header: &header, types: &[], base: None, owner: None })
    });
    assert!(matches!(again, Err(IndexError::Exists { id }) if id.as_str() == "a"));
    let me = Owner { slot: 3, pid: 77 };
    index.write(|tx| tx.set_owner(key, None, Some(me))).unwrap();
    let other = index.write(|tx| tx.set_owner(key, None, Some(Owner { slot: 4, pid: 78 })));
    assert!(matches!(other, Err(IndexError::OwnerChanged { found: Some(found), .. }) if found == me));
    drop(index);
    let index = Index::open(&home.disk, &home.path(), &IndexOptions { checked: true, ..options() }).unwrap();
    assert_eq!(index.read(|tx| tx.key_of("a")).unwrap(), Some(key));
    let row = index.read(|tx| tx.live_session(key)).unwrap();
    assert_eq!((&*row.id, row.cwd.as_deref(), row.owner), ("a", Some("/work"), Some(me)));
    assert_ne!(create(&index, "b", None), key);
    assert_eq!(index.reserve_segments(5).unwrap(), SegmentId(1));
    assert_eq!(index.reserve_segments(1).unwrap(), SegmentId(6));
    index.check().unwrap();
}

#[test]
fn a_failed_change_changes_nothing() {
    let home = Home::new();
    let index = home.open();
    let key = create(&index, "a", None);
    let before = index.read(|tx| tx.session(key)).unwrap();
    let failed: Result<(), IndexError> = index.write(|tx| {
        tx.update_session(key, |row| row.last_activity_ms = 999)?;
        tx.delete_session(key)?;
        Err(IndexError::NoSession { key })
    });
    assert!(failed.is_err());
    assert_eq!(index.read(|tx| tx.session(key)).unwrap(), before);
    let panicked: Result<(), IndexError> = index.write(|_| panic!("as redb might"));
    assert!(matches!(panicked, Err(IndexError::Damaged { what, .. }) if what == "as redb might"));
    assert_eq!(index.write(|tx| tx.update_session(key, |row| row.events)).unwrap(), 0);
}

#[test]
fn the_listing_is_paged_newest_first() {
    let home = Home::new();
    let index = home.open();
    let keys: Vec<SessionKey> = (0..25).map(|n| create(&index, &format!("s{n}"), None)).collect();
    for (n, key) in keys.iter().enumerate() {
        let at = 1000 + (n as u64 * 7) % 25;
        index.write(|tx| tx.update_session(*key, |row| row.last_activity_ms = at)).unwrap();
    }
    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let page = index.read(|tx| tx.page(after, 4)).unwrap();
        listed.extend(page.sessions.iter().map(|(_, row)| row.last_activity_ms));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, (0..25).map(|n| 1024 - n).collect::<Vec<u64>>());
}

#[test]
fn segments_follow_each_other_and_are_merged() {
    let home = Home::new();
    let index = home.open();
    let key = create(&index, "a", None);
    seal(&index, key, 1, 0, 10, &[[1; 32], [2; 32]]);
    seal(&index, key, 2, 10, 5, &[[2; 32]]);
    for (first, count) in [(14, 5), (16, 5), (5, 10), (5, 5), (0, 12), (0, 5)] {
        let refused = try_seal(&index, key, 9, first, count, &[]);
        assert!(matches!(refused, Err(IndexError::Conflict { .. })), "{first}, {count}: {refused:?}");
    }
    seal(&index, key, 3, 10, 8, &[[3; 32]]);
    assert_eq!(seen(&index, key), [(1, 0, 10), (3, 10, 18)]);
    let row = index.read(|tx| tx.live_session(key)).unwrap();
    assert_eq!((row.sealed_to, row.events, row.stored_bytes, row.references), (Seq::new(18), 18, 180, 3));
    assert_eq!((row.last_segment, row.title.as_deref()), (Some(SegmentId(3)), Some("title 18")));
    assert_eq!(index.read(|tx| tx.doomed()).unwrap(), [SegmentId(2)]);
    assert_eq!(index.read(|tx| tx.referenced()).unwrap(), [[1; 32], [2; 32], [3; 32]]);
    seal(&index, key, 4, 0, 10, &[]);
    assert_eq!(index.read(|tx| tx.live_session(key)).unwrap().sealed_to, Seq::new(18));
    assert!(!index.read(|tx| tx.referenced()).unwrap().contains(&[1; 32]));
    assert!(index.read(|tx| tx.referenced()).unwrap().contains(&[3; 32]));
    let at = |seq| {
        let found = index.read(|tx| tx.segment_for(key, Seq::new(seq))).unwrap();
        found.map(|found| found.row.id.value())
    };
    assert_eq!([at(0), at(9), at(10), at(17), at(18)], [Some(4), Some(4), Some(3), Some(3), None]);
}

#[test]
fn forks_share_what_stands_before_their_cut_and_deletion_frees_the_rest() {
    let home = Home::new();
    let index = home.open();
    let parent = create(&index, "parent", None);
    seal(&index, parent, 1, 0, 10, &[[1; 32]]);
    seal(&index, parent, 2, 10, 10, &[[2; 32]]);
    seal(&index, parent, 3, 20, 10, &[[3; 32]]);
    let fork = |id: &str, key, cut| create(&index, id, Some(Base { key, cut: Seq::new(cut) }));
    let child = fork("child", parent, 15);
    seal(&index, child, 4, 15, 10, &[]);
    assert_eq!(seen(&index, child), [(1, 0, 10), (2, 10, 15), (4, 15, 25)]);
    let grandchild = fork("grandchild", child, 20);
    assert_eq!(seen(&index, grandchild), [(1, 0, 10), (2, 10, 15), (4, 15, 20)]);
    // What lies below the child's own events belongs to the parent.
    let low = fork("low", child, 10);
    assert_eq!(index.read(|tx| tx.children(parent)).unwrap(), [(Seq::new(10), low), (Seq::new(15), child)]);
    assert_eq!(seen(&index, low), [(1, 0, 10)]);
    let too_far = index.write(|tx| {
        let header = header("far", 5);
        let base = Some(Base { key: child, cut: Seq::new(26) });
        tx.create_session(&NewSession { header: &header, types: &[], base, owner: None })
    });
    assert!(matches!(too_far, Err(IndexError::Conflict { .. })));
    let holder = index.read(|tx| tx.segment_for(grandchild, Seq::new(12))).unwrap().unwrap();
    assert_eq!((holder.holder, holder.visible_to), (parent, Seq::new(15)));
    assert!(index.read(|tx| tx.segment_for(grandchild, Seq::new(20))).unwrap().is_none());

    let deleted = index.write(|tx| tx.delete_session(parent)).unwrap();
    let straddling = Straddling { key: parent, first: Seq::new(10), id: SegmentId(2), cut: Seq::new(15) };
    assert_eq!(deleted, Deleted { freed: vec![SegmentId(3)], straddling: vec![straddling], gone: vec![] });
    assert!(index.read(|tx| tx.key_of("parent")).unwrap().is_none());
    assert!(matches!(index.read(|tx| tx.live_session(parent)), Err(IndexError::NoSession { .. })));
    let trimmed = SegmentRow { id: SegmentId(7), count: 5, raw_bytes: 1, stored_bytes: 1 };
    index.write(|tx| tx.trim_segment(&straddling, trimmed, &[])).unwrap();
    assert_eq!(seen(&index, grandchild), [(1, 0, 10), (7, 10, 15), (4, 15, 20)]);
    assert_eq!(index.read(|tx| tx.referenced()).unwrap(), [[1; 32]]);

    let deleted = index.write(|tx| tx.delete_session(child)).unwrap();
    assert_eq!((deleted.freed, deleted.straddling.len(), deleted.gone), (vec![], 1, vec![]));
    let deleted = index.write(|tx| tx.delete_session(grandchild)).unwrap();
    assert_eq!(deleted.gone, [grandchild, child]);
    assert_eq!(deleted.freed, [SegmentId(4), SegmentId(7)]);
    let deleted = index.write(|tx| tx.delete_session(low)).unwrap();
    assert_eq!((deleted.freed, deleted.gone), (vec![SegmentId(1)], vec![low, parent]));
    let mut left = 0;
    index.read(|tx| tx.all_sessions(|_, _| left += 1)).unwrap();
    assert_eq!(left, 0);
    assert!(index.read(|tx| tx.segment_ids()).unwrap().is_empty());
    assert!(index.read(|tx| tx.referenced()).unwrap().is_empty());
    assert_eq!(index.read(|tx| tx.doomed()).unwrap().len(), 5);
    assert_eq!(index.sweep_doomed(home.folder.path()).unwrap(), 5);
    assert_eq!(index.sweep_doomed(home.folder.path()).unwrap(), 0);
}

#[test]
fn a_second_writer_waits_no_longer_than_its_timeout_and_names_the_first() {
    let home = Home::new();
    let (first, second) = (home.open(), home.open());
    first
        .write(|_| {
            let busy = second.write(|_| Ok(()));
            assert!(matches!(busy, Err(IndexError::Busy { holder_pid: Some(77) })), "{busy:?}");
            let late = Index::open(&home.disk, &home.path(), &options());
            assert!(matches!(late, Err(IndexError::Busy { holder_pid: Some(77) })));
            assert!(second.read(|tx| tx.key_of("a")).unwrap().is_none());
            Ok(())
        })
        .unwrap();
    let key = create(&second, "a", None);
    assert_eq!(first.read(|tx| tx.key_of("a")).unwrap(), Some(key));
    let reader = Index::open_read_only(&home.disk, &home.path(), &options()).unwrap();
    assert_eq!(reader.read(|tx| tx.key_of("a")).unwrap(), Some(key));
    assert!(matches!(reader.write(|_| Ok(())), Err(IndexError::ReadOnly { .. })));
}

fn holds(folder: &Path, marker: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && memchr::memmem::find(&std::fs::read(&path).unwrap(), marker).is_some() {
            found.push(path.display().to_string());
        }
    }
    found
}

#[test]
fn a_scrub_leaves_no_byte_of_a_deleted_session() {
    let home = Home::new();
    let index = home.open();
    for n in 0..40 {
        create(&index, &format!("keep-{n}"), None);
        let key = create(&index, &format!("MARKER-{n}"), None);
        seal(&index, key, 100 + n, 0, 3, &[]);
        index.write(|tx| tx.update_session(key, |row| row.title = Some("MARKER".into()))).unwrap();
    }
    for n in 0..40 {
        let key = index.read(|tx| tx.key_of(&format!("MARKER-{n}"))).unwrap().unwrap();
        index.write(|tx| tx.delete_session(key)).unwrap();
    }
    let other = home.open();
    assert_eq!(index.scrub().unwrap(), Scrub::Shared);
    drop(other);
    let reader = Index::open_read_only(&home.disk, &home.path(), &options()).unwrap();
    assert_eq!(index.scrub().unwrap(), Scrub::Shared);
    drop(reader);
    assert!(!holds(home.folder.path(), b"MARKER").is_empty(), "a deleted row's bytes stay until then");
    assert_eq!(index.scrub().unwrap(), Scrub::Done);
    assert_eq!(holds(home.folder.path(), b"MARKER"), Vec::<String>::new());
    assert_eq!(index.read(|tx| tx.page(None, 100)).unwrap().sessions.len(), 40);
    create(&index, "later", None);
    let other = home.open();
    assert!(other.read(|tx| tx.key_of("later")).unwrap().is_some());
    drop((index, other));
    home.open().check().unwrap();
}

#[test]
fn a_row_that_was_altered_is_named() {
    let home = Home::new();
    let index = home.open();
    let key = create(&index, "a", None);
    create(&index, "b", None);
    index
        .write(|tx| {
            // A sound row, under another key than its own.
            let row = tx.session(key)?.unwrap();
            let value = rows::encode(&SESSIONS, &key.value(), &row);
            tx.table(&SESSIONS)?.insert(2, &*value).unwrap();
            Ok(())
        })
        .unwrap();
    let found = index.read(|tx| tx.session(SessionKey(2)));
    assert!(
        matches!(&found, Err(IndexError::Damaged { table: Some("sessions.v1"), key: Some(key), .. }) if key == "0200000000000000"),
        "{found:?}"
    );
    assert!(index.check().is_err());
    assert!(index.read(|tx| tx.session(key)).is_ok());
}

mod rebuilding {
    use super::*;
    use crate::segment::sample::Sample;
    use crate::segment::{LEVEL_DEFAULT, Packer, SegmentInput, SegmentMeta, encode, write_segment};

    /// Writes the segment of `events` of `log`, whose checkpoint is `end`, and seals it.
    fn write(
        home: &Home,
        index: &Index,
        (key, id): (SessionKey, SegmentId),
        log: &Sample,
        events: std::ops::Range<usize>,
        end: &Checkpoint,
    ) {
        let row = index.read(|tx| tx.live_session(key)).unwrap();
        let meta = SegmentMeta {
            session: row.id,
            header_line: row.header_line,
            types: vec!["x/y".into()],
            previous: row.last_segment,
            base: row.base,
        };
        let first = Seq::new(events.start as u64);
        let events = &log.events[events];
        let input = SegmentInput { id, key, meta: &meta, events, end };
        let bytes = encode(&input, &mut Packer::new(LEVEL_DEFAULT)).unwrap();
        let folder = home.folder.path().join("segments");
        home.disk.create_folder(&folder).unwrap();
        write_segment(home.disk.as_ref(), &folder, id, &bytes).unwrap();
        let path = crate::segment::segment_path(&folder, id);
        let reader = crate::segment::SegmentReader::open(home.disk.as_ref(), &path, id).unwrap();
        let (stored_bytes, raw_bytes) = reader.stored_and_raw_bytes();
        let segment = SegmentRow { id, count: events.len() as u64, raw_bytes, stored_bytes };
        let references = reader.references().unwrap();
        let seal = Seal { key, first, segment, references: &references, end, types: &meta.types };
        index.write(|tx| tx.seal(&seal)).unwrap();
    }

    #[test]
    fn the_segments_give_back_the_index() {
        let home = Home::new();
        let index = home.open();
        let mut log = Sample::rich(1, 10);
        let (early, cut) = (log.fold().checkpoint(), log.events.len());
        for step in 11..20 {
            log.step(step, 2, 50, 50);
        }
        let (end, all) = (log.fold().checkpoint(), log.events.len());
        let parent = create(&index, "parent", None);
        let numbers = index.reserve_segments(64).unwrap().value();
        let id = |n| SegmentId(numbers + n);
        write(&home, &index, (parent, id(0)), &log, 0..cut, &early);
        write(&home, &index, (parent, id(1)), &log, cut..all, &end);
        let child = create(&index, "child", Some(Base { key: parent, cut: Seq::new(cut as u64) }));
        write(&home, &index, (child, id(2)), &log, cut..all, &end);
        // A merge whose old files were not swept yet.
        write(&home, &index, (parent, id(3)), &log, 0..all, &end);
        create(&index, "empty", None);

        let rows = |index: &Index| {
            let mut rows = Vec::new();
            index.read(|tx| tx.all_sessions(|key, row| rows.push((key, row)))).unwrap();
            rows.retain(|(_, row)| row.id != "empty");
            rows
        };
        let folder = home.folder.path().join("segments");
        let fresh = home.folder.path().join("fresh.redb");
        let (rebuilt, report) =
            Index::rebuild(&home.disk, &fresh, &folder, &options(), SessionKey(9)).unwrap();
        assert_eq!(rows(&rebuilt), rows(&index));
        for key in [parent, child] {
            assert_eq!(seen(&rebuilt, key), seen(&index, key));
        }
        assert_eq!(rebuilt.read(|tx| tx.referenced()).unwrap(), index.read(|tx| tx.referenced()).unwrap());
        assert_eq!((report.sessions, report.segments, report.left_over), (2, 2, vec![id(0), id(1)]));
        assert!(report.damaged.is_empty() && report.gaps.is_empty() && report.others.is_empty());
        assert_eq!(create(&rebuilt, "new", None), SessionKey(9));
        assert_eq!(rebuilt.reserve_segments(1).unwrap(), id(4));

        // A name that was deleted and given again: the later session has it, and nothing is doomed.
        index.write(|tx| tx.delete_session(parent)).unwrap();
        let later = create(&index, "parent", None);
        write(&home, &index, (later, id(5)), &log, 0..all, &end);
        let path = home.folder.path().join("later.redb");
        let (rebuilt, _) = Index::rebuild(&home.disk, &path, &folder, &options(), SessionKey(1)).unwrap();
        assert_eq!(rebuilt.read(|tx| tx.key_of("parent")).unwrap(), Some(later));
        assert!(rebuilt.read(|tx| tx.session(parent)).unwrap().unwrap().deleted);
        assert!(rebuilt.read(|tx| tx.doomed()).unwrap().is_empty());
        assert_eq!(seen(&rebuilt, child), seen(&index, child));
        std::fs::remove_file(crate::segment::segment_path(&folder, id(5))).unwrap();

        // Without the merged file the older two serve again; without the first there is a gap.
        let drop_file = |n| std::fs::remove_file(crate::segment::segment_path(&folder, id(n))).unwrap();
        drop_file(3);
        let again = |name: &str| {
            let path = home.folder.path().join(name);
            Index::rebuild(&home.disk, &path, &folder, &options(), SessionKey(1)).unwrap()
        };
        let (rebuilt, report) = again("second.redb");
        assert_eq!(
            seen(&rebuilt, parent),
            [(id(0).value(), 0, cut as u64), (id(1).value(), cut as u64, all as u64)]
        );
        assert!(report.gaps.is_empty());
        std::fs::write(crate::segment::segment_path(&folder, id(0)), b"RDRVSEG\0").unwrap();
        let (_, report) = again("third.redb");
        assert_eq!((report.damaged.len(), report.gaps), (1, vec![(parent, Seq::FIRST)]));
    }
}

/// The operating system's files, as a disk that redb cannot open by itself.
#[derive(Debug)]
struct Foreign;

impl Disk for Foreign {
    fn open(&self, path: &Path, mode: OpenMode) -> std::io::Result<Arc<dyn DiskFile>> {
        OsDisk.open(path, mode)
    }
    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        OsDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> std::io::Result<()> {
        OsDisk.remove(path)
    }
    fn create_folder(&self, path: &Path) -> std::io::Result<()> {
        OsDisk.create_folder(path)
    }
    fn remove_folder(&self, path: &Path) -> std::io::Result<()> {
        OsDisk.remove_folder(path)
    }
    fn sync_folder(&self, path: &Path) -> std::io::Result<()> {
        OsDisk.sync_folder(path)
    }
    fn list(&self, path: &Path) -> std::io::Result<Vec<rederive_disk::Entry>> {
        OsDisk.list(path)
    }
    fn exists(&self, path: &Path) -> std::io::Result<bool> {
        OsDisk.exists(path)
    }
    fn set_read_only(&self, path: &Path) -> std::io::Result<()> {
        OsDisk.set_read_only(path)
    }
    fn is_os(&self) -> bool {
        false
    }
}

#[test]
fn a_disk_that_is_not_the_operating_systems_gives_the_same_index() {
    let home = Home { folder: tempfile::tempdir().unwrap(), disk: Arc::new(Foreign) };
    let (first, second) = (home.open(), home.open());
    std::thread::scope(|scope| {
        for (index, name) in [(&first, "a"), (&second, "b")] {
            scope.spawn(move || {
                for n in 0..20 {
                    let header = header(&format!("{name}{n}"), 5);
                    let new = NewSession { header: &header, types: &[], base: None, owner: None };
                    // The timeout is short, and the other thread is greedy.
                    while index.write(|tx| tx.create_session(&new)).is_err() {}
                    index.read(|tx| tx.page(None, 100)).unwrap();
                }
            });
        }
    });
    assert_eq!(first.read(|tx| tx.page(None, 100)).unwrap().sessions.len(), 40);
    assert_eq!(first.scrub().unwrap(), Scrub::Shared);
    drop(second);
    assert_eq!(first.scrub().unwrap(), Scrub::Done);
    first.check().unwrap();
    drop(first);
    let checked = Index::open(&home.disk, &home.path(), &IndexOptions { checked: true, ..options() });
    assert_eq!(checked.unwrap().read(|tx| tx.page(None, 100)).unwrap().sessions.len(), 40);
}

/// Asked for by name in the process that the test below kills.
const VICTIM: &str = "REDERIVE_TEST_INDEX_VICTIM";

#[test]
fn a_killed_writer_leaves_an_index_that_opens_and_keeps_what_was_committed() {
    use std::io::BufRead;
    if let Ok(path) = std::env::var(VICTIM) {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let index = Index::create(&disk, Path::new(&path), &options()).unwrap();
        for n in 0.. {
            println!("committed {}", create(&index, &format!("{}-{n}", std::process::id()), None));
        }
    }
    let home = Home::new();
    let mut committed = 0;
    for round in 0..6_u32 {
        let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["a_killed_writer_leaves", "--nocapture", "--test-threads=1"])
            .env(VICTIM, home.path())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(victim.stdout.take().unwrap()).lines();
        let mut seen = 0;
        while seen < 5 + round * 3 {
            seen += u32::from(lines.next().unwrap().unwrap().contains("committed "));
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        committed +=
            seen + lines.map_while(Result::ok).filter(|line| line.contains("committed ")).count() as u32;
        let checked = round % 2 == 1;
        let index = Index::open(&home.disk, &home.path(), &IndexOptions { checked, ..options() }).unwrap();
        let mut found = 0;
        index.read(|tx| tx.all_sessions(|_, _| found += 1)).unwrap();
        assert!(found >= committed, "round {round}: {found} of {committed}");
        // What was committed and not said stays as well.
        committed = found;
        index.check().unwrap();
    }
}

#[test]
fn a_damaged_file_gives_the_right_rows_or_an_error() {
    let home = Home::new();
    let index = home.open();
    let key = create(&index, "a", None);
    seal(&index, key, 1, 0, 10, &[[1; 32]]);
    let row = index.read(|tx| tx.live_session(key)).unwrap();
    drop(index);
    let sound = std::fs::read(home.path()).unwrap();
    let checked = IndexOptions { checked: true, ..options() };
    let mut damages: Vec<(String, Vec<u8>)> = Vec::new();
    let mut damage = |what: String, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = sound.clone();
        change(&mut bytes);
        if bytes != sound {
            damages.push((what, bytes));
        }
    };
    for at in (0..sound.len()).step_by(509) {
        damage(format!("byte {at}"), &|bytes| bytes[at] ^= 0x41);
    }
    for page in (0..sound.len()).step_by(4096) {
        damage(format!("zeroes at {page}"), &|bytes| bytes[page..page + 4096].fill(0));
        damage(format!("cut at {page}"), &|bytes| bytes.truncate(page));
        damage(format!("page {page} twice"), &|bytes| {
            let next = (page + 4096) % bytes.len();
            bytes.copy_within(page..page + 4096, next);
        });
    }
    let mut errors = 0;
    for (what, bytes) in damages {
        let path = Path::new("/index.redb");
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::from_files(1, [(path.to_owned(), bytes)]));
        let found = Index::open(&disk, path, &checked).and_then(|index| {
            let found = index.read(|tx| tx.live_session(key))?;
            index.read(|tx| tx.check_rows())?;
            Ok(found)
        });
        match found {
            Ok(found) => assert_eq!(found, row, "{what}"),
            Err(_) => errors += 1,
        }
    }
    assert!(errors > 0);
}

/// `cargo test --release -p rederive-engine --lib measure -- --ignored --nocapture --test-threads=1`
#[test]
#[ignore = "measures, and says little without --release"]
fn measure_an_index_of_100_000_sessions() {
    use std::time::Instant;
    let home = Home::new();
    let index = home.open();
    let mut id = 0;
    for round in 0..100 {
        let headers: Vec<HeaderLine> = (0..1000)
            .map(|n| header(&format!("session-{round}-{n}-0123456789abcdef"), round * 1000 + n))
            .collect();
        index
            .write(|tx| {
                for header in &headers {
                    let key =
                        tx.create_session(&NewSession { header, types: &[], base: None, owner: None })?;
                    id += 1;
                    let segment = SegmentRow { id: SegmentId(id), count: 50, raw_bytes: 9, stored_bytes: 9 };
                    let end = end(50, id * 13 % 99_991);
                    tx.seal(&Seal {
                        key,
                        first: Seq::FIRST,
                        segment,
                        references: &[],
                        end: &end,
                        types: &[],
                    })?;
                }
                Ok(())
            })
            .unwrap();
    }
    println!("100,000 sessions: {} bytes", std::fs::metadata(home.path()).unwrap().len());
    let written = || {
        let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let bytes = io.lines().find_map(|line| line.strip_prefix("wchar: ")).map(str::parse);
        bytes.map_or(0, Result::unwrap_or_default)
    };
    let before: u64 = written();
    let mut took: Vec<Duration> = (0..200)
        .map(|n| {
            let start = Instant::now();
            seal(&index, SessionKey(1 + n * 400), 1_000_000 + n, 50, 10, &[]);
            start.elapsed()
        })
        .collect();
    println!("written for one seal: {} bytes", (written() - before) / 200);
    took.sort_unstable();
    println!("commit of one seal: median {:?}, p90 {:?}, max {:?}", took[100], took[180], took[199]);
    drop(index);
    for checked in [false, true] {
        let start = Instant::now();
        let index = Index::open(&home.disk, &home.path(), &IndexOptions { checked, ..options() }).unwrap();
        let opened = start.elapsed();
        let start = Instant::now();
        let page = index.read(|tx| tx.page(None, 50)).unwrap();
        let first = start.elapsed();
        let start = Instant::now();
        index.read(|tx| tx.page(page.next, 50)).unwrap();
        println!(
            "open (checked: {checked}) {opened:?}, 50 sessions {first:?}, 50 more {:?}",
            start.elapsed()
        );
        let start = Instant::now();
        index.check().unwrap();
        println!("check of all pages and rows {:?}", start.elapsed());
        assert_eq!(page.sessions.len(), 50);
    }
    let index = home.open();
    let start = Instant::now();
    assert_eq!(index.scrub().unwrap(), Scrub::Done);
    println!("scrub {:?}, {} bytes", start.elapsed(), std::fs::metadata(home.path()).unwrap().len());

    // What a small index costs.
    let home = Home::new();
    let index = home.open();
    let mut took: Vec<Duration> = (0..200)
        .map(|n| {
            let start = Instant::now();
            create(&index, &format!("s{n}"), None);
            start.elapsed()
        })
        .collect();
    took.sort_unstable();
    println!("small index, commit: median {:?}, p90 {:?}, max {:?}", took[100], took[180], took[199]);
}

mod power {
    use super::*;
    use crate::segment::{segment_path, write_segment};

    const PATH: &str = "/store/index.redb";

    /// Makes and seals sessions, deletes some, scrubs once; gives the names that were committed,
    /// and those of which the last word is not known.
    fn run(disk: &SimDisk) -> (Vec<String>, Option<String>) {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut kept = Vec::new();
        let work = |kept: &mut Vec<String>, open: &mut Option<String>| -> Result<(), IndexError> {
            let io = |error| io_error("make", Path::new("/store"))(error);
            disk.create_folder(Path::new("/store")).map_err(io)?;
            disk.sync_folder(Path::new("/")).map_err(io)?;
            disk.create_folder(Path::new("/store/segments")).map_err(io)?;
            disk.sync_folder(Path::new("/store")).map_err(io)?;
            let index = Index::create(&disk, Path::new(PATH), &options())?;
            for n in 0..6_u64 {
                let name = format!("s{n}");
                *open = Some(name.clone());
                let header = header(&name, n);
                let new = NewSession { header: &header, types: &[], base: None, owner: None };
                let key = index.write(|tx| tx.create_session(&new))?;
                kept.push(name);
                *open = None;
                let id = SegmentId(n + 1);
                write_segment(disk.as_ref(), Path::new("/store/segments"), id, b"bytes")
                    .map_err(IndexError::from)?;
                try_seal(&index, key, id.value(), 0, 3, &[[n as u8; 32]])?;
                if n == 3 {
                    *open = Some(kept.remove(0));
                    index.write(|tx| {
                        let first = tx.key_of("s0")?.ok_or(IndexError::NoSession { key })?;
                        tx.delete_session(first)
                    })?;
                    *open = None;
                    index.sweep_doomed(Path::new("/store/segments"))?;
                    index.scrub()?;
                }
            }
            Ok(())
        };
        let mut open = None;
        // Power is lost somewhere in here, or never.
        let _ = work(&mut kept, &mut open);
        (kept, open)
    }

    #[test]
    fn a_power_cut_anywhere_keeps_what_was_committed() {
        let whole = SimDisk::new(1);
        assert_eq!(run(&whole).0.len(), 5);
        let operations = whole.operations();
        let mut found_some = false;
        for cut in 0..operations {
            let disk = SimDisk::new(cut).cut_at(cut);
            let (kept, open) = run(&disk);
            let after: Arc<dyn Disk> = Arc::new(disk.after_power_loss());
            if !kept.is_empty() {
                found_some = true;
            } else if !after.exists(Path::new(PATH)).unwrap() {
                continue;
            }
            let checked = IndexOptions { checked: cut % 2 == 0, ..options() };
            let index = Index::create(&after, Path::new(PATH), &checked)
                .unwrap_or_else(|error| panic!("cut {cut} of {operations}: {error}: {error:?}"));
            let mut names = Vec::new();
            let page = index.read(|tx| tx.page(None, 100)).unwrap();
            names.extend(page.sessions.iter().map(|(_, row)| row.id.clone()));
            names.retain(|name| Some(name) != open.as_ref());
            names.sort();
            assert_eq!(names, kept, "cut {cut} of {operations}");
            for (key, row) in page.sessions {
                for (_, segment) in index.read(|tx| tx.own_segments(key)).unwrap() {
                    let path = segment_path(Path::new("/store/segments"), segment.id);
                    assert!(after.exists(&path).unwrap(), "cut {cut}: the segment of {}", row.id);
                }
            }
            index.check().unwrap();
        }
        assert!(found_some);
    }
}

#[test]
fn a_disk_that_fails_anywhere_gives_an_error_and_a_reopened_index_is_right() {
    use rederive_disk::sim::{Fault, Repeat, Target};
    let path = Path::new("/index.redb");
    let run = |disk: &Arc<dyn Disk>| {
        let index = Index::create(disk, path, &options())?;
        let mut made = Vec::new();
        for n in 0..4 {
            let header = header(&format!("s{n}"), 5);
            let new = NewSession { header: &header, types: &[], base: None, owner: None };
            if index.write(|tx| tx.create_session(&new)).is_ok() {
                made.push(format!("s{n}"));
            }
        }
        Ok::<_, IndexError>(made)
    };
    let sound = SimDisk::new(1);
    let disk: Arc<dyn Disk> = Arc::new(sound.clone());
    assert_eq!(run(&disk).unwrap().len(), 4);
    for at in 0..sound.operations() {
        for fault in [Fault::NoSpace, Fault::Io, Fault::ShortWrite] {
            let failing = SimDisk::new(at).fail_at(at, fault, Repeat::Once, Target::Any);
            let disk: Arc<dyn Disk> = Arc::new(failing.clone());
            let Ok(made) = run(&disk) else { continue };
            let index = Index::open(&disk, path, &options()).unwrap();
            for name in &made {
                let found = index.read(|tx| tx.key_of(name)).unwrap();
                assert!(found.is_some(), "operation {at}, {fault}: {name} of {made:?}");
            }
            create(&index, "after", None);
            index.check().unwrap();
        }
    }
}

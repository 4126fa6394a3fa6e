//! Group commit, tickets, and the poison of a failed sync.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use rederive_disk::sim::{Fault, Repeat, Target};
use rederive_disk::{DiskFile, Entry, OpenMode};

use super::*;

/// A disk whose file syncs each wait for a permit, once the gate is shut, and say when they begin.
#[derive(Clone, Debug)]
struct GateDisk {
    inner: SimDisk,
    gate: Arc<Mutex<Option<Gate>>>,
}

#[derive(Clone, Debug)]
struct Gate {
    begun: Sender<()>,
    permits: Receiver<()>,
}

#[derive(Debug)]
struct GateFile {
    inner: Arc<dyn DiskFile>,
    gate: Arc<Mutex<Option<Gate>>>,
}

impl GateDisk {
    fn new(inner: SimDisk) -> Self {
        Self { inner, gate: Arc::default() }
    }

    /// From now on syncs wait; what tells of their begin, and what lets them go on.
    fn shut(&self) -> (Receiver<()>, Sender<()>) {
        let (begun, begins) = unbounded();
        let (permit, permits) = unbounded();
        *self.gate.lock().unwrap() = Some(Gate { begun, permits });
        (begins, permit)
    }
}

impl AsDisk for GateDisk {
    fn as_disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }
}

impl Disk for GateDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(GateFile { inner, gate: Arc::clone(&self.gate) }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.inner.create_folder(path)
    }
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_folder(path)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_folder(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.inner.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }
    fn set_read_only(&self, path: &Path) -> io::Result<()> {
        self.inner.set_read_only(path)
    }
    fn is_os(&self) -> bool {
        false
    }
}

impl DiskFile for GateFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        let gate = self.gate.lock().unwrap().clone();
        if let Some(gate) = gate {
            gate.begun.send(()).unwrap();
            gate.permits.recv().unwrap();
        }
        self.inner.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.inner.set_len(bytes)
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.inner.try_lock()
    }
    fn try_lock_shared(&self) -> io::Result<bool> {
        self.inner.try_lock_shared()
    }
    fn unlock(&self) -> io::Result<()> {
        self.inner.unlock()
    }
}

/// A waker that counts and reports.
struct Bell {
    rings: AtomicU64,
    rung: Sender<()>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        self.rung.send(()).unwrap();
    }
}

fn bell() -> (Arc<Bell>, Waker, Receiver<()>) {
    let (rung, rings) = unbounded();
    let bell = Arc::new(Bell { rings: AtomicU64::new(0), rung });
    (Arc::clone(&bell), Waker::from(bell), rings)
}

fn poll(ticket: &mut Ticket, waker: &Waker) -> Poll<Result<(), JournalError>> {
    pin!(ticket).poll(&mut Context::from_waker(waker))
}

const fn is_send_and_unpin<T: Send + Unpin>() {}
const _: () = is_send_and_unpin::<Ticket>();

/// A file system that gives every lock to everybody.
#[derive(Debug)]
struct NoLocks(GateDisk);

#[derive(Debug)]
struct NoLocksFile(Arc<dyn DiskFile>);

impl Disk for NoLocks {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(NoLocksFile(self.0.inner.open(path, mode)?)))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.0.create_folder(path)
    }
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.0.remove_folder(path)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.0.sync_folder(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.0.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }
    fn set_read_only(&self, path: &Path) -> io::Result<()> {
        self.0.set_read_only(path)
    }
    fn is_os(&self) -> bool {
        false
    }
}

impl DiskFile for NoLocksFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
    fn try_lock(&self) -> io::Result<bool> {
        Ok(true)
    }
    fn try_lock_shared(&self) -> io::Result<bool> {
        Ok(true)
    }
    fn unlock(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_file_system_whose_locks_do_not_work_is_refused() {
    let disk: Arc<dyn Disk> = Arc::new(NoLocks(GateDisk::new(store(1))));
    let folder = Path::new(FOLDER);
    let refused =
        JournalSet::acquire_empty(disk, folder, JournalOptions::default(), salts(1), PID, &[]).unwrap_err();
    assert!(matches!(refused, JournalError::NoLocks { .. }), "{refused}");
}

#[test]
fn all_who_arrive_during_a_sync_share_the_next_one() {
    let disk = GateDisk::new(store(1));
    let (journal, _) = acquire(&disk);
    let syncs = journal.stats().syncs;
    let (begins, permit) = disk.shut();
    let (arrived, arrivals) = bounded(0);
    thread::scope(|scope| {
        let first = append(&journal, 0, 0, b"first");
        let ticket = journal.ticket(first, Durability::Synced);
        scope.spawn(move || ticket.wait().unwrap());
        begins.recv().unwrap();
        for session_key in 1..=16 {
            let (journal, arrived) = (&journal, arrived.clone());
            scope.spawn(move || {
                let end = append(journal, session_key, 0, b"later");
                arrived.send(()).unwrap();
                journal.ticket(end, Durability::Synced).wait().unwrap();
            });
        }
        for _ in 1..=16 {
            arrivals.recv().unwrap();
        }
        permit.send(()).unwrap();
        permit.send(()).unwrap();
    });
    assert_eq!(journal.stats().syncs - syncs, 2, "one for the first, one for the sixteen");
    let survived = disk.inner.after_power_loss();
    drop(journal);
    assert_eq!(acquire(&survived).1.frames.len(), 17);
}

#[test]
fn a_buffered_ticket_is_resolved_and_costs_no_sync() {
    let disk = store(1);
    let (journal, _) = acquire(&disk);
    let syncs = journal.stats().syncs;
    let end = append(&journal, 1, 0, b"buffered");
    let mut ticket = journal.ticket(end, Durability::Buffered);
    assert_eq!(ticket.durability(), Durability::Buffered);
    assert!(matches!(poll(&mut ticket, Waker::noop()), Poll::Ready(Ok(()))));
    journal.ticket(end, Durability::Buffered).wait().unwrap();
    drop(ticket);
    assert_eq!(journal.stats().syncs, syncs);
    journal.flush().unwrap();
    journal.flush().unwrap();
    assert_eq!(journal.stats().syncs, syncs + 1, "nothing was written since the first flush");
}

#[test]
fn a_future_is_woken_once_it_is_synced_by_the_last_waker_that_polled() {
    let disk = GateDisk::new(store(1));
    let (journal, _) = acquire(&disk);
    let (begins, permit) = disk.shut();
    let mut ticket = journal.ticket(append(&journal, 1, 0, b"x"), Durability::Synced);
    let (old_bell, old_waker, _old_rings) = bell();
    let (_, waker, rings) = bell();
    assert!(poll(&mut ticket, &old_waker).is_pending());
    begins.recv().unwrap();
    assert!(poll(&mut ticket, &old_waker).is_pending());
    assert!(poll(&mut ticket, &waker).is_pending());
    permit.send(()).unwrap();
    rings.recv().unwrap();
    assert!(matches!(poll(&mut ticket, &waker), Poll::Ready(Ok(()))));
    assert_eq!(old_bell.rings.load(Ordering::SeqCst), 0);
    drop(ticket);
    assert_eq!(disk.inner.after_power_loss().files()[&file("0-a.jnl")][8192], 1, "payload length");
}

#[test]
fn futures_share_syncs_too() {
    let disk = GateDisk::new(store(1));
    let (journal, _) = acquire(&disk);
    let syncs = journal.stats().syncs;
    let (begins, permit) = disk.shut();
    let mut tickets = Vec::new();
    let (_, waker, rings) = bell();
    for seq in 0..20 {
        let mut ticket = journal.ticket(append(&journal, 1, seq, b"x"), Durability::Synced);
        assert!(poll(&mut ticket, &waker).is_pending());
        if seq == 0 {
            begins.recv().unwrap();
        }
        tickets.push(ticket);
    }
    permit.send(()).unwrap();
    permit.send(()).unwrap();
    for _ in &tickets {
        rings.recv().unwrap();
    }
    for ticket in &mut tickets {
        assert!(matches!(poll(ticket, &waker), Poll::Ready(Ok(()))));
    }
    assert_eq!(journal.stats().syncs - syncs, 2);
}

#[test]
fn a_dropped_ticket_is_synced_all_the_same() {
    let disk = GateDisk::new(store(1));
    let (journal, _) = acquire(&disk);
    let (begins, permit) = disk.shut();
    permit.send(()).unwrap();
    drop(journal.ticket(append(&journal, 1, 0, b"x"), Durability::Synced));
    begins.recv().unwrap();
    drop(journal); // waits for what the thread was asked for
    assert_eq!(acquire(&disk.inner.after_power_loss()).1.frames.len(), 1);
}

#[test]
fn tickets_outlive_their_journal() {
    let disk = store(1);
    let (journal, _) = acquire(&disk);
    let waited = journal.ticket(append(&journal, 1, 0, b"x"), Durability::Synced);
    let mut polled = journal.ticket(append(&journal, 1, 1, b"x"), Durability::Synced);
    let mut pending = journal.ticket(append(&journal, 1, 2, b"x"), Durability::Synced);
    let dropped = journal.ticket(append(&journal, 1, 3, b"x"), Durability::Synced);
    let _ = poll(&mut pending, Waker::noop());
    drop(journal);
    assert!(matches!(poll(&mut pending, Waker::noop()), Poll::Ready(Ok(()))));
    assert!(matches!(poll(&mut polled, Waker::noop()), Poll::Ready(Ok(()))));
    waited.wait().unwrap();
    drop(dropped);
    assert_eq!(acquire(&disk.after_power_loss()).1.frames.len(), 4);
}

#[test]
fn a_waker_may_drop_the_journal_or_panic() {
    struct Dropper(Mutex<Option<JournalSet>>, Sender<()>);
    impl Wake for Dropper {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
            self.1.send(()).unwrap();
            panic!("a host's waker");
        }
    }
    let disk = store(1);
    let gate = GateDisk::new(disk);
    let (journal, _) = acquire(&gate);
    let (begins, permit) = gate.shut();
    let mut first = journal.ticket(append(&journal, 1, 0, b"x"), Durability::Synced);
    let mut second = journal.ticket(append(&journal, 1, 1, b"x"), Durability::Synced);
    let (done, dones) = unbounded();
    let dropper = Arc::new(Dropper(Mutex::new(None), done));
    assert!(poll(&mut first, &Waker::from(Arc::clone(&dropper))).is_pending());
    begins.recv().unwrap();
    let (_, waker, rings) = bell();
    assert!(poll(&mut second, &waker).is_pending());
    *dropper.0.lock().unwrap() = Some(journal);
    permit.send(()).unwrap();
    dones.recv().unwrap();
    rings.recv().unwrap();
    assert!(matches!(poll(&mut second, &waker), Poll::Ready(Ok(()))));
}

#[test]
fn a_failed_sync_poisons_everything_after_it() {
    let disk = store(1);
    let (journal, _) = acquire(&disk);
    append_synced(&journal, 1, 0, b"synced");
    let synced_end = append(&journal, 1, 1, b"synced too");
    journal.flush().unwrap();
    let disk = disk.clone().fail_at(disk.syncs(), Fault::Io, Repeat::Once, Target::Syncs);
    let end = append(&journal, 1, 2, b"lost?");
    let other = journal.ticket(end, Durability::Synced);
    let mut future = journal.ticket(end, Durability::Synced);
    match journal.ticket(end, Durability::Synced).wait() {
        Err(JournalError::Sync { path, .. }) => assert_eq!(path, file("0-a.jnl")),
        outcome => panic!("{outcome:?}"),
    }
    let operations = disk.operations();
    let frame = FrameWrite { session_key: 1, first_seq: 3, events: 1, payload: b"x" };
    let poisoned = |outcome: Result<(), JournalError>| {
        assert!(
            matches!(&outcome, Err(JournalError::Poisoned { path }) if *path == file("0-a.jnl")),
            "{outcome:?}"
        );
    };
    poisoned(journal.append(frame).map(drop));
    poisoned(other.wait());
    poisoned(journal.flush());
    poisoned(journal.scrub());
    match poll(&mut future, Waker::noop()) {
        Poll::Ready(outcome) => poisoned(outcome),
        Poll::Pending => panic!("poison is known at once"),
    }
    journal.ticket(synced_end, Durability::Synced).wait().expect("synced before the failure");
    drop(future);
    poisoned(journal.close().map(drop));
    assert_eq!(disk.operations(), operations, "nothing is written any more");
}

#[test]
fn a_future_learns_of_a_failed_sync() {
    let disk = store(1);
    let (journal, _) = acquire(&disk);
    let _disk = disk.clone().fail_at(disk.syncs(), Fault::Io, Repeat::Once, Target::Syncs);
    let mut ticket = journal.ticket(append(&journal, 1, 0, b"x"), Durability::Synced);
    let (_, waker, rings) = bell();
    let outcome = match poll(&mut ticket, &waker) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => {
            rings.recv().unwrap();
            match poll(&mut ticket, &waker) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => panic!("woken and pending"),
            }
        }
    };
    assert!(matches!(outcome, Err(JournalError::Sync { .. })), "{outcome:?}");
    assert!(matches!(poll(&mut ticket, &waker), Poll::Ready(Err(JournalError::Poisoned { .. }))));
}

#[test]
fn a_ticket_survives_a_switch_of_files() {
    let disk = store(1);
    let (journal, _) = acquire_with(&disk, small()).unwrap();
    let mut tickets = Vec::new();
    for seq in 0..20 {
        let end = append(&journal, 1, seq, &[1; 1000]);
        tickets.push(journal.ticket(end, Durability::Synced));
        if seq < 12 {
            journal.release(1, seq + 1);
        }
    }
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    let (_, recovered) = acquire_with(&disk.after_power_loss(), small()).unwrap();
    let survived = seqs(&recovered);
    assert!(survived.ends_with(&(12..20).collect::<Vec<_>>()), "{survived:?}");
}

#[test]
fn many_threads_append_and_all_is_there() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("journal");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let options = JournalOptions { switch_bytes: 20_000 };
    let open = || JournalSet::acquire(Arc::clone(&disk), &folder, options, salts(1), 7).unwrap();
    let (journal, _) = open();
    thread::scope(|scope| {
        for session_key in 0..8 {
            let journal = &journal;
            scope.spawn(move || {
                for seq in 0..100 {
                    let end = append(journal, session_key, seq, &[session_key as u8; 300]);
                    match seq % 4 {
                        0 => journal.ticket(end, Durability::Synced).wait().unwrap(),
                        1 => drop(journal.ticket(end, Durability::Synced)),
                        2 => journal.ticket(end, Durability::Buffered).wait().unwrap(),
                        _ => {
                            let (_, waker, rings) = bell();
                            let mut ticket = journal.ticket(end, Durability::Synced);
                            if poll(&mut ticket, &waker).is_pending() {
                                rings.recv().unwrap();
                                assert!(matches!(poll(&mut ticket, &waker), Poll::Ready(Ok(()))));
                            }
                        }
                    }
                    if seq < 50 {
                        journal.release(session_key, seq + 1);
                    }
                }
            });
        }
    });
    drop(journal);
    let (_, recovered) = open();
    for session_key in 0..8 {
        let seqs: Vec<u64> = recovered
            .frames
            .iter()
            .filter(|frame| frame.session_key == session_key)
            .map(|frame| frame.first_seq)
            .collect();
        assert!(seqs.is_sorted(), "session {session_key}: {seqs:?}");
        assert!(seqs.ends_with(&(50..100).collect::<Vec<_>>()), "session {session_key}: {seqs:?}");
    }
}

//! Group commit: one sync for every frame that was written before it began.
//!
//! Owns how far each file is written and synced, the rule that a file has at most one sync in
//! flight, the poison of a failed one, and the tickets that wait. A blocked thread syncs by itself
//! (the first to come leads, the others wait for it and the next leader syncs for all of them); a
//! polled future, and a ticket that nobody waits for, hand their position to the committing thread.
//! Knows no frames: positions are offsets in a generation of a file.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};

use crossbeam::channel::{Receiver, Sender, unbounded};
use rederive_disk::DiskFile;

use super::error::JournalError;
use super::format::{FRAMES_START, Pair, Side};

/// When an append counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Handed to the operating system: survives the end of the process, not of the machine.
    Buffered,
    /// Synced: survives power loss, as far as the disk honours a sync.
    Synced,
}

/// Where a frame ends: what a ticket waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameEnd {
    pub(super) side: Side,
    pub(super) generation: u32,
    pub(super) offset: u64,
}

/// What a journal has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Syncs of journal files.
    pub syncs: u64,
    /// Frames written.
    pub frames: u64,
    /// Bytes of these frames, their headers and padding included.
    pub frame_bytes: u64,
    /// All bytes written: frames, headers, and zeroes ahead of them.
    pub written_bytes: u64,
}

/// The counters behind [`JournalStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    syncs: AtomicU64,
    frames: AtomicU64,
    frame_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Counters {
    pub(super) fn frame(&self, bytes: u64) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.frame_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.written(bytes);
    }

    pub(super) fn written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> JournalStats {
        JournalStats {
            syncs: self.syncs.load(Ordering::Relaxed),
            frames: self.frames.load(Ordering::Relaxed),
            frame_bytes: self.frame_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
        }
    }
}

/// How far one file is.
#[derive(Debug)]
struct Progress {
    /// `None` until the file was opened.
    file: Option<(PathBuf, Arc<dyn DiskFile>)>,
    generation: u32,
    written: u64,
    synced: u64,
    syncing: bool,
    /// Up to where the sync in flight reaches, while there is one.
    in_flight: u64,
    /// Whether the sync in flight, or else the last one, is an odd one.
    odd: bool,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            file: None,
            generation: 0,
            written: FRAMES_START,
            synced: FRAMES_START,
            syncing: false,
            in_flight: FRAMES_START,
            odd: false,
        }
    }
}

/// Those who wait for one file: for the sync in flight, or for the one behind it. Two queues, used in
/// turns, so that the end of a sync wakes those it took in and one more, who leads the next: with one
/// queue every waiter would wake at the end of every sync.
#[derive(Debug, Default)]
struct Queues {
    odd: Condvar,
    even: Condvar,
}

impl Queues {
    fn of(&self, odd: bool) -> &Condvar {
        if odd { &self.odd } else { &self.even }
    }

    fn wake_all(&self) {
        self.odd.notify_all();
        self.even.notify_all();
    }
}

#[derive(Debug, Default)]
struct State {
    files: Pair<Progress>,
    poisoned: Option<PathBuf>,
}

impl State {
    /// Whether `end` is durable: synced, or released and its file in use again since.
    fn reached(&self, end: FrameEnd) -> bool {
        let file = self.files.get(end.side);
        end.generation < file.generation || (end.generation == file.generation && end.offset <= file.synced)
    }

    fn check(&self) -> Result<(), JournalError> {
        match &self.poisoned {
            Some(path) => Err(JournalError::Poisoned { path: path.clone() }),
            None => Ok(()),
        }
    }
}

/// How far both files are, and whom to tell.
#[derive(Debug, Default)]
pub(super) struct Commit {
    state: Mutex<State>,
    queues: Pair<Queues>,
    pub(super) counters: Counters,
}

impl Commit {
    /// Makes `file` the one behind `side`.
    pub(super) fn open(&self, side: Side, path: &Path, file: &Arc<dyn DiskFile>) {
        self.locked().files.get_mut(side).file = Some((path.to_owned(), Arc::clone(file)));
    }

    /// Says that `side` is now in use as `generation`, written and synced up to `end`. Whoever
    /// waits for an earlier generation is done.
    pub(super) fn begin(&self, side: Side, generation: u32, end: u64) {
        let mut state = self.locked();
        let file = state.files.get_mut(side);
        assert!(file.generation <= generation, "generations rise");
        file.generation = generation;
        file.written = end;
        file.synced = end;
        drop(state);
        self.queues.get(side).wake_all();
    }

    /// Says that `side` is written up to `end`.
    pub(super) fn wrote(&self, side: Side, end: u64) {
        let mut state = self.locked();
        let file = state.files.get_mut(side);
        assert!(file.written <= end, "a file's end only rises within a generation");
        file.written = end;
    }

    /// Up to where `side` is synced; fails once a sync has failed.
    pub(super) fn synced_to(&self, side: Side) -> Result<u64, JournalError> {
        let state = self.locked();
        state.check()?;
        Ok(state.files.get(side).synced)
    }

    pub(super) fn check(&self) -> Result<(), JournalError> {
        self.locked().check()
    }

    /// Poisons the journal for a sync outside of its files that failed.
    pub(super) fn poison(&self, path: &Path) {
        self.locked().poisoned.get_or_insert_with(|| path.to_owned());
        self.wake_all();
    }

    fn wake_all(&self) {
        for side in Side::BOTH {
            self.queues.get(side).wake_all();
        }
    }

    /// The ends of what both files hold now.
    pub(super) fn written(&self) -> [FrameEnd; 2] {
        let state = self.locked();
        Side::BOTH.map(|side| {
            let file = state.files.get(side);
            FrameEnd { side, generation: file.generation, offset: file.written }
        })
    }

    /// Whether `end` is settled already, for good or bad.
    fn settled(&self, end: FrameEnd) -> Option<Result<(), JournalError>> {
        let state = self.locked();
        if state.reached(end) {
            return Some(Ok(()));
        }
        state.check().err().map(Err)
    }

    /// Blocks until `end` is synced; leads a sync where none is in flight.
    pub(super) fn wait(&self, end: FrameEnd) -> Result<(), JournalError> {
        let mut state = self.locked();
        loop {
            if state.reached(end) {
                return Ok(());
            }
            state.check()?;
            let file = state.files.get(end.side);
            state = if file.syncing {
                let taken_in = file.generation == end.generation && end.offset <= file.in_flight;
                let queue = self.queues.get(end.side).of(file.odd == taken_in);
                queue.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.lead(state, end.side)?
            };
        }
    }

    /// Syncs `side` by a sync that begins after this call.
    pub(super) fn sync(&self, side: Side) -> Result<(), JournalError> {
        let mut state = self.locked();
        loop {
            state.check()?;
            let file = state.files.get(side);
            if !file.syncing {
                break;
            }
            let next = self.queues.get(side).of(!file.odd);
            state = next.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.lead(state, side).map(drop)
    }

    /// Syncs `side` for everything written so far, with the state unlocked meanwhile.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        side: Side,
    ) -> Result<MutexGuard<'a, State>, JournalError> {
        let progress = state.files.get_mut(side);
        let Some((path, file)) = progress.file.clone() else { return Ok(state) };
        let (generation, written) = (progress.generation, progress.written);
        assert!(!progress.syncing, "one sync in flight per file");
        progress.syncing = true;
        progress.in_flight = written;
        progress.odd = !progress.odd;
        let odd = progress.odd;
        drop(state);

        let outcome = file.sync();
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);

        let mut state = self.locked();
        let progress = state.files.get_mut(side);
        progress.syncing = false;
        let outcome = match outcome {
            Ok(()) => {
                if progress.generation == generation {
                    progress.synced = progress.synced.max(written);
                }
                Ok(state)
            }
            Err(source) => {
                state.poisoned.get_or_insert_with(|| path.clone());
                Err(JournalError::Sync { path, source })
            }
        };
        let queues = self.queues.get(side);
        if outcome.is_ok() {
            queues.of(odd).notify_all();
            queues.of(!odd).notify_one();
        } else {
            self.wake_all();
        }
        outcome
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A future's place at the committing thread.
#[derive(Debug, Default)]
struct Waiter {
    state: Mutex<WaiterState>,
}

#[derive(Debug, Default)]
struct WaiterState {
    outcome: Option<Result<(), JournalError>>,
    waker: Option<Waker>,
}

impl Waiter {
    fn locked(&self) -> MutexGuard<'_, WaiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, outcome: Result<(), JournalError>) {
        let waker = {
            let mut state = self.locked();
            state.outcome = Some(outcome);
            state.waker.take()
        };
        if let Some(waker) = waker {
            // A host's waker that panics must not take the thread from those behind it.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}

/// What the committing thread is asked for.
#[derive(Debug)]
struct Request {
    end: FrameEnd,
    /// `None` for a ticket that was dropped.
    waiter: Option<Arc<Waiter>>,
}

#[derive(Debug)]
enum Thread {
    /// Nobody asked for it yet.
    Unborn,
    Running {
        requests: Sender<Request>,
        thread: JoinHandle<()>,
    },
    /// The journal was dropped; who still waits syncs by itself.
    Ended,
}

/// The commit of a journal, and the thread that does it for those who cannot block.
#[derive(Debug)]
pub(super) struct Committer {
    pub(super) commit: Arc<Commit>,
    thread: Mutex<Thread>,
}

impl Committer {
    pub(super) fn new(commit: Arc<Commit>) -> Self {
        Self { commit, thread: Mutex::new(Thread::Unborn) }
    }

    pub(super) fn ticket(self: &Arc<Self>, end: FrameEnd, durability: Durability) -> Ticket {
        let settled = match durability {
            Durability::Buffered => true,
            Durability::Synced => false,
        };
        Ticket { committer: Arc::clone(self), end, durability, settled, waiter: None }
    }

    /// A ticket for nothing.
    pub(super) fn done(self: &Arc<Self>) -> Ticket {
        let end = FrameEnd { side: Side::A, generation: 0, offset: 0 };
        Ticket {
            committer: Arc::clone(self),
            end,
            durability: Durability::Buffered,
            settled: true,
            waiter: None,
        }
    }

    /// Hands `request` to the committing thread; gives it back where there is none.
    fn ask(&self, request: Request) -> Result<(), Request> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*thread, Thread::Unborn) {
            let (requests, inbox) = unbounded();
            let commit = Arc::clone(&self.commit);
            let spawned = thread::Builder::new()
                .name("rederive-commit".to_owned())
                .spawn(move || commit_requests(&commit, &inbox));
            if let Ok(handle) = spawned {
                *thread = Thread::Running { requests, thread: handle };
            }
        }
        match &*thread {
            Thread::Running { requests, .. } => requests.send(request).map_err(|error| error.0),
            Thread::Unborn | Thread::Ended => Err(request),
        }
    }

    /// Ends the thread after it has done what it was asked for.
    pub(super) fn end(&self) {
        let last = {
            let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *thread, Thread::Ended)
        };
        if let Thread::Running { requests, thread } = last {
            drop(requests);
            // A waker may drop the journal on the committing thread, which cannot wait for itself.
            if thread.thread().id() != thread::current().id() {
                // The thread has nothing to say beyond what its waiters were told.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Each request that has arrived finds its frames synced, or leads the sync that takes in all of
/// those behind it.
fn commit_requests(commit: &Commit, inbox: &Receiver<Request>) {
    for Request { end, waiter } in inbox {
        let outcome = commit.wait(end);
        if let Some(waiter) = waiter {
            waiter.settle(outcome);
        }
    }
}

/// The promise that an append reaches the durability that was asked for.
///
/// To be waited on by a thread ([`Ticket::wait`]) or awaited on any runtime. Dropped without
/// either, a [`Durability::Synced`] append is still synced soon, by a thread of the journal; only
/// nobody learns whether that failed. With [`Durability::Buffered`] it is resolved from the start.
#[derive(Debug)]
#[must_use = "an append is durable when its ticket says so"]
pub struct Ticket {
    committer: Arc<Committer>,
    end: FrameEnd,
    durability: Durability,
    settled: bool,
    waiter: Option<Arc<Waiter>>,
}

impl Ticket {
    /// The durability that this ticket waits for.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Blocks until the append is as durable as was asked for.
    ///
    /// # Cost
    ///
    /// At most two syncs: one in flight that began too early, and one shared by all who waited for
    /// it. Made by the calling thread where no other one makes it.
    ///
    /// # Errors
    ///
    /// - [`JournalError::Sync`]: this thread's sync failed.
    /// - [`JournalError::Poisoned`]: another one failed before this append was synced.
    pub fn wait(mut self) -> Result<(), JournalError> {
        if self.settled {
            return Ok(());
        }
        self.settled = true;
        self.committer.commit.wait(self.end)
    }
}

impl Future for Ticket {
    type Output = Result<(), JournalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.settled {
            return Poll::Ready(Ok(()));
        }
        let outcome = match &self.waiter {
            Some(waiter) => {
                let mut state = waiter.locked();
                let outcome = state.outcome.take();
                if outcome.is_none() {
                    match &mut state.waker {
                        Some(waker) => waker.clone_from(context.waker()),
                        none => *none = Some(context.waker().clone()),
                    }
                }
                outcome
            }
            None => self.committer.commit.settled(self.end),
        };
        if let Some(outcome) = outcome {
            // A failure stays: polled again, it reads the poison.
            self.settled = outcome.is_ok();
            self.waiter = None;
            return Poll::Ready(outcome);
        }
        if self.waiter.is_none() {
            let waiter = Arc::new(Waiter::default());
            waiter.locked().waker = Some(context.waker().clone());
            let request = Request { end: self.end, waiter: Some(Arc::clone(&waiter)) };
            if self.committer.ask(request).is_err() {
                let outcome = self.committer.commit.wait(self.end);
                self.settled = outcome.is_ok();
                return Poll::Ready(outcome);
            }
            self.waiter = Some(waiter);
        }
        Poll::Pending
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.settled || self.waiter.is_some() || self.committer.commit.settled(self.end).is_some() {
            return;
        }
        if self.committer.ask(Request { end: self.end, waiter: None }).is_err() {
            // No thread to hand it to; whoever dropped the ticket did not ask for the outcome.
            let _ = self.committer.commit.wait(self.end);
        }
    }
}

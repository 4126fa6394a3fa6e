//! Sealing: what a session has in the journal becomes a segment, and the journal's space is free.
//!
//! Owns the sealing thread. A session is sealed when its tail passes a size, when it is let go of,
//! and when nothing was appended for a while; the segments of one round are committed to the index
//! together. Nothing is ever lost by a failed seal: the tail stays in the journal, and the next
//! round tries again.
//!
//! Tests that need the same run twice have the rounds on the threads that ask for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use super::error::StoreError;
use super::session::LiveSession;
use super::{Shared, catalog};
use crate::event::Event;
use crate::fold::Fold;
use crate::ids::{Seq, SessionKey};

/// What happens to a session once it is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    KeepOpen,
    LetGo,
}

type Reply = Sender<Result<(), StoreError>>;

enum Order {
    /// The session has a tail.
    Tell(Arc<LiveSession>),
    /// Some tail passed its size, or the journal its own.
    Wake,
    Seal(Arc<LiveSession>, Then, Option<Reply>),
    /// Seal every session that has a tail.
    All(Reply),
}

/// The sealing thread, from outside.
#[derive(Debug)]
pub(crate) struct Sealer {
    orders: Option<Sender<Order>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The work where no thread does it.
    inline: Option<Mutex<Inline>>,
}

#[derive(Debug)]
struct Inline {
    worker: Worker,
    incoming: Receiver<Order>,
}

impl Sealer {
    pub(crate) fn start(core: Arc<Shared>) -> std::io::Result<Self> {
        let (orders, incoming) = unbounded();
        if core.options.seal_inline {
            let inline = Inline { worker: Worker { core, dirty: BTreeMap::new() }, incoming };
            return Ok(Self {
                orders: Some(orders),
                thread: Mutex::new(None),
                inline: Some(Mutex::new(inline)),
            });
        }
        let thread = std::thread::Builder::new()
            .name("rederive-seal".into())
            .spawn(move || Worker { core, dirty: BTreeMap::new() }.run(&incoming))?;
        Ok(Self { orders: Some(orders), thread: Mutex::new(Some(thread)), inline: None })
    }

    /// A sealer for a store that is open for reading: it is never told anything.
    pub(crate) fn none() -> Self {
        Self { orders: None, thread: Mutex::new(None), inline: None }
    }

    fn send(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // The thread ends only when the last sender does.
            let _ = orders.send(order);
        }
    }

    pub(crate) fn tell(&self, session: &Arc<LiveSession>) {
        self.send(Order::Tell(Arc::clone(session)));
    }

    pub(crate) fn wake(&self) {
        self.send(Order::Wake);
    }

    pub(crate) fn let_go(&self, session: &Arc<LiveSession>) {
        self.send(Order::Seal(Arc::clone(session), Then::LetGo, None));
        self.run_inline();
    }

    pub(crate) fn seal_now(&self, session: &Arc<LiveSession>, then: Then) -> Result<(), StoreError> {
        self.ask(|reply| Order::Seal(Arc::clone(session), then, Some(reply)))
    }

    pub(crate) fn seal_all(&self) -> Result<(), StoreError> {
        self.ask(Order::All)
    }

    fn ask(&self, order: impl FnOnce(Reply) -> Order) -> Result<(), StoreError> {
        let (reply, answer) = bounded(1);
        self.send(order(reply));
        self.run_inline();
        answer.recv().unwrap_or(Err(StoreError::Internal { what: "the sealing thread has ended" }))
    }

    /// Does on this thread what was ordered, where no other one does. Told tails only wait: whoever
    /// tells holds its session.
    fn run_inline(&self) {
        if let Some(inline) = &self.inline {
            let mut inline = inline.lock().unwrap_or_else(PoisonError::into_inner);
            let Inline { worker, incoming } = &mut *inline;
            if let Ok(order) = incoming.try_recv() {
                worker.obey(order, incoming);
            }
        }
    }

    /// Ends the thread, after what it was told before.
    pub(crate) fn stop(&mut self) {
        self.orders = None;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the sealing thread panicked");
        }
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        self.stop();
    }
}

#[derive(Debug)]
struct Worker {
    core: Arc<Shared>,
    /// Sessions with a tail, and how far their logs went when they were looked at last.
    dirty: BTreeMap<SessionKey, (Arc<LiveSession>, Seq)>,
}

/// One session of a round.
struct Job {
    session: Arc<LiveSession>,
    then: Then,
    reply: Option<Reply>,
}

impl Worker {
    fn run(mut self, incoming: &Receiver<Order>) {
        loop {
            let order = if self.dirty.is_empty() {
                incoming.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                incoming.recv_timeout(self.core.options.idle_seal)
            };
            match order {
                Ok(order) => self.obey(order, incoming),
                Err(RecvTimeoutError::Timeout) => {
                    let mut jobs = Vec::new();
                    self.find_quiet(&mut jobs);
                    self.round(jobs, Vec::new());
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// One round for `order` and those that came meanwhile.
    fn obey(&mut self, order: Order, incoming: &Receiver<Order>) {
        let (mut jobs, mut all) = (Vec::new(), Vec::new());
        self.take(order, &mut jobs, &mut all);
        while let Ok(order) = incoming.try_recv() {
            self.take(order, &mut jobs, &mut all);
        }
        self.round(jobs, all);
    }

    fn take(&mut self, order: Order, jobs: &mut Vec<Job>, all: &mut Vec<Reply>) {
        match order {
            Order::Tell(session) => {
                let seen = session.lock().fold.next_seq();
                self.dirty.insert(session.key, (session, seen));
            }
            Order::Wake => {
                let journal_is_full =
                    self.core.journal().live_bytes() >= self.core.options.journal_switch_bytes;
                for (session, _) in self.dirty.values() {
                    if journal_is_full || session.lock().tail_bytes >= self.core.options.segment_bytes {
                        push_once(jobs, Arc::clone(session), Then::KeepOpen, None);
                    }
                }
            }
            Order::Seal(session, then, reply) => push_once(jobs, session, then, reply),
            Order::All(reply) => {
                for (session, _) in self.dirty.values() {
                    push_once(jobs, Arc::clone(session), Then::KeepOpen, None);
                }
                all.push(reply);
            }
        }
    }

    /// Sessions to which nothing was appended since the last look.
    fn find_quiet(&mut self, jobs: &mut Vec<Job>) {
        for (session, seen) in self.dirty.values_mut() {
            let next = session.lock().fold.next_seq();
            if next == *seen {
                push_once(jobs, Arc::clone(session), Then::KeepOpen, None);
            }
            *seen = next;
        }
    }

    fn round(&mut self, jobs: Vec<Job>, all: Vec<Reply>) {
        if jobs.is_empty() && all.is_empty() {
            return;
        }
        let outcome = seal_round(&self.core, &jobs);
        if let Err(error) = &outcome {
            tracing::error!(%error, "sealing failed; the journal keeps what was not sealed");
        }
        for job in &jobs {
            let live = job.session.lock();
            if live.tail.is_empty() || job.then == Then::LetGo {
                self.dirty.remove(&job.session.key);
            }
        }
        for job in jobs {
            if let Some(reply) = job.reply {
                let _ = reply.send(answer(&outcome));
            }
        }
        for reply in all {
            let _ = reply.send(answer(&outcome));
        }
    }
}

fn push_once(jobs: &mut Vec<Job>, session: Arc<LiveSession>, then: Then, reply: Option<Reply>) {
    if let Some(job) = jobs
        .iter_mut()
        .find(|job| Arc::ptr_eq(&job.session, &session) && (job.reply.is_none() || reply.is_none()))
    {
        if then == Then::LetGo {
            job.then = then;
        }
        job.reply = job.reply.take().or(reply);
    } else {
        jobs.push(Job { session, then, reply });
    }
}

/// Errors of a round are shared by all who wait for it.
fn answer(outcome: &Result<(), Arc<StoreError>>) -> Result<(), StoreError> {
    match outcome {
        Ok(()) => Ok(()),
        Err(error) => Err(StoreError::Seal { source: Arc::clone(error) }),
    }
}

/// A tail as it stood at one moment.
pub(crate) struct Tail {
    pub(crate) key: SessionKey,
    pub(crate) events: Vec<Event>,
    pub(crate) end: Fold,
    pub(crate) bytes: u64,
}

/// Seals the sessions of one round: a segment file each, and one commit for all.
fn seal_round(core: &Shared, jobs: &[Job]) -> Result<(), Arc<StoreError>> {
    let mut seals = Vec::with_capacity(jobs.len());
    for job in jobs {
        let tail = {
            let live = job.session.lock();
            Tail {
                key: job.session.key,
                events: live.tail.clone(),
                end: live.fold.clone(),
                bytes: live.tail_bytes,
            }
        };
        let sealed = catalog::write_tail(core, &job.session, tail).map_err(Arc::new)?;
        seals.push((sealed, job.then));
    }
    catalog::commit_round(core, &seals).map_err(Arc::new)?;
    for (job, (sealed, then)) in jobs.iter().zip(&seals) {
        let mut live = job.session.lock();
        let count = usize::try_from(sealed.sealed_to().since(live.sealed_to)).unwrap_or(usize::MAX);
        let count = count.min(live.tail.len());
        live.tail.drain(..count);
        live.tail_bytes = live.tail_bytes.saturating_sub(sealed.tail_bytes());
        live.sealed_to = sealed.sealed_to();
        live.told = !live.tail.is_empty();
        drop(live);
        core.journal().release(job.session.key.value(), sealed.sealed_to().value());
        if *then == Then::LetGo {
            core.forget(job.session.key);
        }
    }
    catalog::remove_doomed(core);
    Ok(())
}

/// Seals a session that was recovered and that nobody has open.
pub(crate) fn seal_recovered(core: &Shared, session: &LiveSession) -> Result<(), StoreError> {
    let (events, end, bytes) = {
        let live = session.lock();
        (live.tail.clone(), live.fold.clone(), live.tail_bytes)
    };
    let sealed = catalog::write_tail(core, session, Tail { key: session.key, events, end, bytes })?;
    catalog::commit_round(core, &[(sealed, Then::KeepOpen)])?;
    catalog::remove_doomed(core);
    Ok(())
}

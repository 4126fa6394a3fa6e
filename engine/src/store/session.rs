//! A session that is open for writing.
//!
//! Owns the live fold and the unsealed tail of one log. Every batch is admitted, written to the
//! journal and taken by the fold, or nothing happened.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::error::{AppendError, StoreError};
use super::payload;
use super::reader::{Events, Reader};
use super::{Shared, seal};
use crate::admission::{Door, Origin, Refusal};
use crate::event::line::{Form, HeaderLine};
use crate::event::{Draft, Event};
use crate::fold::{BatchUndo, Fold};
use crate::ids::{Seq, SessionId, SessionKey};
use crate::journal::{Durability, FrameWrite, Ticket};
use crate::types::TypeRegistry;

/// One session's log, open for writing. A session has one writer at a time, over all processes.
///
/// Dropping it seals the log and lets go of it in the background; [`Session::close`] does so at once
/// and says what went wrong.
///
/// ```
/// use rederive_engine::{Draft, Durability, NewSession, Store};
///
/// # let folder = tempfile::tempdir()?;
/// let store = Store::create(folder.path().join("store"))?;
/// let mut session = store.create_session(NewSession::new("chat-1"))?;
/// let said = r#"{"id":"u1","role":"user","content":[{"type":"text","text":"Hello"}]}"#;
/// let ticket = session.append(
///     vec![
///         Draft::new("turn/start", r#"{"turn":1}"#),
///         Draft::append("user/message", said),
///     ],
///     Durability::Synced,
/// )?;
/// ticket.wait()?; // or `.await` it
/// assert_eq!(session.fold().surface().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Session {
    pub(super) store: Arc<super::StoreInner>,
    pub(super) live: Arc<LiveSession>,
    pub(super) closed: bool,
}

/// What a session's handle and the sealing thread share.
#[derive(Debug)]
pub(crate) struct LiveSession {
    pub(crate) key: SessionKey,
    pub(crate) header_line: Arc<HeaderLine>,
    pub(crate) types: TypeRegistry,
    pub(crate) state: Mutex<Live>,
}

/// The state of a live session.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) fold: Fold,
    /// Events from `sealed_to` on, in order.
    pub(crate) tail: Vec<Event>,
    pub(crate) tail_bytes: u64,
    pub(crate) sealed_to: Seq,
    /// Whether the sealing thread was told of this tail.
    pub(crate) told: bool,
}

impl LiveSession {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Live> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn id(&self) -> &SessionId {
        self.header_line.id()
    }
}

/// How a batch's events come.
enum Incoming<'a> {
    /// Drafts, and what makes one more from the fold behind them.
    Drafts(&'a [Draft], Option<Last<'a>>),
    Lines(&'a [Bytes], Form),
}

/// Makes a batch's last event from the fold behind the others; `None` gives the batch up.
type Last<'a> = &'a mut dyn FnMut(&Fold) -> Option<Draft>;

impl Session {
    /// The session's name.
    pub fn id(&self) -> &SessionId {
        self.live.id()
    }

    /// The first line of the session's log.
    pub fn header_line(&self) -> &HeaderLine {
        &self.live.header_line
    }

    /// The name of the session at the root of this one's tree of forks; see [`Store::tree_root`](crate::Store::tree_root).
    ///
    /// # Errors
    ///
    /// [`StoreError::Index`].
    pub fn tree_root(&self) -> Result<String, StoreError> {
        let store = super::Store { inner: Arc::clone(&self.store) };
        store.tree_root(self.header_line())
    }

    /// What the log adds up to now. A snapshot: O(1), and unchanged by what is appended later.
    pub fn fold(&self) -> Fold {
        self.live.lock().fold.clone()
    }

    /// The time by the store's clock, in milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        (self.store.core.options.clock)()
    }

    /// Admits `batch` and writes it to the journal as one frame.
    ///
    /// Admitted or refused as a whole. Readers of this process see it on return; the ticket
    /// resolves when it has the durability that was asked for. An empty batch does nothing.
    ///
    /// # Cost
    ///
    /// One pass over each event's bytes, one copy, one write; with [`Durability::Synced`] one sync,
    /// shared with every batch that arrives meanwhile. Independent of the length of the log.
    ///
    /// # Errors
    ///
    /// - [`AppendError::Refused`]: a rule is broken; log, surface and header are as before.
    /// - [`AppendError::Journal`]: the frame could not be written; the session is as before.
    pub fn append(&mut self, batch: Vec<Draft>, durability: Durability) -> Result<Ticket, AppendError> {
        let written = self.write(Incoming::Drafts(&batch, None), Origin::Host, durability)?;
        Ok(self.written(written))
    }

    /// As [`Session::append`], and admits the types that only the store and the step protocol write.
    /// For the step protocol; a host that calls it can write logs that the protocol would not.
    #[doc(hidden)]
    pub fn append_reserved(
        &mut self,
        batch: Vec<Draft>,
        durability: Durability,
    ) -> Result<Ticket, AppendError> {
        let written = self.write(Incoming::Drafts(&batch, None), Origin::Store, durability)?;
        Ok(self.written(written))
    }

    /// As [`Session::append_reserved`], with one more event that `last` makes from what the log adds
    /// up to behind `batch`. All is one frame; where `last` fails, nothing happened.
    #[doc(hidden)]
    pub fn append_reserved_then<E: From<AppendError>>(
        &mut self,
        batch: &[Draft],
        last: impl FnOnce(&Fold) -> Result<Draft, E>,
        durability: Durability,
    ) -> Result<Ticket, E> {
        let (mut last, mut failed) = (Some(last), None);
        let mut make = |fold: &Fold| match last.take()?(fold) {
            Ok(draft) => Some(draft),
            Err(error) => {
                failed = Some(error);
                None
            }
        };
        let written = self.write(Incoming::Drafts(batch, Some(&mut make)), Origin::Store, durability)?;
        failed.map_or_else(|| Ok(self.written(written)), Err)
    }

    /// Admits events as lines of the log format and writes them as one frame. Seq and time may be
    /// missing from a line and are given by the store then.
    ///
    /// Cost and errors as [`Session::append`].
    pub fn append_lines(&mut self, lines: &[Bytes], durability: Durability) -> Result<Ticket, AppendError> {
        let written = self.write(Incoming::Lines(lines, Form::Draft), Origin::Host, durability)?;
        Ok(self.written(written))
    }

    /// The ticket of a batch that may have been given up.
    fn written(&self, ticket: Option<Ticket>) -> Ticket {
        ticket.unwrap_or_else(|| self.store.core.journal().done())
    }

    /// Writes a batch; `None` where whoever makes its last event gave it up, and nothing happened.
    fn write(
        &mut self,
        incoming: Incoming<'_>,
        origin: Origin,
        durability: Durability,
    ) -> Result<Option<Ticket>, AppendError> {
        let core = &self.store.core;
        let journal = core.journal();
        let mut live = self.live.lock();
        let live = &mut *live;
        let first = live.fold.next_seq();
        let mut undo = live.fold.begin();
        let admitted = admit_all(core, &self.live, &mut live.fold, &mut undo, incoming, origin);
        let Admitted { events, frame } = match admitted {
            Ok(Some(admitted)) => admitted,
            Ok(None) => {
                live.fold.undo(undo);
                return Ok(None);
            }
            Err(refusal) => {
                live.fold.undo(undo);
                return Err(refusal.in_session(self.live.id()).into());
            }
        };
        if events.is_empty() {
            return Ok(Some(journal.done()));
        }
        let write = FrameWrite {
            session_key: self.live.key.value(),
            first_seq: first.value(),
            events: events.len() as u32,
            payload: &frame,
        };
        let end = match journal.append(write) {
            Ok(end) => end,
            Err(error) => {
                live.fold.undo(undo);
                return Err(error.into());
            }
        };
        live.tail_bytes += frame.len() as u64;
        live.tail.extend(events);
        if !live.told {
            live.told = true;
            self.store.sealer.tell(&self.live);
        }
        if live.tail_bytes >= core.options.segment_bytes {
            self.store.sealer.wake();
        }
        Ok(Some(journal.ticket(end, durability)))
    }

    /// Blocks until every batch of this process that was appended before is synced.
    ///
    /// # Errors
    ///
    /// [`AppendError::Journal`] where a sync failed, now or earlier.
    pub fn flush(&self) -> Result<(), AppendError> {
        Ok(self.store.core.journal().flush()?)
    }

    /// The events of `range`, cut to the log's length. Reads the segments that hold them.
    ///
    /// # Errors
    ///
    /// A [`StoreError`] where a segment cannot be read.
    pub fn events(&self, range: Range<Seq>) -> Result<Events, StoreError> {
        self.reader().events(range)
    }

    /// A snapshot of the session for reading.
    pub fn reader(&self) -> Reader {
        Reader::of_live(&self.store, &self.live)
    }

    /// Seals the tail now, and waits for it.
    ///
    /// # Errors
    ///
    /// A [`StoreError`] where a segment or the index could not be written; nothing is lost, and the
    /// tail stays in the journal.
    pub fn seal(&self) -> Result<(), StoreError> {
        self.store.sealer.seal_now(&self.live, seal::Then::KeepOpen)
    }

    /// Seals the log and lets go of it.
    ///
    /// # Errors
    ///
    /// A [`StoreError`] where a segment or the index could not be written; nothing is lost: the log
    /// stays in the journal and is sealed when the store is opened next.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.closed = true;
        self.store.sealer.seal_now(&self.live, seal::Then::LetGo)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.closed {
            self.store.sealer.let_go(&self.live);
        }
    }
}

/// A batch that came through the door, and its frame.
struct Admitted {
    events: Vec<Event>,
    frame: Vec<u8>,
}

/// Lets a batch through the door, event by event, and encodes its frame; `None` where whoever makes its
/// last event gave it up.
fn admit_all(
    core: &Shared,
    session: &LiveSession,
    fold: &mut Fold,
    undo: &mut BatchUndo,
    incoming: Incoming<'_>,
    origin: Origin,
) -> Result<Option<Admitted>, Refusal> {
    let (count, bytes, form) = match &incoming {
        Incoming::Drafts(drafts, last) => {
            let bytes = drafts.iter().map(|draft| draft.data.len() as u64).sum::<u64>();
            (drafts.len() + usize::from(last.is_some()), bytes, Form::Draft)
        }
        Incoming::Lines(lines, form) => {
            (lines.len(), lines.iter().map(|line| line.len() as u64).sum(), *form)
        }
    };
    if bytes > core.options.batch_bytes_max && count > 1 {
        let why = format!("the batch has {bytes} bytes, over the limit of {}", core.options.batch_bytes_max);
        return Err(Refusal::new(crate::Rule::TooLarge, fold.next_seq(), "", &why));
    }
    let door = Door {
        types: &session.types,
        origin,
        form,
        now_ms: (core.options.clock)(),
        event_bytes_max: core.options.event_bytes_max,
    };
    let mut frame = payload::Builder::new(count, bytes as usize + count * 160);
    let mut events = Vec::with_capacity(count);
    let mut push = |event: Event| {
        frame.push(&event);
        events.push(event);
    };
    match incoming {
        Incoming::Drafts(drafts, last) => {
            for draft in drafts {
                push(door.enter_draft(draft, fold, undo)?);
            }
            if let Some(last) = last {
                let Some(draft) = last(fold) else { return Ok(None) };
                push(door.enter_draft(&draft, fold, undo)?);
            }
        }
        Incoming::Lines(lines, _) => {
            for line in lines {
                push(door.enter_line(line, fold, undo)?);
            }
        }
    }
    Ok(Some(Admitted { events, frame: frame.finish() }))
}

impl LiveSession {
    pub(super) fn new(key: SessionKey, header_line: HeaderLine, types: TypeRegistry, fold: Fold) -> Self {
        let sealed_to = fold.next_seq();
        let live = Live { fold, tail: Vec::new(), tail_bytes: 0, sealed_to, told: false };
        Self { key, header_line: Arc::new(header_line), types, state: Mutex::new(live) }
    }
}

impl Session {
    /// Ends what the last process left open: closers of an interrupted turn, then the marker.
    pub(super) fn resume(&mut self) -> Result<(), StoreError> {
        let fold = self.fold();
        let mut batch = super::closers::closers(&fold);
        if fold.next_seq() != Seq::FIRST && !(batch.is_empty() && fold.ends_with_marker()) {
            batch.push(Draft::new("session/end-seed", "{}").at(self.now_ms().max(fold.last_time_ms())));
        }
        match self.append_reserved(batch, Durability::Buffered) {
            Ok(_ticket) => Ok(()),
            Err(AppendError::Journal(error)) => Err(error.into()),
            Err(AppendError::Refused(refusal)) => {
                Err(StoreError::Inconsistent { session: self.id().clone(), refusal })
            }
        }
    }
}

//! A session that is open for reading: a snapshot of its log.
//!
//! Owns nothing that is written. Reads sealed segments and, behind them, what the session's writer
//! has in its journal; takes no lock that a writer could wait for.

use std::ops::Range;
use std::sync::Arc;

use super::error::StoreError;
use super::follow::Follower;
use super::load::take_all;
use super::session::LiveSession;
use super::{Shared, StoreInner};
use crate::admission::{Door, Origin};
use crate::event::line::Form;
use crate::event::{Event, HeaderLine, Kind, LogOnly};
use crate::fold::Fold;
use crate::ids::{Seq, SessionId, SessionKey};
use crate::segment::{StepKind, StepMark};
use crate::types::TypeRegistry;

/// A snapshot of one session's log. It never changes; take another one to see what came since.
///
/// Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Reader {
    core: Arc<Shared>,
    key: SessionKey,
    header_line: Arc<HeaderLine>,
    types: TypeRegistry,
    fold: Fold,
    /// Events from `sealed_to` on, in order.
    tail: Arc<Vec<Event>>,
    sealed_to: Seq,
    /// The process that writes the session, where one does.
    owner: Option<u32>,
}

impl Reader {
    pub(super) fn of_live(store: &Arc<StoreInner>, session: &Arc<LiveSession>) -> Self {
        let live = session.lock();
        Self {
            core: Arc::clone(&store.core),
            key: session.key,
            header_line: Arc::clone(&session.header_line),
            types: session.types.clone(),
            fold: live.fold.clone(),
            tail: Arc::new(live.tail.clone()),
            sealed_to: live.sealed_to,
            owner: Some(std::process::id()),
        }
    }

    pub(super) fn new(core: Arc<Shared>, parts: Parts) -> Self {
        let Parts { key, header_line, types, fold, tail, sealed_to, owner } = parts;
        Self {
            core,
            key,
            header_line: Arc::new(header_line),
            types,
            fold,
            tail: Arc::new(tail),
            sealed_to,
            owner,
        }
    }

    /// Follows the log from the snapshot's end on; see [`Follower`].
    pub fn follow(&self) -> Follower {
        self.follow_from(self.fold.next_seq())
    }

    /// Follows the log from the event `from` on, which may stand before the snapshot's end.
    pub fn follow_from(&self, from: Seq) -> Follower {
        let backlog = Events::new(self.clone(), from..self.fold.next_seq());
        Follower::new(Arc::clone(&self.core), self.key, self.types.clone(), self.fold.clone(), backlog)
    }

    /// The session's name.
    pub fn id(&self) -> &SessionId {
        self.header_line.id()
    }

    /// The first line of the log.
    pub fn header_line(&self) -> &HeaderLine {
        &self.header_line
    }

    /// The types that are known in this log beside the format's own.
    pub fn types(&self) -> &TypeRegistry {
        &self.types
    }

    /// What the log adds up to, as it stands.
    pub fn fold(&self) -> &Fold {
        &self.fold
    }

    /// The process that had the session open for writing when the snapshot was taken.
    pub fn owner(&self) -> Option<u32> {
        self.owner
    }

    /// The snapshot with the closers that the next writer will append where a crash left a turn
    /// open; they are made in memory alone. The same snapshot where no turn is open, or where the
    /// turn's writer lives.
    #[must_use]
    pub fn with_closers(&self) -> Self {
        let mut closed = self.clone();
        if self.owner.is_some() {
            return closed;
        }
        let door = Door {
            types: &self.types,
            origin: Origin::Store,
            form: Form::Draft,
            now_ms: self.fold.last_time_ms(),
            event_bytes_max: u64::MAX,
        };
        let mut tail = (*self.tail).clone();
        for draft in super::closers::closers(&self.fold) {
            let mut undo = closed.fold.begin();
            if let Ok(event) = door.enter_draft(&draft, &mut closed.fold, &mut undo) {
                tail.push(event);
            }
        }
        closed.tail = Arc::new(tail);
        closed
    }

    /// The events that were not sealed when the snapshot was taken.
    pub(super) fn tail(&self) -> &[Event] {
        &self.tail
    }

    /// The events of `range`, cut to the log's length, segment by segment as they are asked for.
    ///
    /// # Errors
    ///
    /// None here; the iterator gives a [`StoreError`] where a segment cannot be read, and ends.
    pub fn events(&self, range: Range<Seq>) -> Result<Events, StoreError> {
        Ok(Events::new(self.clone(), range))
    }

    /// The event `seq`; `None` behind the log's end.
    ///
    /// # Errors
    ///
    /// A [`StoreError`] where its segment cannot be read.
    pub fn event(&self, seq: Seq) -> Result<Option<Event>, StoreError> {
        self.events(seq..seq.next())?.next().transpose()
    }

    /// The events from which past requests are found, in order. Reads one small section of each
    /// segment, and no event.
    ///
    /// # Errors
    ///
    /// A [`StoreError`] where a segment cannot be read.
    pub fn steps(&self) -> Result<Vec<StepMark>, StoreError> {
        let mut steps = Vec::new();
        let mut next = Seq::FIRST;
        while next < self.sealed_to {
            let Some((stretch, segment)) = self.core.segment_with(self.key, next)? else {
                return Err(StoreError::Gap {
                    from: next,
                    to: self.sealed_to,
                    path: self.core.segments.clone(),
                });
            };
            let end = stretch.end.min(self.sealed_to);
            steps.extend(segment.steps()?.into_iter().filter(|step| (next..end).contains(&step.seq)));
            next = end;
        }
        for event in self.tail.iter() {
            let kind = match event.kind() {
                Kind::AssistantMessage => StepKind::Message,
                Kind::LogOnly(LogOnly::AssistantAttempt) => StepKind::Attempt,
                Kind::LogOnly(LogOnly::RequestHeader) => StepKind::Header,
                Kind::LogOnly(LogOnly::RequestDispatch) => StepKind::Dispatch,
                _ => continue,
            };
            steps.push(StepMark { seq: event.seq(), kind });
        }
        Ok(steps)
    }

    /// The fold as it was right before the event `seq`, which may be the log's end.
    ///
    /// # Cost
    ///
    /// What the model saw then, and the events of at most one segment.
    ///
    /// # Errors
    ///
    /// A [`StoreError`] where a segment cannot be read, or the log has no such event.
    pub fn fold_at(&self, seq: Seq) -> Result<Fold, StoreError> {
        if seq == self.fold.next_seq() {
            return Ok(self.fold.clone());
        }
        if seq > self.fold.next_seq() {
            return Err(StoreError::NoEvent {
                session: self.id().clone(),
                seq,
                events: self.fold.next_seq().value(),
            });
        }
        let mut fold = self.core.load(self.key, seq.min(self.sealed_to))?;
        let missing = usize::try_from(seq.since(fold.next_seq())).unwrap_or(usize::MAX);
        take_all(&mut fold, self.tail.iter().take(missing).cloned());
        Ok(fold)
    }
}

/// What a reader is made from.
pub(super) struct Parts {
    pub(super) key: SessionKey,
    pub(super) header_line: HeaderLine,
    pub(super) types: TypeRegistry,
    pub(super) fold: Fold,
    pub(super) tail: Vec<Event>,
    pub(super) sealed_to: Seq,
    pub(super) owner: Option<u32>,
}

/// The events of a range, read segment by segment.
#[derive(Debug)]
pub struct Events {
    reader: Reader,
    next: Seq,
    end: Seq,
    buffer: std::vec::IntoIter<Event>,
}

impl Events {
    fn new(reader: Reader, range: Range<Seq>) -> Self {
        let end = range.end.min(reader.fold.next_seq());
        Self { next: range.start.min(end), end, reader, buffer: Vec::new().into_iter() }
    }

    fn refill(&mut self) -> Result<(), StoreError> {
        let reader = &self.reader;
        let events = if self.next < reader.sealed_to {
            reader.core.sealed_events(reader.key, self.next..self.end.min(reader.sealed_to))?
        } else {
            let from = usize::try_from(self.next.since(reader.sealed_to)).unwrap_or(usize::MAX);
            let to = usize::try_from(self.end.since(reader.sealed_to)).unwrap_or(usize::MAX);
            reader.tail.get(from..to.min(reader.tail.len())).unwrap_or_default().to_vec()
        };
        if events.first().map(Event::seq) != Some(self.next) {
            return Err(StoreError::Gap {
                from: self.next,
                to: self.end,
                path: reader.core.segments.clone(),
            });
        }
        self.buffer = events.into_iter();
        Ok(())
    }
}

impl Iterator for Events {
    type Item = Result<Event, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        if self.buffer.len() == 0
            && let Err(error) = self.refill()
        {
            self.end = self.next;
            return Some(Err(error));
        }
        let event = self.buffer.next()?;
        self.next = event.seq().next();
        Some(Ok(event))
    }
}

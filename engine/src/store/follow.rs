//! Following a session that another process, or another handle of this one, writes.
//!
//! Owns where a reader is between what is sealed and what the writer has in its journal. Goes on over
//! seals, over journals that are reused, and over a change of the writer; changes no file, and keeps
//! no writer waiting.

use std::sync::Arc;
use std::time::Duration;

use super::error::StoreError;
use super::load::take_all;
use super::reader::Events;
use super::recover::{READ_ATTEMPTS, admit_lines};
use super::{Shared, catalog, payload};
use crate::event::Event;
use crate::fold::Fold;
use crate::ids::{Seq, SessionId, SessionKey};
use crate::journal::JournalFollower;
use crate::segment::SegmentError;
use crate::types::TypeRegistry;

/// Events that are handed out at once.
const EVENTS_AT_ONCE: usize = 1024;
/// The first and the longest pause between two looks.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Gives the events of a session in order, each once, as they are appended.
///
/// An event is given as soon as its frame is written: it survives the end of its writer, and a power
/// cut once its writer has synced it.
#[derive(Debug)]
pub struct Follower {
    core: Arc<Shared>,
    key: SessionKey,
    types: TypeRegistry,
    /// Of all events that were given.
    fold: Fold,
    /// What the snapshot held that the follower began from.
    backlog: Option<Events>,
    /// The journal that is read, and its slot.
    journal: Option<(u32, JournalFollower)>,
}

impl Follower {
    pub(super) fn new(
        core: Arc<Shared>,
        key: SessionKey,
        types: TypeRegistry,
        fold: Fold,
        backlog: Events,
    ) -> Self {
        Self { core, key, types, fold, backlog: Some(backlog), journal: None }
    }

    /// What the log adds up to behind the last event that was read.
    pub fn fold(&self) -> &Fold {
        &self.fold
    }

    /// The events that came since the last call; empty where none did. At most some thousand are
    /// given at once, or those of one segment.
    ///
    /// # Cost
    ///
    /// A read of the index, the headers of the writer's journal, and what is new in it, also of other
    /// sessions.
    ///
    /// # Errors
    ///
    /// - [`StoreError::NoSession`]: the session was deleted.
    /// - [`StoreError::Segment`], [`StoreError::Journal`], [`StoreError::Index`],
    ///   [`StoreError::Inconsistent`]: what is stored cannot be read. A later call tries again.
    pub fn poll(&mut self) -> Result<Vec<Event>, StoreError> {
        if let Some(backlog) = &mut self.backlog {
            let events: Vec<Event> = backlog.take(EVENTS_AT_ONCE).collect::<Result<_, _>>()?;
            if !events.is_empty() {
                return Ok(events);
            }
            self.backlog = None;
        }
        self.core.index.refresh()?;
        for _ in 0..READ_ATTEMPTS {
            if let Some(events) = self.look()? {
                return Ok(events);
            }
        }
        Ok(Vec::new())
    }

    /// As [`Follower::poll`], and waits up to `longest` for an event.
    pub fn wait(&mut self, longest: Duration) -> Result<Vec<Event>, StoreError> {
        let (mut left, mut pause) = (longest, PAUSE_MIN);
        loop {
            let events = self.poll()?;
            if !events.is_empty() || left.is_zero() {
                return Ok(events);
            }
            let now = pause.min(left);
            std::thread::sleep(now);
            left -= now;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// One look; `None` where the session was sealed or handed over under it.
    fn look(&mut self) -> Result<Option<Vec<Event>>, StoreError> {
        let next = self.fold.next_seq();
        if let Some(live) = self.core.live(self.key) {
            let live = live.lock();
            if live.sealed_to <= next {
                let given = usize::try_from(next.since(live.sealed_to)).unwrap_or(usize::MAX);
                let events: Vec<Event> = live.tail.iter().skip(given).cloned().collect();
                drop(live);
                take_all(&mut self.fold, events.iter().cloned());
                return Ok(Some(events));
            }
        }
        let Some(row) = catalog::row(&self.core, self.key)? else {
            return Err(StoreError::NoSession { session: format!("with the key {}", self.key) });
        };
        if next < row.sealed_to {
            let events = match self.core.sealed_events(self.key, next..row.sealed_to) {
                Ok(events) => events,
                // Merged with another one since the row was read.
                Err(StoreError::Segment(SegmentError::Missing { .. })) => return Ok(None),
                Err(error) => return Err(error),
            };
            if events.first().map(Event::seq) != Some(next) {
                return Err(StoreError::Gap {
                    from: next,
                    to: row.sealed_to,
                    path: self.core.segments.clone(),
                });
            }
            take_all(&mut self.fold, events.iter().cloned());
            return Ok(Some(events));
        }
        let Some(owner) = row.owner else {
            self.journal = None;
            return Ok(Some(Vec::new()));
        };
        if self.journal.as_ref().is_none_or(|(slot, _)| *slot != owner.slot) {
            self.journal = Some((owner.slot, self.open_journal(owner.slot, next)));
        }
        let Some((_, journal)) = &mut self.journal else { return Ok(None) };
        let id = SessionId::new(&row.id).ok_or(StoreError::Internal { what: "a row without a name" })?;
        let mut events = Vec::new();
        for frame in journal.poll()? {
            if self.fold.next_seq().value() < frame.first_seq {
                // What stands between left the journal before it was read: it is sealed.
                self.journal = None;
                return Ok((!events.is_empty()).then_some(events));
            }
            let Some(lines) = payload::decode(&frame.payload) else {
                self.journal = None;
                break;
            };
            events.extend(admit_lines(&mut self.fold, &self.types, frame.first_seq, &lines, &id)?);
        }
        Ok(Some(events))
    }

    fn open_journal(&self, slot: u32, from: Seq) -> JournalFollower {
        let core = &self.core;
        JournalFollower::open(Arc::clone(&core.disk), &core.journals, slot, self.key.value(), from.value())
    }
}

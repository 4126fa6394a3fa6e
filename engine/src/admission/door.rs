//! One door: reading, admitting and folding an event, in this order, for whoever brings it.
//!
//! Owns the order of the checks and the size limits. A live append, an import, a recovered journal
//! and a fold from the start all pass here.

use bytes::Bytes;

use super::{Origin, Refusal, Rule, admit};
use crate::event::line::{self, Form};
use crate::event::{Draft, Event};
use crate::fold::{BatchUndo, Fold};
use crate::ids::Seq;
use crate::types::TypeRegistry;

/// What the door holds against every event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Door<'a> {
    pub(crate) types: &'a TypeRegistry,
    pub(crate) origin: Origin,
    pub(crate) form: Form,
    /// The time of events that bring none.
    pub(crate) now_ms: u64,
    pub(crate) event_bytes_max: u64,
}

impl Door<'_> {
    /// Lets the event of `line` in: on `Ok`, `fold` has taken it.
    pub(crate) fn enter_line(
        &self,
        line: &Bytes,
        fold: &mut Fold,
        undo: &mut BatchUndo,
    ) -> Result<Event, Refusal> {
        self.check_size(line.len() as u64, fold.next_seq())?;
        let event = line::read(line, fold.next_seq(), self.form, self.now_ms)?;
        admit(&event, fold, self.types, self.origin)?;
        let line_bytes = line::length(&event);
        fold.take(&event, line_bytes, undo);
        Ok(event)
    }

    /// Lets `draft` in: on `Ok`, `fold` has taken it.
    pub(crate) fn enter_draft(
        &self,
        draft: &Draft,
        fold: &mut Fold,
        undo: &mut BatchUndo,
    ) -> Result<Event, Refusal> {
        self.check_size(draft.data.len() as u64, fold.next_seq())?;
        let event = line::from_draft(draft, fold.next_seq(), self.now_ms)?;
        let line_bytes = line::length(&event);
        self.check_size(line_bytes, fold.next_seq())?;
        admit(&event, fold, self.types, self.origin)?;
        fold.take(&event, line_bytes, undo);
        Ok(event)
    }

    pub(crate) fn check_size(&self, bytes: u64, seq: Seq) -> Result<(), Refusal> {
        if bytes <= self.event_bytes_max {
            return Ok(());
        }
        let why = format!("{bytes} bytes, over the limit of {}", self.event_bytes_max);
        Err(Refusal::new(Rule::TooLarge, seq, "", &why))
    }
}

/// A fold of lines from a log's start, with no store and no cache behind it.
///
/// What `reconstruct` and `verify` stand on, and what checks a log without importing it.
///
/// ```
/// use rederive_engine::{Replay, Rule, TypeRegistry};
///
/// let mut replay = Replay::new(TypeRegistry::new());
/// replay.push_line(r#"{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}"#)?;
/// let refusal = replay.push_line(r#"{"type":"turn/end","seq":7,"time":2,"data":{}}"#).unwrap_err();
/// assert_eq!(refusal.rule(), Rule::Seq);
/// assert_eq!(replay.fold().next_seq().value(), 1);
/// # Ok::<(), rederive_engine::Refusal>(())
/// ```
#[derive(Clone, Debug)]
pub struct Replay {
    fold: Fold,
    types: TypeRegistry,
    event_bytes_max: u64,
}

impl Replay {
    /// An empty log, in which the types of `types` are known beside the format's own.
    pub fn new(types: TypeRegistry) -> Self {
        Self { fold: Fold::default(), types, event_bytes_max: crate::EVENT_BYTES_MAX_DEFAULT }
    }

    /// Sets the largest admitted event, in bytes of its line.
    #[must_use]
    pub fn with_event_bytes_max(mut self, bytes: u64) -> Self {
        self.event_bytes_max = bytes;
        self
    }

    /// What the lines so far add up to.
    pub fn fold(&self) -> &Fold {
        &self.fold
    }

    /// Admits the event of `line`, without its line feed, and folds it.
    ///
    /// # Errors
    ///
    /// A [`Refusal`]; the fold is as before.
    pub fn push_line(&mut self, line: &str) -> Result<Event, Refusal> {
        self.push_bytes(&Bytes::copy_from_slice(line.as_bytes()))
    }

    /// As [`Replay::push_line`], for bytes that need not be UTF-8 and are not copied.
    ///
    /// # Errors
    ///
    /// A [`Refusal`]; the fold is as before.
    pub fn push_bytes(&mut self, line: &Bytes) -> Result<Event, Refusal> {
        let door = Door {
            types: &self.types,
            origin: Origin::Store,
            form: Form::Log,
            now_ms: 0,
            event_bytes_max: self.event_bytes_max,
        };
        let mut undo = self.fold.begin();
        door.enter_line(line, &mut self.fold, &mut undo)
    }

    /// Folds `event`, which a store admitted earlier and gave back.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] where the event does not fit what came before; the fold is as before.
    pub fn push_event(&mut self, event: &Event) -> Result<(), Refusal> {
        if event.seq != self.fold.next_seq() {
            let why = format!("{} where {} is due", event.seq, self.fold.next_seq());
            return Err(Refusal::new(Rule::Seq, self.fold.next_seq(), "seq", &why));
        }
        admit(event, &self.fold, &self.types, Origin::Store)?;
        let mut undo = self.fold.begin();
        self.fold.take(event, line::length(event), &mut undo);
        Ok(())
    }
}

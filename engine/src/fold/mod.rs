//! The fold: everything that a log's events add up to.
//!
//! Owns the surface, the header in force, the open turn, what the step protocol goes on from, the
//! counters and the title of one log, and the one way to advance them. Knows no disk. A batch is
//! taken whole or not at all: what it changed can be undone until it is settled.

mod step;
mod surface;
mod turn;

use std::sync::Arc;

pub use step::{LastRequest, StepState, Target, message_id};
pub use surface::{Node, Surface};
pub use turn::{PendingCall, TurnState};

use crate::event::json::{first_item, member};
use crate::event::value::{ValueDigest, digest_without};
use crate::event::{Event, Kind, LogOnly, NodeKind, SurfaceOp};
use crate::ids::{Generation, Place, Seq};

/// The request header in force: call config, tools and adapter defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub(crate) seq: Seq,
    pub(crate) text: Arc<str>,
}

impl Header {
    /// The `request/header` event.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The verbatim text of its `data.header`.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// What a log's events add up to, without the texts of its nodes: what a checkpoint holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct Checkpoint {
    /// The seq of the next event.
    pub(crate) next: Seq,
    pub(crate) generation: Generation,
    /// The surface, in order.
    pub(crate) nodes: Vec<NodeMark>,
    /// The `request/header` in force.
    pub(crate) header: Option<Seq>,
    pub(crate) counters: Counters,
    pub(crate) turn: TurnState,
    pub(crate) title: Option<String>,
    pub(crate) steps: Arc<StepState>,
}

/// One node of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct NodeMark {
    pub(crate) place: Place,
    pub(crate) seq: Seq,
    pub(crate) kind: NodeKind,
    pub(crate) rest: Option<ValueDigest>,
}

/// Sums over a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Counters {
    /// Bytes of all lines, a line feed each included, without the header line.
    pub(crate) line_bytes: u64,
    /// Settled model attempts.
    pub(crate) settlements: u64,
    /// Time of the last event, in ms since the epoch.
    pub(crate) last_time_ms: u64,
    /// Time of the last event that is activity: anything but a marker or a closer of the store.
    pub(crate) last_activity_ms: u64,
    /// The seq of the last `session/end-seed`, plus one; zero where there is none.
    pub(crate) seeded_to: u64,
}

/// Everything that a log's events add up to.
#[derive(Clone, Debug, Default)]
pub struct Fold {
    next: Seq,
    surface: Surface,
    header: Option<Header>,
    counters: Counters,
    turn: TurnState,
    title: Option<Arc<str>>,
    steps: Arc<StepState>,
}

/// How to take back a batch.
#[derive(Debug)]
pub(crate) struct BatchUndo {
    next: Seq,
    header: Option<Header>,
    counters: Counters,
    turn: TurnState,
    title: Option<Arc<str>>,
    steps: Arc<StepState>,
    surface: Vec<surface::Undo>,
}

impl Fold {
    /// The seq of the next event, which is the number of events so far.
    pub fn next_seq(&self) -> Seq {
        self.next
    }

    /// What the model sees now.
    pub fn surface(&self) -> &Surface {
        &self.surface
    }

    /// The header in force.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// What is open.
    pub fn turn(&self) -> &TurnState {
        &self.turn
    }

    /// What the step protocol goes on from: the inbox, the route, the last request.
    pub fn step_state(&self) -> &StepState {
        &self.steps
    }

    /// The session's title, from the latest `session/title`.
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// Time of the last event, in ms since the epoch; zero in an empty log.
    pub fn last_time_ms(&self) -> u64 {
        self.counters.last_time_ms
    }

    /// Time of the last event that is activity, in ms since the epoch; zero in an empty log.
    /// Markers and closers, which the store itself writes, are none.
    pub fn last_activity_ms(&self) -> u64 {
        self.counters.last_activity_ms
    }

    /// Bytes of all lines so far, a line feed each included, without the header line.
    pub fn line_bytes(&self) -> u64 {
        self.counters.line_bytes
    }

    /// How many model attempts were settled.
    pub fn settlements(&self) -> u64 {
        self.counters.settlements
    }

    /// Whether the log ends with a `session/end-seed`.
    pub fn ends_with_marker(&self) -> bool {
        self.next != Seq::FIRST && self.counters.seeded_to == self.next.value()
    }

    /// The seq of the last `session/end-seed`.
    pub fn last_marker(&self) -> Option<Seq> {
        self.counters.seeded_to.checked_sub(1).map(Seq::new)
    }

    /// Begins a batch: what [`Fold::take`] changes from here on can be undone.
    pub(crate) fn begin(&self) -> BatchUndo {
        BatchUndo {
            next: self.next,
            header: self.header.clone(),
            counters: self.counters,
            turn: self.turn.clone(),
            title: self.title.clone(),
            steps: Arc::clone(&self.steps),
            surface: Vec::new(),
        }
    }

    /// Takes `event`, which was admitted at the next seq and whose line has `line_bytes` bytes.
    pub(crate) fn take(&mut self, event: &Event, line_bytes: u64, undo: &mut BatchUndo) {
        assert!(event.seq == self.next, "events are taken in order");
        match &event.kind {
            Kind::LogOnly(LogOnly::RequestHeader) => {
                if let Some(span) = event.visible {
                    self.header = Some(Header {
                        seq: event.seq,
                        text: crate::event::text(span.of(&event.data)).into(),
                    });
                }
            }
            Kind::LogOnly(LogOnly::SessionTitle) => {
                let title = event.data_at(&["title"]).and_then(crate::event::string_text);
                self.title = title.map(|title| (&*title).into());
            }
            _ => {}
        }
        if let (Some(kind), Some(span)) = (event.kind.node(), event.visible) {
            let node = Node {
                seq: event.seq,
                place: Place(event.seq.value()),
                kind,
                rest: (kind == NodeKind::ToolResult).then(|| rest_digest(event)),
                text: crate::event::text(span.of(&event.data)).into(),
            };
            match event.op {
                Some(SurfaceOp::Replace { start, end }) => {
                    if let Some(range) = self.surface.range(start, end) {
                        undo.surface.push(self.surface.replace(range, node));
                    }
                }
                _ => undo.surface.push(self.surface.append(node)),
            }
        }
        self.turn.take(event);
        StepState::take(&mut self.steps, event, self.surface.generation());
        self.counters.take(event, line_bytes);
        self.next = self.next.next();
    }

    /// Takes back everything since `undo` was begun.
    pub(crate) fn undo(&mut self, undo: BatchUndo) {
        for step in undo.surface.into_iter().rev() {
            self.surface.undo(step);
        }
        self.next = undo.next;
        self.header = undo.header;
        self.counters = undo.counters;
        self.turn = undo.turn;
        self.title = undo.title;
        self.steps = undo.steps;
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            next: self.next,
            generation: self.surface.generation(),
            nodes: self
                .surface
                .nodes()
                .map(|node| NodeMark { place: node.place, seq: node.seq, kind: node.kind, rest: node.rest })
                .collect(),
            header: self.header.as_ref().map(Header::seq),
            counters: self.counters,
            turn: self.turn.clone(),
            title: self.title.as_deref().map(Into::into),
            steps: Arc::clone(&self.steps),
        }
    }

    /// The fold that `checkpoint` describes; `texts` are the texts of its nodes, in order.
    pub(crate) fn restore(checkpoint: &Checkpoint, texts: Vec<Box<str>>, header: Option<Header>) -> Self {
        debug_assert_eq!(checkpoint.nodes.len(), texts.len(), "a text for each node");
        let nodes = checkpoint.nodes.iter().zip(texts).map(|(mark, text)| Node {
            seq: mark.seq,
            place: mark.place,
            kind: mark.kind,
            rest: mark.rest,
            text,
        });
        Self {
            next: checkpoint.next,
            surface: Surface::restore(nodes, checkpoint.generation),
            header,
            counters: checkpoint.counters,
            turn: checkpoint.turn.clone(),
            title: checkpoint.title.as_deref().map(Into::into),
            steps: Arc::clone(&checkpoint.steps),
        }
    }
}

impl Counters {
    fn take(&mut self, event: &Event, line_bytes: u64) {
        self.line_bytes += line_bytes + 1;
        self.settlements += u64::from(event.kind.settles());
        self.last_time_ms = event.time_ms;
        if event.kind == Kind::LogOnly(LogOnly::SessionEndSeed) {
            self.seeded_to = event.seq.value() + 1;
        } else {
            self.last_activity_ms = event.time_ms;
        }
    }
}

/// The digest of everything in a tool result's data but its content: what the message says beside
/// its content array, and what the array's first block says beside its own content.
pub(crate) fn rest_digest(event: &Event) -> ValueDigest {
    let data: &[u8] = &event.data;
    let message = event.visible.map(|span| span.of(data)).unwrap_or_default();
    let content = member(message, "content").unwrap_or_default();
    let block = first_item(content).unwrap_or_default();
    // The contents are long and do not count: what is compared is cut free of them first.
    let data = without(data, content);
    let block = without(block, member(block, "content").unwrap_or_default());
    digest_without(&[(&data, &[&["message", "content"]]), (&block, &[&["content"]])])
}

/// `whole` with a number in the place of the value `part`, which lies in it; `whole` where there is
/// none.
fn without<'a>(whole: &'a [u8], part: &[u8]) -> std::borrow::Cow<'a, [u8]> {
    let start = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
    match (whole.get(..start), whole.get(start.wrapping_add(part.len())..)) {
        (Some(before), Some(behind)) if !part.is_empty() => [before, b"0", behind].concat().into(),
        _ => whole.into(),
    }
}

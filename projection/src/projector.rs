//! The projector: the next request from the last one, in O(what is new).
//!
//! Owns the running digest and the marks from which it goes on after a replace. Knows the fold that
//! it follows; holds no text of its own. What it makes is checked against [`crate::rebuild`] by
//! property tests.

use std::sync::Arc;

use rederive_engine::{Fold, Generation, Seq};

use crate::frozen::project;
use crate::request::{BEFORE_HEADER, BEFORE_MESSAGES, BEHIND_MESSAGES, BETWEEN_MESSAGES, Inner, Request};

/// Nodes between two marks of the running digest: after a replace at most so many are hashed again
/// in front of it. A mark holds about 2 KB.
const NODES_A_MARK: usize = 256;

/// Why there is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectError {
    /// No `request/header` is in force, so nothing says which model would be asked. Log one.
    #[error("no request header is in force at seq {at}")]
    NoHeader {
        /// How far the log goes.
        at: Seq,
    },
}

/// Follows the fold of one session and makes its requests.
///
/// Must see one fold only: nodes are told apart by their position and generation.
#[derive(Clone, Debug, Default)]
pub struct Projector {
    state: Option<State>,
}

#[derive(Clone, Debug)]
struct State {
    header: Seq,
    generation: Generation,
    now: Mark,
    marks: Vec<Mark>,
    /// Indices of the nodes that project to nothing, ascending.
    silent: Arc<Vec<usize>>,
}

/// Bytes that are joined before they are hashed: BLAKE3 hashes long runs many times faster than
/// short ones.
const HASHED_AT_ONCE: usize = 128 * 1024;

/// The running digest behind some number of nodes.
#[derive(Clone, Debug)]
struct Mark {
    nodes: usize,
    messages: usize,
    bytes: u64,
    hasher: Box<blake3::Hasher>,
}

impl Mark {
    /// Takes in `chunk`; what is short waits in `joined` for more.
    fn update(&mut self, chunk: &[u8], joined: &mut Vec<u8>) {
        self.bytes += chunk.len() as u64;
        if chunk.len() >= HASHED_AT_ONCE {
            self.settle(joined);
            self.hasher.update(chunk);
            return;
        }
        joined.extend_from_slice(chunk);
        if joined.len() >= HASHED_AT_ONCE {
            self.settle(joined);
        }
    }

    /// Hashes what waits.
    fn settle(&mut self, joined: &mut Vec<u8>) {
        self.hasher.update(joined);
        joined.clear();
    }
}

impl Projector {
    /// A projector that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The request that would be sent now.
    ///
    /// # Cost
    ///
    /// Hashes what came since the last call; after a replace, what stands behind it and up to 256
    /// nodes in front of it; after a change of the header, everything. Copies no message.
    ///
    /// # Errors
    ///
    /// [`ProjectError::NoHeader`].
    pub fn request(&mut self, fold: &Fold) -> Result<Request, ProjectError> {
        let Some(header) = fold.header() else {
            return Err(ProjectError::NoHeader { at: fold.next_seq() });
        };
        let surface = fold.surface();
        let mut state = match self.state.take() {
            Some(state) if state.header == header.seq() => state,
            _ => State::new(header.seq(), header.text(), surface.generation()),
        };
        let unchanged = surface.unchanged_since(state.generation).min(surface.len());
        state.rewind(unchanged);
        state.generation = surface.generation();
        let mut joined = Vec::new();
        for node in surface.slice(state.now.nodes..surface.len()) {
            if state.now.nodes.is_multiple_of(NODES_A_MARK) {
                state.now.settle(&mut joined);
                state.mark();
            }
            if let Some(text) = project(node.kind(), node.text()) {
                if state.now.messages > 0 {
                    state.now.update(BETWEEN_MESSAGES, &mut joined);
                }
                state.now.update(text.as_bytes(), &mut joined);
                state.now.messages += 1;
            } else {
                Arc::make_mut(&mut state.silent).push(state.now.nodes);
            }
            state.now.nodes += 1;
        }
        state.now.settle(&mut joined);
        let mut whole = state.now.hasher.clone();
        whole.update(BEHIND_MESSAGES);
        let request = Request::new(Inner {
            header: header.clone(),
            surface: surface.clone(),
            at: fold.next_seq(),
            messages: state.now.messages,
            silent: Arc::clone(&state.silent),
            bytes: state.now.bytes + BEHIND_MESSAGES.len() as u64,
            digest: whole.finalize().into(),
        });
        self.state = Some(state);
        Ok(request)
    }
}

impl State {
    fn new(header: Seq, text: &str, generation: Generation) -> Self {
        let mut joined = Vec::new();
        let mut now = Mark { nodes: 0, messages: 0, bytes: 0, hasher: Box::default() };
        for chunk in [BEFORE_HEADER, text.as_bytes(), BEFORE_MESSAGES] {
            now.update(chunk, &mut joined);
        }
        now.settle(&mut joined);
        Self { header, generation, marks: vec![now.clone()], now, silent: Arc::default() }
    }

    fn mark(&mut self) {
        if self.marks.last().is_none_or(|mark| mark.nodes < self.now.nodes) {
            self.marks.push(self.now.clone());
        }
    }

    /// Goes back to the last mark at which only the first `unchanged` nodes were hashed.
    fn rewind(&mut self, unchanged: usize) {
        if self.now.nodes <= unchanged {
            return;
        }
        while self.marks.len() > 1 && self.marks.last().is_some_and(|mark| mark.nodes > unchanged) {
            self.marks.pop();
        }
        if let Some(mark) = self.marks.last() {
            self.now = mark.clone();
            let kept = self.silent.partition_point(|node| *node < self.now.nodes);
            if kept < self.silent.len() {
                Arc::make_mut(&mut self.silent).truncate(kept);
            }
        }
    }
}

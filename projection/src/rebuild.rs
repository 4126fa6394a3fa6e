//! Rebuilding requests from the log alone, with no cache.
//!
//! Owns the slow and plain way: fold the events from the first one, join the bytes, hash them
//! whole. What the projector makes is held against it.

use rederive_engine::{Event, Fold, Refusal, Replay, Seq, TypeRegistry};

use crate::frozen::project;
use crate::projector::{ProjectError, Projector};
use crate::request::{
    BEFORE_HEADER, BEFORE_MESSAGES, BEHIND_MESSAGES, BETWEEN_MESSAGES, Request, RequestDigest,
};

/// The canonical bytes of the request that would be sent at the end of `fold`, joined in one pass.
///
/// # Errors
///
/// [`ProjectError::NoHeader`].
pub fn canonical_bytes(fold: &Fold) -> Result<Vec<u8>, ProjectError> {
    let Some(header) = fold.header() else {
        return Err(ProjectError::NoHeader { at: fold.next_seq() });
    };
    let mut out = [BEFORE_HEADER, header.text().as_bytes(), BEFORE_MESSAGES].concat();
    let texts = fold.surface().nodes().filter_map(|node| project(node.kind(), node.text()));
    for (index, text) in texts.enumerate() {
        if index > 0 {
            out.extend_from_slice(BETWEEN_MESSAGES);
        }
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(BEHIND_MESSAGES);
    Ok(out)
}

/// The digest of canonical bytes, hashed whole.
pub fn digest_of(canonical: &[u8]) -> RequestDigest {
    blake3::hash(canonical).into()
}

/// A request that a log says was sent: it was settled by an answer or a failed attempt.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The `assistant/message` or `assistant/attempt`.
    pub settled_by: Seq,
    /// The request as it stood right before.
    pub request: Request,
}

/// Folds a log event by event and gives its requests as they come by.
///
/// Shares no cache with a live session: it has a fold and a running digest of its own. Settlements
/// where no header was in force have no request; they are counted.
#[derive(Clone, Debug)]
pub struct Rebuilder {
    replay: Replay,
    projector: Projector,
    without_header: u64,
}

impl Rebuilder {
    /// A rebuilder at the start of a log that knows `types` beside the format's own.
    pub fn new(types: TypeRegistry) -> Self {
        Self { replay: Replay::new(types), projector: Projector::new(), without_header: 0 }
    }

    /// Takes the next event; gives the request that it settles, where it settles one.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] where the event does not follow from those before.
    pub fn push(&mut self, event: &Event) -> Result<Option<Settled>, Refusal> {
        let mut settled = None;
        if event.kind().settles() {
            match self.projector.request(self.replay.fold()) {
                Ok(request) => settled = Some(Settled { settled_by: event.seq(), request }),
                Err(ProjectError::NoHeader { .. }) => self.without_header += 1,
            }
        }
        self.replay.push_event(event)?;
        Ok(settled)
    }

    /// The request that would be sent now.
    ///
    /// # Errors
    ///
    /// [`ProjectError::NoHeader`].
    pub fn next_request(&mut self) -> Result<Request, ProjectError> {
        self.projector.request(self.replay.fold())
    }

    /// What the events so far add up to.
    pub fn fold(&self) -> &Fold {
        self.replay.fold()
    }

    /// How many settlements had no header in force.
    pub fn settled_without_header(&self) -> u64 {
        self.without_header
    }
}

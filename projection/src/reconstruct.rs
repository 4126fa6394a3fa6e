//! Any past request again, from the log alone; and every one, compared with what was recorded.
//!
//! Owns the names by which requests are asked for, and verification.

use std::fmt;
use std::str::FromStr;

use rederive_engine::{Event, Fold, Kind, LogOnly, Reader, Seq, StoreError, string_text};

use crate::audit::AuditError;
use crate::bodies::Bodies;
use crate::formats::{CacheRules, ImageSource, WireRecord};
use crate::projector::{ProjectError, Projector};
use crate::rebuild::Rebuilder;
use crate::request::{Request, RequestDigest};

/// The name of a past request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRef {
    /// The request that this event dispatched or settled.
    Seq(Seq),
    /// By turn, step and attempt, the first attempt being one.
    Step {
        /// The turn.
        turn: u64,
        /// The step.
        step: u64,
        /// The attempt.
        attempt: u64,
    },
}

/// A text that names no request: `SEQ`, `TURN.STEP` or `TURN.STEP.ATTEMPT` is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request is named by SEQ, TURN.STEP or TURN.STEP.ATTEMPT")]
pub struct NotARequest;

impl FromStr for RequestRef {
    type Err = NotARequest;

    fn from_str(text: &str) -> Result<Self, NotARequest> {
        let numbers: Result<Vec<u64>, _> = text.split('.').map(str::parse).collect();
        match numbers.map_err(|_| NotARequest)?.as_slice() {
            [seq] => Ok(Self::Seq(Seq::new(*seq))),
            [turn, step] => Ok(Self::Step { turn: *turn, step: *step, attempt: 1 }),
            [turn, step, attempt] => Ok(Self::Step { turn: *turn, step: *step, attempt: *attempt }),
            _ => Err(NotARequest),
        }
    }
}

impl fmt::Display for RequestRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seq(seq) => seq.fmt(f),
            Self::Step { turn, step, attempt } => write!(f, "{turn}.{step}.{attempt}"),
        }
    }
}

/// Why a request was not reconstructed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReconstructError {
    /// The event neither dispatched nor settled a request. Name one that did.
    #[error(
        "event {seq} is a {kind}; a request is named by its request/dispatch, or by the assistant/message or assistant/attempt that settled it"
    )]
    NoBoundary {
        /// The event.
        seq: Seq,
        /// Its type.
        kind: String,
    },
    /// The log has no such request.
    #[error("there is no request {request}")]
    NoRequest {
        /// The name that was asked for.
        request: RequestRef,
    },
    /// No header was in force there.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// What is stored cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Rebuilds a past request.
///
/// # Cost
///
/// By seq: what the model saw then, and one segment. By step: one pass over the log before that.
///
/// # Errors
///
/// A [`ReconstructError`].
pub fn reconstruct(reader: &Reader, request: RequestRef) -> Result<Request, ReconstructError> {
    let seq = match request {
        RequestRef::Seq(seq) => {
            let Some(event) = reader.event(seq)? else { return Err(ReconstructError::NoRequest { request }) };
            if !is_boundary(&event) {
                return Err(ReconstructError::NoBoundary { seq, kind: event.kind().to_string() });
            }
            seq
        }
        RequestRef::Step { turn, step, attempt } => {
            find(reader, turn, step, attempt)?.ok_or(ReconstructError::NoRequest { request })?
        }
    };
    // What stands between a dispatch and its settlement is log-only, so both give the same request.
    Ok(Projector::new().request(&reader.fold_at(seq)?)?)
}

fn is_boundary(event: &Event) -> bool {
    event.kind().settles() || *event.kind() == Kind::LogOnly(LogOnly::RequestDispatch)
}

/// The boundary of an attempt: its dispatch, or its settlement in logs that have none.
fn find(reader: &Reader, turn: u64, step: u64, attempt: u64) -> Result<Option<Seq>, StoreError> {
    let number = |event: &Event, key: &str| event.data_at(&[key]).and_then(|text| text.parse::<u64>().ok());
    let (mut at, mut seen, mut dispatched) = ((None, None), 0, false);
    for event in reader.events(Seq::FIRST..reader.fold().next_seq())? {
        let event = event?;
        match event.kind() {
            Kind::LogOnly(LogOnly::TurnStart) => at = (number(&event, "turn"), None),
            Kind::LogOnly(LogOnly::StepStart) => {
                at.1 = number(&event, "step");
                (seen, dispatched) = (0, false);
            }
            kind => {
                let is_dispatch = *kind == Kind::LogOnly(LogOnly::RequestDispatch);
                if !is_dispatch && !kind.settles() {
                    continue;
                }
                // A settlement behind its dispatch is no further attempt.
                if is_dispatch || !dispatched {
                    seen += 1;
                    if at == (Some(turn), Some(step)) && seen == attempt {
                        return Ok(Some(event.seq()));
                    }
                }
                dispatched = is_dispatch;
            }
        }
    }
    Ok(None)
}

/// What verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Events of the log.
    pub events: u64,
    /// Requests that were rebuilt.
    pub requests: u64,
    /// Those whose recorded digest was compared.
    pub compared: u64,
    /// Provider bodies whose recorded digest was compared.
    pub bodies: u64,
    /// What is not as it was recorded.
    pub mismatches: Vec<Mismatch>,
}

/// A difference between what is recorded and what the log gives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// A `request/dispatch` records another request.
    #[error("request dispatched at {seq}: {what} is {recorded}, and the log gives {rebuilt}")]
    Dispatch {
        /// The `request/dispatch`.
        seq: Seq,
        /// What differs: digest, bytes or messages.
        what: &'static str,
        /// What was recorded.
        recorded: String,
        /// What the log gives.
        rebuilt: String,
    },
    /// The provider body of a `request/dispatch` cannot be made again as it is recorded.
    #[error("the body dispatched at {seq} is another one: {why}")]
    Body {
        /// The `request/dispatch`.
        seq: Seq,
        /// What the log gives instead.
        why: String,
    },
    /// The summarising call of a `compaction/start` is not what it records.
    #[error("the summarising call begun at {seq} is another one: {why}")]
    Summary {
        /// The `compaction/start`.
        seq: Seq,
        /// What the log gives instead.
        why: String,
    },
    /// The checkpoint's surface is not that of the log.
    #[error("the surface of the checkpoint is not that of the log")]
    Surface,
    /// The checkpoint's next request is not that of the log.
    #[error("the next request of the checkpoint is not that of the log")]
    Next,
}

/// Rebuilds every request of a log through a path that shares no cache with the live one, and compares
/// with what was recorded.
///
/// # Cost
///
/// One pass over the log.
///
/// # Errors
///
/// An [`AuditError`] where the log cannot be read or does not fold.
pub fn verify(reader: &Reader) -> Result<Verified, AuditError> {
    check(reader, None)
}

/// As [`verify`], and makes every body again whose digest a dispatch recorded; `tree_id` is the name of
/// the session at the root of the tree of forks, for records that do not name it; `images` is where the
/// bodies' images are.
///
/// # Cost
///
/// Beside that of [`verify`], what is new in each body, and reading its images.
///
/// # Errors
///
/// As [`verify`]. A body that cannot be made again is a mismatch.
pub fn verify_with_bodies(
    reader: &Reader,
    tree_id: &str,
    images: &dyn ImageSource,
) -> Result<Verified, AuditError> {
    check(reader, Some(Recorded { tree_id, images, bodies: Bodies::new() }))
}

/// Recorded bodies that are made again.
struct Recorded<'a> {
    /// For records that do not name their tree.
    tree_id: &'a str,
    images: &'a dyn ImageSource,
    bodies: Bodies,
}

impl Recorded<'_> {
    /// Compares the body of `request` with the record in its dispatch `event`, where there is one.
    fn compare(&mut self, event: &Event, request: &Request, verified: &mut Verified) {
        let Some(text) = event.data_at(&["wire"]) else { return };
        verified.bodies += 1;
        if let Err(why) = self.check(text, request) {
            verified.mismatches.push(Mismatch::Body { seq: event.seq(), why });
        }
    }

    fn check(&mut self, text: &str, request: &Request) -> Result<(), String> {
        let record = WireRecord::parse(text).map_err(|error| error.to_string())?;
        let options = record.options(&CacheRules::built_in()).map_err(|error| error.to_string())?;
        let tree_id = record.tree().unwrap_or(self.tree_id);
        let body = self.bodies.next(request, tree_id, &options, self.images);
        let body = body.map_err(|error| error.to_string())?;
        if record.matches(&body) {
            return Ok(());
        }
        Err(format!("the log gives {} bytes with the digest blake3:{}", body.len(), body.digest().to_hex()))
    }
}

fn check(reader: &Reader, mut recorded: Option<Recorded<'_>>) -> Result<Verified, AuditError> {
    let mut verified = Verified::default();
    let mut rebuilder = Rebuilder::new(reader.types().clone());
    for event in reader.events(Seq::FIRST..reader.fold().next_seq())? {
        let event = event?;
        if *event.kind() == Kind::LogOnly(LogOnly::RequestDispatch) {
            verified.compared += 1;
            match rebuilder.next_request() {
                Ok(request) => {
                    compare(&event, &request, &mut verified.mismatches);
                    if let Some(recorded) = &mut recorded {
                        recorded.compare(&event, &request, &mut verified);
                    }
                }
                Err(ProjectError::NoHeader { .. }) => verified.mismatches.push(Mismatch::Dispatch {
                    seq: event.seq(),
                    what: "header",
                    recorded: "one".to_owned(),
                    rebuilt: "none".to_owned(),
                }),
            }
        }
        if *event.kind() == Kind::LogOnly(LogOnly::CompactionStart) {
            compare_summary(&event, rebuilder.fold(), &mut verified.mismatches);
        }
        let settled = rebuilder.push(&event)?;
        verified.events += 1;
        verified.requests += u64::from(settled.is_some());
    }
    if !same_surface(rebuilder.fold(), reader.fold()) {
        verified.mismatches.push(Mismatch::Surface);
    }
    let kept = Projector::new().request(reader.fold()).map(|request| request.digest());
    if kept != rebuilder.next_request().map(|request| request.digest()) {
        verified.mismatches.push(Mismatch::Next);
    }
    Ok(verified)
}

/// Compares the summarising call of a `compaction/start` with what it records; logs of other hosts
/// record none.
fn compare_summary(event: &Event, fold: &Fold, mismatches: &mut Vec<Mismatch>) {
    let Some(recorded) = event.data_at(&["input", "digest"]).and_then(string_text) else { return };
    let seq = event.seq();
    let why = match crate::upkeep::input_recorded_in(event, fold) {
        Ok(input) if format!("blake3:{}", input.digest()) == recorded => return,
        Ok(input) => format!("the log gives blake3:{}", input.digest()),
        Err(error) => error.to_string(),
    };
    mismatches.push(Mismatch::Summary { seq, why });
}

fn same_surface(a: &Fold, b: &Fold) -> bool {
    a.surface().seqs() == b.surface().seqs() && a.surface().generation() == b.surface().generation()
}

fn compare(event: &Event, request: &Request, mismatches: &mut Vec<Mismatch>) {
    let mut check = |what, recorded: Option<String>, rebuilt: String| {
        if recorded.as_ref() != Some(&rebuilt) {
            let recorded = recorded.unwrap_or_else(|| "missing".to_owned());
            mismatches.push(Mismatch::Dispatch { seq: event.seq(), what, recorded, rebuilt });
        }
    };
    let digest = event.data_at(&["digest"]).and_then(string_text);
    let digest = digest
        .map(|text| text.parse::<RequestDigest>().map_or(text.into_owned(), |digest| digest.to_string()));
    check("digest", digest, request.digest().to_string());
    check("bytes", event.data_at(&["bytes"]).map(Into::into), request.bytes().to_string());
    check("messages", event.data_at(&["messages"]).map(Into::into), request.message_count().to_string());
}

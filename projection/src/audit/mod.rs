//! Audit: each request of a log against the one before, and why it differs where it does.
//!
//! Owns the walk over a log and what is said of each request. Reads only; shares no cache with a
//! live session. The provider's own counters stand beside what the log says, so that both can be
//! compared.

mod cause;
mod html;
mod provider;
mod summary;

use rederive_engine::{Event, Kind, LogOnly, Reader, Refusal, Replay, Seq, StoreError};
use serde::Serialize;

pub use cause::Cause;
pub use html::html;
pub use provider::{CacheAudit, ProviderView};
pub use summary::{Break, CauseSum, Habit, Summary};

use crate::projector::Projector;
use crate::relation::Relation;
use crate::request::Request;
use cause::{Since, header_causes};
use provider::Memory;

/// Why a log could not be audited or verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// What is stored cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stored log does not follow its own rules: it is damaged. Run `doctor`.
    #[error("the stored log does not fold: {0}")]
    Refused(#[from] Refusal),
}

/// What is said of one request.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditedRequest {
    /// The event at which the request is reconstructed: its `request/dispatch`, or its settlement.
    pub seq: u64,
    /// The event that settled it; `None` where nothing has.
    pub settled_by: Option<u64>,
    /// The turn, where one was open.
    pub turn: Option<u64>,
    /// The step, where one was open.
    pub step: Option<u64>,
    /// The attempt within the step, from one.
    pub attempt: u64,
    /// How many messages it carries.
    pub messages: usize,
    /// Images among them.
    pub images: usize,
    /// Length of its canonical bytes.
    pub bytes: u64,
    /// BLAKE3 of its canonical bytes.
    pub blake3: String,
    /// Whether it extends the one before; the first of a log extends nothing and breaks nothing.
    pub extends: bool,
    /// The first message that differs, where the messages part.
    pub differs_at_message: Option<usize>,
    /// That message's node.
    pub differs_at_seq: Option<u64>,
    /// Bytes of the one before that are kept as a prefix.
    pub kept_bytes: u64,
    /// Bytes of the one before that could have been kept.
    pub keepable_bytes: u64,
    /// Why the prefix ended; empty where it did not.
    pub causes: Vec<Cause>,
    /// Whether a new series was declared.
    pub series: bool,
    /// Whether another process sent the one before.
    pub process_boundary: bool,
    /// Input tokens that the provider reported.
    pub input_tokens: Option<u64>,
    /// Input tokens that the provider says it read from its cache.
    pub cache_read_tokens: Option<u64>,
    /// What the provider's cache could be expected to give, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheAudit>,
}

impl AuditedRequest {
    /// Bytes of the one before that had to be sent and computed again.
    pub fn lost_bytes(&self) -> u64 {
        self.keepable_bytes - self.kept_bytes.min(self.keepable_bytes)
    }
}

/// What a log's requests were.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// The session.
    pub session: String,
    /// Each request, in order.
    pub requests: Vec<AuditedRequest>,
    /// Settlements at which no header was in force, so that no request can be named.
    pub settled_without_header: u64,
    /// Sums and the dearest breaks.
    pub summary: Summary,
    /// What would keep a provider from taking the next request: unanswered or repeated tool calls.
    pub problems: Vec<Problem>,
}

/// Something on the surface that no provider takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The node.
    pub seq: u64,
    /// The tool call, where it is one.
    pub call: Option<String>,
    /// What is wrong.
    pub what: &'static str,
}

/// Audits the log of `reader`.
///
/// # Cost
///
/// One pass over the log; at each broken prefix, a comparison of what stands behind the break.
///
/// # Errors
///
/// An [`AuditError`].
pub fn audit(reader: &Reader) -> Result<Audit, AuditError> {
    walk(reader, None)
}

/// As [`audit`], with what the cache of one provider could be expected to give for each request.
///
/// # Cost
///
/// Beside that of [`audit`], one pass over each request.
///
/// # Errors
///
/// An [`AuditError`]. A request that has no body in the format says so in its own row.
pub fn audit_with(reader: &Reader, provider: &ProviderView<'_>) -> Result<Audit, AuditError> {
    walk(reader, Some(provider))
}

fn walk(reader: &Reader, provider: Option<&ProviderView<'_>>) -> Result<Audit, AuditError> {
    let mut walk = Walk::new(reader, provider);
    for event in reader.events(Seq::FIRST..reader.fold().next_seq())? {
        walk.push(&event?)?;
    }
    let problems = crate::pairing::problems(walk.replay.fold().surface());
    Ok(Audit {
        session: reader.id().to_string(),
        summary: Summary::of(&walk.requests),
        requests: walk.requests,
        settled_without_header: walk.without_header,
        problems,
    })
}

/// A walk over a log, event by event.
struct Walk<'a> {
    provider: Option<&'a ProviderView<'a>>,
    memory: Memory,
    replay: Replay,
    projector: Projector,
    last: Option<Request>,
    since: Since,
    requests: Vec<AuditedRequest>,
    /// The request that was dispatched and not settled yet.
    open: Option<usize>,
    attempt: u64,
    without_header: u64,
}

impl<'a> Walk<'a> {
    fn new(reader: &Reader, provider: Option<&'a ProviderView<'a>>) -> Self {
        Self {
            provider,
            memory: Memory::default(),
            replay: Replay::new(reader.types().clone()),
            projector: Projector::new(),
            last: None,
            since: Since::default(),
            requests: Vec::new(),
            open: None,
            attempt: 0,
            without_header: 0,
        }
    }

    fn push(&mut self, event: &Event) -> Result<(), AuditError> {
        match event.kind() {
            Kind::LogOnly(LogOnly::StepStart) => {
                self.attempt = 0;
                self.open = None;
            }
            Kind::LogOnly(LogOnly::RequestDispatch) => self.open = self.request_at(event),
            kind if kind.settles() => {
                let index = self.open.take().or_else(|| self.request_at(event));
                if let Some(request) = index.and_then(|index| self.requests.get_mut(index)) {
                    request.settled_by = Some(event.seq().value());
                    request.input_tokens = tokens(event, "inputTokens");
                    request.cache_read_tokens = tokens(event, "cacheReadTokens");
                    if let (Some(provider), Some(cache), Some(sent)) =
                        (self.provider, &mut request.cache, &self.last)
                    {
                        provider.settle(&self.memory, cache, sent, event);
                    }
                }
            }
            _ => {}
        }
        self.since.take(event);
        Ok(self.replay.push_event(event)?)
    }

    /// Notes the request that stands right before `event`.
    fn request_at(&mut self, event: &Event) -> Option<usize> {
        let Ok(request) = self.projector.request(self.replay.fold()) else {
            self.without_header += 1;
            return None;
        };
        self.attempt += 1;
        let turn = self.replay.fold().turn();
        let mut audited = AuditedRequest {
            seq: event.seq().value(),
            settled_by: None,
            turn: turn.turn(),
            step: turn.step(),
            attempt: self.attempt,
            messages: request.message_count(),
            images: 0,
            bytes: request.bytes(),
            blake3: request.digest().to_string(),
            extends: true,
            differs_at_message: None,
            differs_at_seq: None,
            kept_bytes: 0,
            keepable_bytes: 0,
            causes: Vec::new(),
            series: self.since.series,
            process_boundary: self.since.process_boundary,
            input_tokens: None,
            cache_read_tokens: None,
            cache: None,
        };
        if let Some(last) = &self.last {
            let relation = Relation::of(last, &request);
            audited.extends = relation.extends();
            audited.kept_bytes = relation.kept_bytes(last);
            audited.keepable_bytes = Relation::Extends.kept_bytes(last);
            match relation {
                Relation::Extends => {}
                Relation::Header { .. } => {
                    audited.causes = header_causes(last.header().text(), request.header().text());
                }
                Relation::Message { index, seq, .. } => {
                    audited.differs_at_message = Some(index);
                    audited.differs_at_seq = seq.map(Seq::value);
                    audited.causes = self.since.surface_causes();
                }
            }
        }
        audited.images =
            crate::images::count(&request, self.last.as_ref(), self.requests.last().map(|r| r.images));
        if let Some(provider) = self.provider {
            let reopened = self.since.process_boundary;
            audited.cache = Some(provider.expect(&mut self.memory, &request, event, reopened));
        }
        self.last = Some(request);
        self.since.restart();
        self.requests.push(audited);
        Some(self.requests.len() - 1)
    }
}

/// A counter of `data.usage`, where it is a whole number.
fn tokens(event: &Event, key: &str) -> Option<u64> {
    event.data_at(&["usage", key])?.parse().ok()
}

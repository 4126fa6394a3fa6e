//! A provider's cache in small: what was written, and what a breakpoint finds. Plans are proved
//! against it, and it shares no code with [`super::expected_cached`].

use std::collections::HashSet;

use super::{Footprint, Mechanism};

/// The entries that requests have written.
#[derive(Clone, Debug, Default)]
pub struct CacheModel {
    written: HashSet<[u8; 32]>,
}

/// A request found nothing of what the one before it wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {request} reads {read} segments, and the one before it wrote {written}")]
pub struct Unreached {
    /// The request's position in the sequence.
    pub request: usize,
    /// Segments that it reads.
    pub read: usize,
    /// Segments up to the last breakpoint of the one before.
    pub written: usize,
}

impl CacheModel {
    /// A cache without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends a request: the number of segments that it reads; then its breakpoints are written.
    /// Cost: one pass over its segments.
    pub fn send(&mut self, request: &Footprint) -> usize {
        let mut chain = blake3::Hasher::new();
        let mut prefixes = vec![*chain.finalize().as_bytes()];
        for segment in request.segments() {
            chain.update(segment.digest.as_bytes());
            prefixes.push(*chain.finalize().as_bytes());
        }
        let mut points = request.breakpoints().to_vec();
        let lookback = match request.rule().mechanism() {
            Mechanism::Anthropic => 20,
            _ => usize::MAX,
        };
        if request.rule().mechanism() == Mechanism::OpenaiExplicit {
            points.push(request.segments().len());
        }
        points.retain(|point| request.rule().min_tokens() <= request.tokens(*point));
        let found = |count: &usize| prefixes.get(*count).is_some_and(|prefix| self.written.contains(prefix));
        let reads = points.iter().filter_map(|point| {
            (point.saturating_sub(lookback)..=*point).rev().filter(|count| 0 < *count).find(found)
        });
        let read = reads.max().unwrap_or(0);
        self.written.extend(points.iter().filter_map(|point| prefixes.get(*point)));
        read
    }
}

/// Proves that each request of a sequence reads at least what the one before it wrote last.
///
/// # Errors
///
/// [`Unreached`]: the first request that does not.
pub fn check_reach(requests: &[Footprint]) -> Result<(), Unreached> {
    let mut cache = CacheModel::new();
    let mut written = 0;
    for (request, footprint) in requests.iter().enumerate() {
        let read = cache.send(footprint);
        if read < written {
            return Err(Unreached { request, read, written });
        }
        let long_enough = |point: &&usize| footprint.rule().min_tokens() <= footprint.tokens(**point);
        written = footprint.breakpoints().iter().filter(long_enough).max().copied().unwrap_or(0);
    }
    Ok(())
}

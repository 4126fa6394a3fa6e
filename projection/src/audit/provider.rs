//! What a provider's cache could be expected to give for each request, beside what it reported.
//!
//! Owns the walk's memory of the footprint before. The rules are the dated table's, the reasons bear
//! its names, and prices are those that the caller brings.

use std::fmt;

use rederive_engine::Event;
use serde::Serialize;

use super::tokens;
use crate::formats::cache::{
    Context, Expectation, Footprint, MissReason, PriceTable, Usage, expected_cached,
};
use crate::formats::{BodyOptions, Format, ImageSource};
use crate::request::Request;

/// The provider whose cache is looked at.
pub struct ProviderView<'a> {
    options: BodyOptions,
    tree_id: String,
    images: &'a dyn ImageSource,
    prices: Option<PriceTable>,
}

impl fmt::Debug for ProviderView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderView").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<'a> ProviderView<'a> {
    /// The view of the provider that takes bodies of `options`, for a session of the tree `tree_id`.
    pub fn new(options: BodyOptions, tree_id: impl Into<String>, images: &'a dyn ImageSource) -> Self {
        Self { options, tree_id: tree_id.into(), images, prices: None }
    }

    /// Counts what each request cost by `prices`.
    #[must_use]
    pub fn prices(mut self, prices: PriceTable) -> Self {
        self.prices = Some(prices);
        self
    }
}

/// What a provider's cache could give for one request. Token counts are estimates: a third of the
/// bytes, 1,600 for an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheAudit {
    /// The format of the bodies.
    pub format: Format,
    /// Tokens that should be read from the cache.
    pub expected_tokens: u64,
    /// Parts of the request (tools, system blocks, message blocks) that should be.
    pub expected_segments: usize,
    /// Parts of the request.
    pub segments: usize,
    /// Why it is less than all that the request before sent, or why the provider read so much less
    /// than that; `None` where nothing is missing.
    pub miss: Option<&'static str>,
    /// What the request cost, in millionths of the price table's currency unit. Counts
    /// `cacheReadTokens` and `cacheWriteTokens` as parts of `inputTokens`.
    pub cost_micros: Option<u64>,
    /// Why nothing could be said: the request has no body in this format.
    pub error: Option<String>,
}

/// The walk's memory.
#[derive(Default)]
pub(super) struct Memory {
    before: Option<(Footprint, u64, u64)>,
    expected: Option<Expectation>,
}

impl ProviderView<'_> {
    /// What `request`, whose boundary is `event`, could read of what the one before it wrote.
    pub(super) fn expect(
        &self,
        memory: &mut Memory,
        request: &Request,
        event: &Event,
        reopened: bool,
    ) -> CacheAudit {
        let mut audit = CacheAudit {
            format: self.options.format(),
            expected_tokens: 0,
            expected_segments: 0,
            segments: 0,
            miss: None,
            cost_micros: None,
            error: None,
        };
        let footprint = match Footprint::of(&request.in_tree(&self.tree_id), &self.options, self.images) {
            Ok(footprint) => footprint,
            Err(error) => {
                *memory = Memory::default();
                audit.error = Some(error.to_string());
                return audit;
            }
        };
        let generation = request.generation().value();
        let context = memory.before.as_ref().map_or_else(Context::default, |(_, time_ms, before)| Context {
            gap_ms: Some(event.time_ms().saturating_sub(*time_ms)),
            replaced: *before != generation,
            reopened,
            parallel: false,
            hour: self.options.is_hourly(),
        });
        let before = memory.before.as_ref().map(|(footprint, ..)| footprint);
        let expected = expected_cached(before, &footprint, context);
        audit.expected_tokens = expected.tokens;
        audit.expected_segments = expected.segments;
        audit.segments = footprint.segments().len();
        audit.miss = expected.miss.as_ref().map(MissReason::name);
        memory.before = Some((footprint, event.time_ms(), generation));
        memory.expected = Some(expected);
        audit
    }

    /// Adds what the provider reported in the settlement `event`.
    pub(super) fn settle(&self, memory: &Memory, audit: &mut CacheAudit, request: &Request, event: &Event) {
        let (input, read) = (tokens(event, "inputTokens"), tokens(event, "cacheReadTokens"));
        if let (Some(expected), Some(read)) = (&memory.expected, read) {
            audit.miss = expected.judge(read).map(|reason| reason.name());
        }
        let (Some(prices), Some(input)) = (&self.prices, input) else { return };
        let (read, write) = (read.unwrap_or(0), tokens(event, "cacheWriteTokens").unwrap_or(0));
        let usage = Usage {
            input: input.saturating_sub(read.saturating_add(write)),
            cache_read: read,
            cache_write: write,
            output: tokens(event, "outputTokens").unwrap_or(0),
        };
        audit.cost_micros = prices.cost(&model(request), usage);
    }
}

fn model(request: &Request) -> String {
    rederive_engine::object_member(request.header().text(), "config")
        .and_then(|config| rederive_engine::object_member(config, "model"))
        .and_then(rederive_engine::string_text)
        .unwrap_or_default()
        .into_owned()
}

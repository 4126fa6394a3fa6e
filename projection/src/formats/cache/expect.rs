//! What a request can read of what the one before it wrote, and why it cannot read more.
//!
//! Owns the footprint of a request (its segments in the provider's order, with digests and token
//! estimates) and the comparison of two. The reasons bear Anthropic's names where it has them.

use super::super::body::Layout;
use super::super::message::Header;
use super::super::{BodyOptions, FormatError, ImageSource, RequestView, json};
use super::plan::{self, Point};
use super::{Mechanism, ModelRule};

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// One tool's schema.
    Tool,
    /// One block of the leading system prompt.
    System,
    /// One block of a message.
    Block,
    /// One block of a message that is, or holds, an image or file.
    Image,
}

/// One part of a request, in the provider's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What it is.
    pub kind: SegmentKind,
    /// The node; `None` for a tool.
    pub seq: Option<u64>,
    /// BLAKE3 of its bytes on the wire.
    pub digest: blake3::Hash,
    /// Its bytes on the wire.
    pub bytes: usize,
    /// Estimate: a third of its bytes; 1,600 for an image.
    pub tokens: u64,
}

/// The record of a request that caching depends on.
#[derive(Clone, Debug)]
pub struct Footprint {
    provider: String,
    model: String,
    rule: ModelRule,
    tiers: Vec<(String, String)>,
    cache_key: String,
    tool_names: Vec<String>,
    segments: Vec<Segment>,
    /// Segments before each breakpoint.
    breakpoints: Vec<usize>,
    /// Segments before and with each assistant node: where earlier requests and answers ended.
    ends: Vec<usize>,
}

impl Footprint {
    /// The footprint of a request's body.
    ///
    /// # Cost
    ///
    /// One pass over the request: this is for audits, not for the path of a request.
    ///
    /// # Errors
    ///
    /// Those of [`super::super::body`].
    pub fn of(
        view: &dyn RequestView,
        options: &BodyOptions,
        objects: &dyn ImageSource,
    ) -> Result<Self, FormatError> {
        let layout = Layout::of(view, options, objects)?;
        let route = layout.route();
        let header = Header::read(view.header(), &mut Vec::new())?;
        let (mut segments, mut tool_names) = (Vec::new(), Vec::new());
        for tool in &header.tools {
            let text = [tool.name, tool.description.unwrap_or(""), tool.parameters.unwrap_or("")].concat();
            tool_names.push(json::unquote(tool.name).into_owned());
            segments.push(Segment {
                kind: SegmentKind::Tool,
                seq: None,
                digest: blake3::hash(text.as_bytes()),
                bytes: text.len(),
                tokens: text.len().div_ceil(3) as u64,
            });
        }
        let tools = segments.len();
        for (index, entry) in layout.entries.iter().enumerate() {
            let bytes = layout.node_bytes(index);
            for mark in &entry.marks {
                let block = bytes.get(mark.start..mark.at).unwrap_or_default();
                segments.push(Segment {
                    kind: match (mark.head, mark.object) {
                        (true, _) => SegmentKind::System,
                        (false, true) => SegmentKind::Image,
                        (false, false) => SegmentKind::Block,
                    },
                    seq: Some(entry.seq),
                    digest: blake3::hash(block),
                    bytes: block.len(),
                    tokens: u64::from(mark.tokens),
                });
            }
        }
        let points = if options.breakpoints { plan::points(&layout) } else { Vec::new() };
        let breakpoints = points.iter().map(|point: &Point| tools + point.blocks).collect();
        let ends = layout
            .assistants
            .iter()
            .filter_map(|node| layout.entries.get(*node))
            .flat_map(|entry| [entry.before.blocks, entry.before.blocks + entry.marks.len()])
            .map(|blocks| tools + blocks)
            .collect();
        // What takes part in a tier: every setting but those that only bound or sample the answer.
        let quiet = ["provider", "model", "maxTokens", "stop", "temperature", "topP", "topK", "seed"];
        let tiers = header
            .config
            .iter()
            .filter(|(key, _)| !quiet.contains(&&**key))
            .map(|(key, value)| (key.to_string(), (*value).to_owned()))
            .collect();
        Ok(Self {
            provider: route.provider.clone(),
            model: route.model.clone(),
            rule: route.rule.clone(),
            tiers,
            cache_key: view.tree_id().to_owned(),
            tool_names,
            segments,
            breakpoints,
            ends,
        })
    }

    /// What is known of the model.
    pub fn rule(&self) -> &ModelRule {
        &self.rule
    }

    /// The segments, in the provider's order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The number of segments before each breakpoint, in order.
    pub fn breakpoints(&self) -> &[usize] {
        &self.breakpoints
    }

    /// The estimated tokens of the first `count` segments.
    pub fn tokens(&self, count: usize) -> u64 {
        self.segments.iter().take(count).map(|segment| segment.tokens).sum()
    }

    fn system(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == SegmentKind::System)
    }

    fn tools(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == SegmentKind::Tool)
    }
}

/// What only the log and the clock know about two requests.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with a name")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Milliseconds between the two, where known.
    pub gap_ms: Option<u64>,
    /// A replace (compaction or pruning) lies between them.
    pub replaced: bool,
    /// The process was started anew between them.
    pub reopened: bool,
    /// The second was sent before the first had begun to answer.
    pub parallel: bool,
    /// The entry of the head was asked to live for an hour.
    pub hour: bool,
}

/// Why a request cannot read all that the one before it sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissReason {
    /// Another provider or model.
    ModelChanged,
    /// The leading system prompt differs.
    SystemChanged,
    /// The tools differ.
    ToolsChanged {
        /// How: `added`, `removed`, `reordered` or `edited`.
        how: &'static str,
    },
    /// A message differs.
    MessagesChanged {
        /// The first block that differs.
        segment: usize,
        /// The node that stands there now.
        seq: Option<u64>,
    },
    /// There is no request before.
    PreviousNotFound,
    /// The provider's rules are not known.
    Unavailable,
    /// A setting that takes part in the key differs.
    TierParameterChanged {
        /// The config field.
        field: String,
    },
    /// The same node shows another image, or the same in other bytes.
    ImageVariantChanged {
        /// The node.
        seq: Option<u64>,
    },
    /// A replace lies between the two.
    SurfaceReplace {
        /// The first block that differs.
        segment: usize,
        /// The node that stands there now.
        seq: Option<u64>,
    },
    /// The same nodes gave other bytes after a restart.
    RestartDrift {
        /// The node.
        seq: Option<u64>,
    },
    /// No breakpoint looks back far enough.
    LookbackExceeded,
    /// The prefix is shorter than the model's minimum.
    BelowMinimum,
    /// The entry's lifetime has passed.
    Expired,
    /// The first had not begun to answer.
    ColdParallel,
    /// The common prefix ends inside a unit.
    UnitNotAligned,
    /// Another cache key.
    Routing,
    /// The provider read far less than could be expected, and nothing here says why.
    Unexplained,
}

impl MissReason {
    /// The name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ModelChanged => "model_changed",
            Self::SystemChanged => "system_changed",
            Self::ToolsChanged { .. } => "tools_changed",
            Self::MessagesChanged { .. } => "messages_changed",
            Self::PreviousNotFound => "previous_not_found",
            Self::Unavailable => "unavailable",
            Self::TierParameterChanged { .. } => "tier_parameter_changed",
            Self::SurfaceReplace { .. } => "surface_replace",
            Self::RestartDrift { .. } => "restart_drift",
            Self::LookbackExceeded => "lookback_exceeded",
            Self::BelowMinimum => "below_minimum",
            Self::Expired => "expired",
            Self::ColdParallel => "cold_parallel",
            Self::UnitNotAligned => "unit_not_aligned",
            Self::Routing => "routing",
            Self::ImageVariantChanged { .. } => "image_variant_changed",
            Self::Unexplained => "unexplained",
        }
    }
}

/// What a request can expect to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Segments read from the cache.
    pub segments: usize,
    /// Their estimated tokens.
    pub tokens: u64,
    /// Why it is less than all that the request before sent; `None` where it is all.
    pub miss: Option<MissReason>,
}

impl Expectation {
    /// Why the provider read `reported` tokens and no more: the expected reason, or
    /// [`MissReason::Unexplained`] where less than a quarter of the estimate was read. The
    /// estimate counts a token for three bytes of text, which is more than most texts have.
    pub fn judge(&self, reported: u64) -> Option<MissReason> {
        let short = reported.saturating_mul(4) < self.tokens;
        self.miss.clone().or_else(|| short.then_some(MissReason::Unexplained))
    }
}

/// What `next` can read of what `previous` wrote.
pub fn expected_cached(previous: Option<&Footprint>, next: &Footprint, context: Context) -> Expectation {
    let nothing = |miss| Expectation { segments: 0, tokens: 0, miss: Some(miss) };
    let Some(previous) = previous else { return nothing(MissReason::PreviousNotFound) };
    if previous.provider != next.provider || previous.model != next.model {
        return nothing(MissReason::ModelChanged);
    }
    if next.rule.mechanism == Mechanism::None {
        return nothing(MissReason::Unavailable);
    }
    if context.parallel {
        return nothing(MissReason::ColdParallel);
    }
    if next.rule.cache_key && previous.cache_key != next.cache_key {
        return nothing(MissReason::Routing);
    }
    let lifetime_s = if context.hour { 3_600 } else { next.rule.lifetime_s() };
    if lifetime_s > 0 && context.gap_ms.is_some_and(|gap| lifetime_s.saturating_mul(1_000) < gap) {
        return nothing(MissReason::Expired);
    }
    let difference = difference(previous, next, context);
    let common = difference.as_ref().map_or(previous.segments.len(), |(common, _)| *common);
    let (segments, why_not) = reachable(previous, next, common);
    let tokens = match next.rule.mechanism {
        Mechanism::OpenaiImplicit => {
            let (tokens, step) = (next.tokens(segments), next.rule.granularity_tokens.max(1));
            tokens - tokens % step
        }
        _ => next.tokens(segments),
    };
    let miss = if segments == previous.segments.len() {
        None
    } else {
        difference
            .map(|(_, reason)| reason)
            .filter(|_| why_not != Some(MissReason::UnitNotAligned))
            .or(why_not)
    };
    Expectation { segments, tokens, miss }
}

/// How many of the `common` segments can be read, and why not all of them.
fn reachable(previous: &Footprint, next: &Footprint, common: usize) -> (usize, Option<MissReason>) {
    let long_enough = |count: &usize| next.rule.min_tokens <= next.tokens(*count);
    let best = |found: Option<usize>, why: MissReason| match found {
        Some(count) if count == common => (count, None),
        Some(count) => (count, Some(why)),
        None if next.tokens(common) < next.rule.min_tokens => (0, Some(MissReason::BelowMinimum)),
        None => (0, Some(why)),
    };
    match next.rule.mechanism {
        Mechanism::None => (0, Some(MissReason::Unavailable)),
        Mechanism::OpenaiImplicit | Mechanism::Gemini => {
            best(Some(common).filter(long_enough), MissReason::BelowMinimum)
        }
        Mechanism::Anthropic => {
            // A breakpoint looks at its own block and the twenty before it.
            let sees = |written: &usize| {
                next.breakpoints.iter().any(|point| *written <= *point && *point <= *written + 20)
            };
            let written = previous.breakpoints.iter().copied().filter(|point| *point <= common);
            best(written.filter(long_enough).filter(sees).max(), MissReason::LookbackExceeded)
        }
        Mechanism::OpenaiExplicit => {
            let tail = previous.segments.len();
            let written = previous.breakpoints.iter().copied().chain([tail]);
            let written = written.filter(|point| *point <= common).filter(long_enough);
            best(written.max(), MissReason::LookbackExceeded)
        }
        Mechanism::Deepseek => {
            // Units end where a request's input ended, and where the model's answer ended.
            let units = previous.ends.iter().copied().chain([previous.segments.len()]);
            best(units.filter(|end| *end <= common).max(), MissReason::UnitNotAligned)
        }
    }
}

/// Where `next` stops being an extension of `previous`, and why; `None` where it never does.
fn difference(previous: &Footprint, next: &Footprint, context: Context) -> Option<(usize, MissReason)> {
    let pairs = previous.segments.iter().zip(&next.segments);
    let common = pairs.take_while(|(a, b)| a.digest == b.digest && a.kind == b.kind).count();
    let tools = next.tools().count();
    if !previous.tools().map(|tool| tool.digest).eq(next.tools().map(|tool| tool.digest)) {
        return Some((0, MissReason::ToolsChanged { how: tools_changed(previous, next) }));
    }
    if !previous.system().map(|block| block.digest).eq(next.system().map(|block| block.digest)) {
        return Some((common, MissReason::SystemChanged));
    }
    if previous.tiers != next.tiers {
        let field = changed_field(&next.tiers, &previous.tiers)
            .or_else(|| changed_field(&previous.tiers, &next.tiers))
            .unwrap_or_default();
        let kept =
            if next.rule.mechanism == Mechanism::Anthropic { tools + next.system().count() } else { 0 };
        return Some((kept.min(common), MissReason::TierParameterChanged { field }));
    }
    if common == previous.segments.len() {
        return None;
    }
    let seq = next.segments.get(common).and_then(|segment| segment.seq);
    let before = previous.segments.get(common).and_then(|segment| segment.seq);
    let image = |footprint: &Footprint| {
        footprint.segments.get(common).is_some_and(|segment| segment.kind == SegmentKind::Image)
    };
    let reason = if seq == before && image(previous) && image(next) {
        MissReason::ImageVariantChanged { seq }
    } else if context.replaced {
        MissReason::SurfaceReplace { segment: common, seq }
    } else if context.reopened && seq == before {
        MissReason::RestartDrift { seq }
    } else {
        MissReason::MessagesChanged { segment: common, seq }
    };
    Some((common, reason))
}

fn changed_field(these: &[(String, String)], those: &[(String, String)]) -> Option<String> {
    these.iter().find(|pair| !those.contains(pair)).map(|(field, _)| field.clone())
}

fn tools_changed(previous: &Footprint, next: &Footprint) -> &'static str {
    let (mut before, mut after) = (previous.tool_names.clone(), next.tool_names.clone());
    if before == after {
        return "edited";
    }
    before.sort_unstable();
    after.sort_unstable();
    if before == after {
        "reordered"
    } else if after.len() < before.len() {
        "removed"
    } else {
        "added"
    }
}

//! Where cache breakpoints go: a pure function of the request's layout.
//!
//! Anthropic, at most four: the end of the stable head; the last block before each of the two
//! newest assistant nodes, since that is where the two requests before this one ended and wrote;
//! the last block. So the next request looks exactly where this one wrote, whatever a turn adds:
//! forty parallel calls and their results cannot push it out of the twenty blocks. OpenAI with
//! explicit breakpoints: the head and the newest such ends; the tail is automatic. Others: none.
//!
//! No breakpoint stands on a block that the provider refuses one on (thinking), nor where the
//! prefix is surely under the model's minimum, by an estimate of a token for three bytes.

use super::super::body::Layout;
use super::super::{BodyOptions, Lifetime};
use super::Mechanism;

/// What stands before a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::formats) struct Span {
    pub(in crate::formats) blocks: usize,
    pub(in crate::formats) tokens: u64,
    pub(in crate::formats) bytes: usize,
}

/// A marker laid over a chunk: the head's, or a node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::formats) struct Insert {
    pub(in crate::formats) node: Option<usize>,
    pub(in crate::formats) at: usize,
    pub(in crate::formats) text: &'static str,
}

/// A block that gets a breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::formats) struct Point {
    /// Node and mark; `None` for the last tool.
    pub(in crate::formats) place: Option<(usize, usize)>,
    /// Blocks up to and with this one.
    pub(in crate::formats) blocks: usize,
    /// Estimated tokens up to and with this one.
    pub(in crate::formats) tokens: u64,
}

const DEFAULT: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";
const HOUR: &str = ",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}";
const EXPLICIT: &str = ",\"prompt_cache_breakpoint\":{\"mode\":\"explicit\"}";

/// The breakpoints of a request, in order. Cost: O(1) in its length.
pub(in crate::formats) fn points(layout: &Layout) -> Vec<Point> {
    let rule = &layout.route().rule;
    let (ends, count_max) = match rule.mechanism {
        Mechanism::Anthropic => (true, 4),
        Mechanism::OpenaiExplicit => (false, 3),
        _ => return Vec::new(),
    };
    let mut found: Vec<Point> = head(layout).into_iter().collect();
    let newest = layout.assistants.iter().rev().take(2);
    found.extend(newest.filter_map(|node| last_before(layout, *node)));
    if ends {
        found.extend(last_before(layout, layout.entries.len()));
    }
    found.retain(|point| rule.min_tokens_least() <= point.tokens);
    found.sort_unstable();
    found.dedup();
    debug_assert!(found.len() <= count_max, "a provider takes no more");
    found
}

/// The markers of a request.
pub(in crate::formats) fn inserts(layout: &Layout, options: &BodyOptions) -> Vec<Insert> {
    if !options.breakpoints {
        return Vec::new();
    }
    let explicit = layout.route().rule.mechanism == Mechanism::OpenaiExplicit;
    let text = |point: &Point| match options.head_lifetime {
        _ if explicit => EXPLICIT,
        Lifetime::Hour if is_head(layout, point) => HOUR,
        _ => DEFAULT,
    };
    let insert = |point: Point| {
        let (node, at) = match point.place {
            None => (None, layout.head.last_tool?),
            Some((node, mark)) => (Some(node), layout.entries.get(node)?.marks.get(mark)?.at),
        };
        Some(Insert { node, at, text: text(&point) })
    };
    points(layout).into_iter().filter_map(insert).collect()
}

fn is_head(layout: &Layout, point: &Point) -> bool {
    point.place.is_none_or(|(node, mark)| {
        layout.entries.get(node).and_then(|entry| entry.marks.get(mark)).is_some_and(|mark| mark.head)
    })
}

/// The end of the stable head: the last block of the leading system nodes, or the last tool.
fn head(layout: &Layout) -> Option<Point> {
    let leading = layout.entries.iter().take_while(|entry| entry.marks.iter().all(|mark| mark.head)).count();
    let system = last_before(layout, leading).filter(|point| is_head(layout, point));
    let tokens = layout.head_bytes().len().div_ceil(3) as u64;
    system.or_else(|| layout.head.last_tool.map(|_| Point { place: None, blocks: 0, tokens }))
}

/// The last block before `node` that takes a breakpoint.
pub(in crate::formats) fn last_before(layout: &Layout, node: usize) -> Option<Point> {
    let before = layout.entries.get(..node)?;
    before.iter().enumerate().rev().find_map(|(index, entry)| {
        let mark = entry.marks.iter().rposition(|mark| mark.markable)?;
        let tokens: u64 = entry.marks.iter().take(mark + 1).map(|mark| u64::from(mark.tokens)).sum();
        Some(Point {
            place: Some((index, mark)),
            blocks: entry.before.blocks + mark + 1,
            tokens: entry.before.tokens + tokens,
        })
    })
}

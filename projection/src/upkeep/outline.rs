//! The outline of a surface: which nodes belong together.
//!
//! Owns the rule what a compaction may cover. A range is good when it leaves node 0 alone while that
//! is the system prompt, covers nothing that is to be kept, and holds of each tool call both the call
//! and its result, or neither.

use std::collections::HashMap;
use std::ops::Range;

use rederive_engine::{Fold, NodeKind, Seq, Surface};

use super::error::RangeError;
use crate::pairing::ids;
use crate::step::message::Object;

/// A range of the surface that may be compacted. Made by [`Upkeep::check_range`] and
/// [`Upkeep::oldest_exchanges`] alone.
///
/// [`Upkeep::check_range`]: super::Upkeep::check_range
/// [`Upkeep::oldest_exchanges`]: super::Upkeep::oldest_exchanges
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurfaceRange {
    pub(super) start: Seq,
    pub(super) end: Seq,
}

impl SurfaceRange {
    /// The first node that is covered.
    pub fn start(&self) -> Seq {
        self.start
    }

    /// The last node that is covered.
    pub fn end(&self) -> Seq {
        self.end
    }

    pub(super) fn to_json(self) -> String {
        Object::new().raw("start", self.start).raw("end", self.end).finish()
    }
}

struct Entry {
    seq: Seq,
    kind: NodeKind,
    bytes: u64,
    calls: usize,
}

/// A tool call and its result, by their indices on the surface.
struct Pair {
    call: String,
    asked: usize,
    answered: Option<usize>,
}

pub(super) struct Outline {
    entries: Vec<Entry>,
    pairs: Vec<Pair>,
}

impl Outline {
    /// One pass over the surface.
    pub(super) fn of(surface: &Surface) -> Self {
        let (mut entries, mut pairs) = (Vec::with_capacity(surface.len()), Vec::new());
        let mut open: HashMap<String, usize> = HashMap::new();
        for (index, node) in surface.nodes().enumerate() {
            let mut calls = 0;
            match node.kind() {
                NodeKind::Assistant => {
                    for call in ids(node.text(), "tool-call", "id") {
                        calls += 1;
                        open.insert(call.clone(), pairs.len());
                        pairs.push(Pair { call, asked: index, answered: None });
                    }
                }
                NodeKind::ToolResult => {
                    for call in ids(node.text(), "tool-result", "toolCallId") {
                        let pair = open.remove(&call).and_then(|pair| pairs.get_mut(pair));
                        if let Some(pair) = pair {
                            pair.answered = Some(index);
                        }
                    }
                }
                _ => {}
            }
            let (seq, kind, bytes) = (node.seq(), node.kind(), node.text().len() as u64);
            entries.push(Entry { seq, kind, bytes, calls });
        }
        Self { entries, pairs }
    }

    /// Whether the entry at `index` must not be covered.
    fn is_kept(&self, index: usize, keep: &[Seq]) -> bool {
        let entry = self.entries.get(index);
        entry.is_some_and(|entry| (index == 0 && entry.kind == NodeKind::System) || keep.contains(&entry.seq))
    }

    fn seqs(&self, range: &Range<usize>) -> Option<SurfaceRange> {
        let (start, end) = (self.entries.get(range.start)?, self.entries.get(range.end.checked_sub(1)?)?);
        Some(SurfaceRange { start: start.seq, end: end.seq })
    }

    /// The first pair that `range` parts, and the index of its half outside.
    fn parted(&self, range: &Range<usize>) -> Option<(&Pair, usize)> {
        self.pairs.iter().find_map(|pair| {
            let answered = pair.answered?;
            match (range.contains(&pair.asked), range.contains(&answered)) {
                (true, false) => Some((pair, answered)),
                (false, true) => Some((pair, pair.asked)),
                _ => None,
            }
        })
    }

    /// The smallest range around `range` that parts no pair and covers nothing that is kept.
    fn widen(&self, mut range: Range<usize>, keep: &[Seq]) -> Option<Range<usize>> {
        while let Some((_, outside)) = self.parted(&range) {
            range = range.start.min(outside)..range.end.max(outside + 1);
        }
        (!range.clone().any(|index| self.is_kept(index, keep))).then_some(range)
    }

    pub(super) fn check(
        &self,
        fold: &Fold,
        start: Seq,
        end: Seq,
        keep: &[Seq],
    ) -> Result<SurfaceRange, RangeError> {
        let range = fold.surface().range(start, end).ok_or(RangeError::NoRange { start, end })?;
        for index in range.clone() {
            if let Some(entry) = self.entries.get(index).filter(|_| self.is_kept(index, keep)) {
                let seq = entry.seq;
                return Err(if keep.contains(&seq) {
                    RangeError::Kept { seq }
                } else {
                    RangeError::SystemHead { seq }
                });
            }
        }
        let covered = |seq| fold.surface().index_of(seq).is_some_and(|index| range.contains(&index));
        if let Some(pending) = fold.turn().pending_calls().iter().find(|call| covered(call.node())) {
            return Err(RangeError::Pending { call: pending.call_id().to_owned(), node: pending.node() });
        }
        if let Some((pair, outside)) = self.parted(&range) {
            let node = self.entries.get(outside).map_or(start, |entry| entry.seq);
            let widened = self.widen(range.clone(), keep).and_then(|range| self.seqs(&range));
            let widened = widened.map(|range| (range.start, range.end));
            return Err(RangeError::PartsCall { call: pair.call.clone(), node, widened });
        }
        Ok(SurfaceRange { start, end })
    }

    /// The oldest complete exchanges of at most `budget_bytes`.
    pub(super) fn oldest(&self, budget_bytes: u64, keep: &[Seq]) -> Option<SurfaceRange> {
        let start = (0..self.entries.len()).find(|index| !self.is_kept(*index, keep))?;
        let mut open = 0_usize;
        let mut last_answer: HashMap<usize, usize> = HashMap::new();
        for pair in &self.pairs {
            if let Some(answered) = pair.answered {
                *last_answer.entry(answered).or_default() += 1;
            }
        }
        let (mut bytes, mut best) = (0_u64, None);
        for (index, entry) in self.entries.iter().enumerate().skip(start) {
            if self.is_kept(index, keep) {
                break;
            }
            bytes = bytes.saturating_add(entry.bytes);
            if bytes > budget_bytes {
                break;
            }
            open = (open + entry.calls).saturating_sub(last_answer.get(&index).copied().unwrap_or(0));
            let ends_exchange = matches!(entry.kind, NodeKind::Assistant | NodeKind::ToolResult);
            if open == 0 && ends_exchange {
                best = Some(start..index + 1);
            }
        }
        best.filter(|range| self.parted(range).is_none()).and_then(|range| self.seqs(&range))
    }
}

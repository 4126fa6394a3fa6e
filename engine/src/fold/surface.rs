//! The surface: the ordered list of nodes that the model sees now.
//!
//! Owns order, replace and generation. Knows nodes and places; knows no admission rules and no
//! requests. A snapshot costs O(1) and never changes.
//!
//! A node's [`Place`] is the seq of the append that first took it; a replacing node inherits the
//! place of the first node that it shadows. So places ascend along the surface for ever, a node is
//! found by binary search, and a replace touches what it shadows and O(log n) of the rest (the
//! sequence is an RRB tree, from the crate `imbl`).

use std::ops::Range;
use std::sync::Arc;

use imbl::Vector;

use crate::event::NodeKind;
use crate::event::value::ValueDigest;
use crate::ids::{Generation, Place, Seq};

/// One entry of the surface: an event that the model sees now.
#[derive(Debug, PartialEq, Eq)]
pub struct Node {
    pub(crate) seq: Seq,
    pub(crate) place: Place,
    pub(crate) kind: NodeKind,
    pub(crate) rest: Option<ValueDigest>,
    pub(crate) text: Box<str>,
}

impl Node {
    /// The event that the node is.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Where the node stands.
    pub fn place(&self) -> Place {
        self.place
    }

    /// What the node is.
    pub fn kind(&self) -> NodeKind {
        self.kind
    }

    /// The verbatim text of the node's message.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// For a tool result, the digest of everything in its data but the message's content.
    pub(crate) fn rest_digest(&self) -> Option<ValueDigest> {
        self.rest
    }
}

/// The ordered list of nodes that the model sees, as of one moment.
///
/// Cloning is a snapshot: O(1), and independent of what happens to the original.
#[derive(Clone, Debug, Default)]
pub struct Surface {
    nodes: Vector<Arc<Node>>,
    generation: Generation,
    /// The places of nodes that came by a replace: for all others the place is their seq.
    moved: imbl::HashMap<Seq, Place>,
    /// For past generations, from which index on the surface may have changed: generations ascend,
    /// and so do indices, since an older change behind a newer one in front of it no longer counts.
    changes: Arc<Vec<(Generation, usize)>>,
    /// The places of the system nodes, ascending. They are few.
    systems: Arc<Vec<Place>>,
}

/// How many changes a surface remembers one by one.
const CHANGES_MAX: usize = 32;

/// How to take back one operation.
#[derive(Debug)]
pub(crate) enum Undo {
    Appended,
    Replaced { index: usize, shadowed: Vector<Arc<Node>>, changes: Arc<Vec<(Generation, usize)>> },
}

impl Surface {
    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the model sees nothing.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many replaces the surface has seen.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The nodes in surface order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &Arc<Node>> + DoubleEndedIterator {
        self.nodes.iter()
    }

    /// The node at `index`. O(log n).
    pub fn at(&self, index: usize) -> Option<&Arc<Node>> {
        self.nodes.get(index)
    }

    /// The first node.
    pub fn first(&self) -> Option<&Arc<Node>> {
        self.nodes.front()
    }

    /// The last node.
    pub fn last(&self) -> Option<&Arc<Node>> {
        self.nodes.back()
    }

    /// The nodes of a range of indices, which is cut to the surface's length.
    pub fn slice(&self, range: Range<usize>) -> impl Iterator<Item = &Arc<Node>> {
        let end = range.end.min(self.nodes.len());
        self.nodes.focus().narrow(range.start.min(end)..end).into_iter()
    }

    /// The node of the event `seq`, where it is on the surface now. O(log n).
    pub fn get(&self, seq: Seq) -> Option<&Arc<Node>> {
        self.index_of(seq).and_then(|index| self.nodes.get(index))
    }

    /// The system nodes, in surface order. O(system nodes × log n).
    pub fn system_nodes(&self) -> impl DoubleEndedIterator<Item = &Arc<Node>> {
        self.systems.iter().filter_map(|place| {
            let index = self.nodes.binary_search_by(|node| node.place.cmp(place)).ok()?;
            self.nodes.get(index)
        })
    }

    /// The index of the event `seq`, where it is on the surface now. O(log n).
    pub fn index_of(&self, seq: Seq) -> Option<usize> {
        let place = self.moved.get(&seq).copied().unwrap_or(Place(seq.value()));
        let index = self.nodes.binary_search_by(|node| node.place.cmp(&place)).ok()?;
        self.nodes.get(index).filter(|node| node.seq == seq).map(|_| index)
    }

    /// The indices of the inclusive range `start..=end`; `None` where one of the two is not on the
    /// surface or they are out of order.
    pub fn range(&self, start: Seq, end: Seq) -> Option<Range<usize>> {
        let (start, end) = (self.index_of(start)?, self.index_of(end)?);
        (start <= end).then_some(start..end + 1)
    }

    /// How many leading nodes are the same now as they were at the generation `since`, of which
    /// there were at least so many. O(log replaces).
    pub fn unchanged_since(&self, since: Generation) -> usize {
        let first_later = self.changes.partition_point(|(generation, _)| *generation <= since);
        self.changes.get(first_later).map_or(usize::MAX, |(_, index)| *index)
    }

    pub(crate) fn append(&mut self, node: Node) -> Undo {
        debug_assert!(self.nodes.back().is_none_or(|last| last.place < node.place), "places ascend");
        self.index_system(&node);
        self.nodes.push_back(Arc::new(node));
        Undo::Appended
    }

    /// Puts `node`, whose place is set here, in the place of the nodes at `range`.
    pub(crate) fn replace(&mut self, range: Range<usize>, mut node: Node) -> Undo {
        debug_assert!(!range.is_empty() && range.end <= self.nodes.len(), "admission checked the range");
        let index = range.start;
        // A long range is cut out of the tree, not copied from it.
        let (shadowed, tail) = if range.len() == 1 {
            (self.nodes.get(index).cloned().into_iter().collect(), None)
        } else {
            let tail = self.nodes.split_off(range.end);
            (self.nodes.split_off(range.start), Some(tail))
        };
        if let Some(first) = shadowed.front() {
            node.place = first.place;
        }
        for old in &shadowed {
            if old.place.value() != old.seq.value() {
                self.moved.remove(&old.seq);
            }
            self.forget_system(old);
        }
        self.moved.insert(node.seq, node.place);
        self.index_system(&node);
        let node = Arc::new(node);
        if let Some(tail) = tail {
            self.nodes.push_back(node);
            self.nodes.append(tail);
        } else {
            self.nodes.set(index, node);
        }
        let before = Arc::clone(&self.changes);
        self.generation = self.generation.next();
        // Always of one size, and a small one: an allocator has such a block at hand.
        let mut changes = Vec::with_capacity(CHANGES_MAX + 1);
        changes.extend(self.changes.iter().copied().filter(|(_, earlier)| *earlier < index));
        changes.push((self.generation, index));
        if changes.len() > CHANGES_MAX
            && let Some((_, oldest)) = changes.first().copied()
        {
            // The two oldest become one that claims the larger change, which is never wrong.
            changes.remove(0);
            if let Some((_, index)) = changes.first_mut() {
                *index = oldest;
            }
        }
        self.changes = Arc::new(changes);
        Undo::Replaced { index, shadowed, changes: before }
    }

    pub(crate) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Appended => {
                if let Some(node) = self.nodes.pop_back() {
                    self.forget_system(&node);
                }
            }
            Undo::Replaced { index, shadowed, changes } => {
                if let Some(node) = self.nodes.get(index).cloned() {
                    self.moved.remove(&node.seq);
                    self.forget_system(&node);
                }
                for node in &shadowed {
                    self.index_system(node);
                    if node.place.value() != node.seq.value() {
                        self.moved.insert(node.seq, node.place);
                    }
                }
                let tail = self.nodes.split_off(index + 1);
                self.nodes.truncate(index);
                self.nodes.append(shadowed);
                self.nodes.append(tail);
                self.generation = Generation::new(self.generation.value().saturating_sub(1));
                self.changes = changes;
            }
        }
    }

    fn index_system(&mut self, node: &Node) {
        if node.kind == NodeKind::System {
            let at = self.systems.partition_point(|place| *place < node.place);
            Arc::make_mut(&mut self.systems).insert(at, node.place);
        }
    }

    fn forget_system(&mut self, node: &Node) {
        if node.kind == NodeKind::System
            && let Ok(at) = self.systems.binary_search(&node.place)
        {
            Arc::make_mut(&mut self.systems).remove(at);
        }
    }

    /// A surface of `nodes`, in order, after `generation` replaces.
    pub(crate) fn restore(nodes: impl IntoIterator<Item = Node>, generation: Generation) -> Self {
        let nodes: Vector<Arc<Node>> = nodes.into_iter().map(Arc::new).collect();
        let moved = nodes
            .iter()
            .filter(|node| node.place.value() != node.seq.value())
            .map(|node| (node.seq, node.place))
            .collect();
        let systems =
            nodes.iter().filter(|node| node.kind == NodeKind::System).map(|node| node.place).collect();
        Self { nodes, generation, moved, changes: Arc::default(), systems: Arc::new(systems) }
    }

    /// The nodes' seqs, in order.
    pub fn seqs(&self) -> Vec<Seq> {
        self.nodes.iter().map(|node| node.seq).collect()
    }
}

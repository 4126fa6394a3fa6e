//! Bodies, and the two drivers of the fold that makes them.
//!
//! Owns the chunk list: head, one chunk a node, envelope, and the breakpoints laid over them.
//! Chunks are immutable and shared by every body that shows their node.

use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use bytes::Bytes;
use imbl::Vector;

use super::cache::plan::{self, Insert, Span};
use super::error::{Applied, FormatError};
use super::fold::{Fold, ImageFact, Mark, Open, Piece};
use super::{BodyOptions, Format, Head, ImageSource, RequestView};

/// The JSON body of one request: immutable, in pieces, its length known.
#[derive(Clone, Debug)]
pub struct Body {
    format: Format,
    head: Bytes,
    nodes: Vector<Bytes>,
    inserts: Vec<Insert>,
    tail: &'static str,
    bare_len: usize,
    rules: Vector<Applied>,
    digest: Option<blake3::Hash>,
}

impl Body {
    /// The format that made it.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Its length in bytes. Cost: O(1).
    pub fn len(&self) -> usize {
        self.bare_len + self.inserts.iter().map(|insert| insert.text.len()).sum::<usize>()
    }

    /// Whether it has no bytes; no body of a format is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The length of what ends it, and no later body repeats.
    pub fn envelope_len(&self) -> usize {
        self.tail.len()
    }

    /// The number of cache breakpoints in it.
    pub fn breakpoints(&self) -> usize {
        self.inserts.len()
    }

    /// The rules that were applied, header first, then in node order.
    pub fn rules(&self) -> impl Iterator<Item = &Applied> {
        self.rules.iter()
    }

    /// The same body without cache breakpoints. Cost: O(1).
    #[must_use]
    pub fn without_breakpoints(&self) -> Self {
        Self { inserts: Vec::new(), digest: None, ..self.clone() }
    }

    /// Its bytes, in order; no chunk is empty.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let nodes = self.nodes.iter().enumerate().map(|(index, bytes)| (Some(index), bytes.as_ref()));
        std::iter::once((None, self.head.as_ref()))
            .chain(nodes)
            .flat_map(|(node, bytes)| self.split(node, bytes))
            .chain(std::iter::once(self.tail.as_bytes()))
            .filter(|chunk| !chunk.is_empty())
    }

    fn split<'b>(&'b self, node: Option<usize>, bytes: &'b [u8]) -> Split<'b> {
        let mut here = self.inserts.iter().filter(|insert| insert.node == node).peekable();
        if here.peek().is_none() {
            return Split::Whole(Some(bytes));
        }
        let (mut parts, mut from) = (Vec::new(), 0);
        for insert in here {
            parts.push(bytes.get(from..insert.at).unwrap_or_default());
            parts.push(insert.text.as_bytes());
            from = insert.at;
        }
        parts.push(bytes.get(from..).unwrap_or_default());
        Split::Parts(parts.into_iter())
    }

    /// Its bytes as slices for a vectored write. Cost: one allocation of a slice a node.
    pub fn io_slices(&self) -> Vec<IoSlice<'_>> {
        self.chunks().map(IoSlice::new).collect()
    }

    /// Writes it to `out`.
    ///
    /// # Errors
    ///
    /// What `out` says.
    pub fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        self.chunks().try_for_each(|chunk| out.write_all(chunk))
    }

    /// Its bytes in one piece. Cost: a copy of all of it.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.chunks().for_each(|chunk| bytes.extend_from_slice(chunk));
        bytes
    }

    /// The BLAKE3 of its bytes. Cost: O(1) where [`BodyOptions::digest`] asked for it, else one pass
    /// over all of it.
    pub fn digest(&self) -> blake3::Hash {
        self.digest.unwrap_or_else(|| {
            let mut hasher = blake3::Hasher::new();
            self.chunks().for_each(|chunk| {
                hasher.update(chunk);
            });
            hasher.finalize()
        })
    }

    fn hash_nodes(&self, hasher: &mut blake3::Hasher, from: usize, to: usize) {
        // `focus` walks neighbours without a search for each.
        let mut focus = self.nodes.focus();
        for index in from..to {
            for part in self.split(Some(index), focus.get(index).map_or(&[], |bytes| bytes)) {
                hasher.update(part);
            }
        }
    }
}

/// One piece, or the parts between its breakpoints.
enum Split<'b> {
    Whole(Option<&'b [u8]>),
    Parts(std::vec::IntoIter<&'b [u8]>),
}

impl<'b> Iterator for Split<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        match self {
            Self::Whole(bytes) => bytes.take(),
            Self::Parts(parts) => parts.next(),
        }
    }
}

/// The body of a request, from nothing but the request: the pure function.
///
/// # Cost
///
/// One pass over the request.
///
/// # Errors
///
/// Each variant of [`FormatError`]; nothing is sent in part.
pub fn body(
    view: &dyn RequestView,
    options: &BodyOptions,
    objects: &dyn ImageSource,
) -> Result<Body, FormatError> {
    Ok(Layout::of(view, options, objects)?.body(options))
}

/// Everything that is known of a request in one format. Without a cache it is built in one go.
pub(super) struct Layout {
    pub(super) head: Head,
    head_bytes: Bytes,
    fold: Fold,
    nodes: Vector<Bytes>,
    pub(super) entries: Vec<Entry>,
    rules: Vector<Applied>,
    images: Vec<ImageFact>,
    /// The indexes of the nodes that a model said.
    pub(super) assistants: Vec<usize>,
}

/// One node, with what stood before it.
pub(super) struct Entry {
    pub(super) seq: u64,
    pub(super) marks: Box<[Mark]>,
    pub(super) before: Span,
    open: Open,
    ids: Box<[Arc<str>]>,
    rules: usize,
    images: usize,
    len: usize,
}

impl Layout {
    fn new(view: &dyn RequestView, options: &BodyOptions) -> Result<Self, FormatError> {
        let (head, route) = Head::build(view.header(), view.tree_id(), options)?;
        let mut layout = Self {
            head_bytes: Bytes::new(),
            head: Head::default(),
            fold: Fold::new(route),
            nodes: Vector::new(),
            entries: Vec::new(),
            rules: Vector::new(),
            images: Vec::new(),
            assistants: Vec::new(),
        };
        layout.set_head(head);
        Ok(layout)
    }

    /// A layout of the whole request, that a body can be made of.
    pub(super) fn of(
        view: &dyn RequestView,
        options: &BodyOptions,
        objects: &dyn ImageSource,
    ) -> Result<Self, FormatError> {
        let mut layout = Self::new(view, options)?;
        layout.extend(view, objects)?;
        layout.check(options)?;
        Ok(layout)
    }

    fn set_head(&mut self, mut head: Head) {
        self.head_bytes = Bytes::from(std::mem::take(&mut head.bytes));
        self.head = head;
    }

    pub(super) fn route(&self) -> &super::fold::Route {
        &self.fold.route
    }

    pub(super) fn head_bytes(&self) -> &[u8] {
        &self.head_bytes
    }

    pub(super) fn node_bytes(&self, index: usize) -> &[u8] {
        self.nodes.get(index).map_or(&[], |bytes| bytes)
    }

    /// What stands before the node that would come next.
    pub(super) fn end(&self) -> Span {
        self.entries.last().map_or_else(
            || Span { blocks: 0, tokens: self.head_bytes.len().div_ceil(3) as u64, bytes: 0 },
            |entry| {
                let tokens: u64 = entry.marks.iter().map(|mark| u64::from(mark.tokens)).sum();
                Span {
                    blocks: entry.before.blocks + entry.marks.len(),
                    tokens: entry.before.tokens + tokens,
                    bytes: entry.before.bytes + entry.len,
                }
            },
        )
    }

    /// Takes the nodes of `view` after those that are there.
    fn extend(&mut self, view: &dyn RequestView, objects: &dyn ImageSource) -> Result<(), FormatError> {
        for index in self.entries.len()..view.len() {
            let node = view.message(index);
            let open = self.fold.open.clone();
            let mut piece = self.fold.push(node, objects)?;
            self.take(node.seq, open, &mut piece);
        }
        Ok(())
    }

    fn take(&mut self, seq: u64, open: Open, piece: &mut Piece) {
        let before = self.end();
        if piece.assistant {
            self.assistants.push(self.entries.len());
        }
        let (rules, images) = (self.rules.len(), self.images.len());
        self.rules.extend(piece.rules.drain(..));
        self.images.append(&mut piece.images);
        self.entries.push(Entry {
            seq,
            marks: std::mem::take(&mut piece.marks).into_boxed_slice(),
            before,
            open,
            ids: piece.take_ids().into_boxed_slice(),
            rules,
            images,
            len: piece.bytes.len(),
        });
        self.nodes.push_back(Bytes::from(std::mem::take(&mut piece.bytes)));
    }

    /// Goes back to the first `keep` nodes. Cost: O(nodes dropped).
    fn truncate(&mut self, keep: usize) {
        let Some(first) = self.entries.get(keep) else { return };
        self.fold.open = first.open.clone();
        self.rules.truncate(first.rules);
        self.images.truncate(first.images);
        for entry in self.entries.drain(keep..) {
            self.fold.forget(&entry.ids);
        }
        self.nodes.truncate(keep);
        while self.assistants.last().is_some_and(|index| keep <= *index) {
            self.assistants.pop();
        }
    }

    /// What only the whole request can break.
    fn check(&self, options: &BodyOptions) -> Result<(), FormatError> {
        self.fold.tail()?;
        let limits = options.images;
        let over = |limit: String, breaks: &dyn Fn(&ImageFact) -> bool| {
            let mut seqs: Vec<u64> =
                self.images.iter().filter(|fact| breaks(fact)).map(|fact| fact.seq).collect();
            seqs.dedup();
            if seqs.is_empty() { Ok(()) } else { Err(FormatError::ImageLimit { limit, seqs }) }
        };
        if let Some(max) = limits.count_max.filter(|max| *max < self.images.len()) {
            over(format!("{max} images"), &|_| true)?;
        }
        if let Some(max) = limits.bytes_max {
            over(format!("{max} bytes"), &|fact| max < fact.bytes)?;
        }
        match limits.side_max_over {
            Some((count, side)) if count < self.images.len() => {
                over(format!("side {side} with more than {count} images"), &|fact| side < fact.side)
            }
            _ => Ok(()),
        }
    }

    /// The body; [`Layout::check`] has passed. Cost: O(log nodes), and the breakpoints.
    fn body(&self, options: &BodyOptions) -> Body {
        let mut rules: Vector<Applied> = self.head.rules.iter().cloned().collect();
        rules.append(self.rules.clone());
        let tail = self.fold.tail().unwrap_or_default();
        Body {
            format: options.format,
            head: self.head_bytes.clone(),
            nodes: self.nodes.clone(),
            inserts: plan::inserts(self, options),
            tail,
            bare_len: self.head_bytes.len() + self.end().bytes + tail.len(),
            rules,
            digest: None,
        }
    }
}

/// Bodies of one session in one format, each built from the pieces of the one before.
#[derive(Default)]
pub struct BodyBuilder {
    known: Option<Known>,
}

struct Known {
    header: String,
    tree_id: String,
    options: BodyOptions,
    layout: Layout,
    running: Option<Running>,
}

/// The hash of a body's start, up to where its breakpoints begin to move.
struct Running {
    nodes: usize,
    inserts: Vec<Insert>,
    hasher: blake3::Hasher,
}

impl std::fmt::Debug for BodyBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nodes = self.known.as_ref().map_or(0, |known| known.layout.entries.len());
        f.debug_struct("BodyBuilder").field("nodes", &nodes).finish_non_exhaustive()
    }
}

impl BodyBuilder {
    /// A builder that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The body of `view`, of which the first `unchanged` messages are those of the last call.
    /// Equal to [`body`] of the same arguments.
    ///
    /// # Cost
    ///
    /// O(messages dropped + messages new), and O(header) to compare the header. A changed header
    /// that keeps provider and model keeps the pieces too. The chunk list is shared, not copied.
    ///
    /// # Errors
    ///
    /// Those of [`body`]. The builder stays usable; the failed call counts as the last one.
    pub fn next(
        &mut self,
        view: &dyn RequestView,
        unchanged: usize,
        options: &BodyOptions,
        objects: &dyn ImageSource,
    ) -> Result<Body, FormatError> {
        let mut known = match self.known.take() {
            Some(known) => known.turn(view, options)?,
            None => Known::new(view, options)?,
        };
        known.truncate(unchanged.min(view.len()));
        let extended = known.layout.extend(view, objects);
        let known = self.known.insert(known);
        extended?;
        known.layout.check(options)?;
        let mut body = known.layout.body(options);
        if options.digest {
            body.digest = Some(known.digest(&body));
        }
        Ok(body)
    }
}

impl Known {
    fn truncate(&mut self, keep: usize) {
        self.running = self.running.take().filter(|running| running.nodes <= keep);
        self.layout.truncate(keep);
    }

    /// The digest of the newest body. Cost: O(bytes since the oldest breakpoint that moves).
    fn digest(&mut self, body: &Body) -> blake3::Hash {
        let stays = |insert: &&Insert| insert.node.is_some_and(|node| self.layout.starts_with_head(node));
        let moving =
            body.inserts.iter().filter(|insert| !stays(insert)).filter_map(|insert| insert.node).min();
        let settled = moving.unwrap_or(body.nodes.len());
        let same = |running: &Running| {
            let here = body.inserts.iter().filter(|insert| insert.node < Some(running.nodes));
            running.nodes <= settled && here.eq(&running.inserts)
        };
        let mut running = self.running.take().filter(same).unwrap_or_else(|| {
            let mut hasher = blake3::Hasher::new();
            for part in body.split(None, &body.head) {
                hasher.update(part);
            }
            Running { nodes: 0, inserts: Vec::new(), hasher }
        });
        body.hash_nodes(&mut running.hasher, running.nodes, settled);
        running.nodes = settled;
        running.inserts = body.inserts.iter().filter(|insert| insert.node < Some(settled)).copied().collect();
        let mut hasher = running.hasher.clone();
        self.running = Some(running);
        body.hash_nodes(&mut hasher, settled, body.nodes.len());
        hasher.update(body.tail.as_bytes());
        hasher.finalize()
    }

    fn new(view: &dyn RequestView, options: &BodyOptions) -> Result<Self, FormatError> {
        let layout = Layout::new(view, options)?;
        let (header, tree_id) = (view.header().to_owned(), view.tree_id().to_owned());
        Ok(Self { header, tree_id, options: options.clone(), layout, running: None })
    }

    /// Follows a change of header or options.
    fn turn(mut self, view: &dyn RequestView, options: &BodyOptions) -> Result<Self, FormatError> {
        if self.header == view.header() && self.tree_id == view.tree_id() && self.options == *options {
            return Ok(self);
        }
        let (head, route) = Head::build(view.header(), view.tree_id(), options)?;
        if route != self.layout.fold.route {
            return Self::new(view, options);
        }
        self.layout.set_head(head);
        self.layout.recount();
        self.running = None;
        view.header().clone_into(&mut self.header);
        view.tree_id().clone_into(&mut self.tree_id);
        self.options = options.clone();
        Ok(self)
    }
}

impl Layout {
    /// Whether the node belongs to the leading system prompt.
    fn starts_with_head(&self, node: usize) -> bool {
        self.entries.get(node).is_some_and(|entry| entry.marks.iter().any(|mark| mark.head))
    }

    /// Counts the tokens before each node again, after the head has changed.
    fn recount(&mut self) {
        let mut tokens = self.head_bytes.len().div_ceil(3) as u64;
        for entry in &mut self.entries {
            entry.before.tokens = tokens;
            tokens += entry.marks.iter().map(|mark| u64::from(mark.tokens)).sum::<u64>();
        }
    }
}

//! What stands in each section, as values, and their bytes in both directions.
//!
//! Fields of one kind stand together, since they compress best so. Bytes: FORMAT.md § Segments.

use std::sync::Arc;

use super::error::Malformed;
use super::layout::{CHECKSUM_LEN, PIECE_BYTES_MAX};
use super::wire::{Cursor, put, put_bytes, put_step};
use super::{SegmentMeta, StepKind, StepMark};
use crate::event::line::KeyOrder;
use crate::event::value::ValueDigest;
use crate::event::{Kind, LogOnly, NodeKind, SurfaceOp};
use crate::fold::{Checkpoint, NodeMark};
use crate::ids::{Place, Seq};

/// Codes of kinds: surface types, then the log-only types, then the segment's own names.
const LOG_ONLY_CODE: u64 = 4;
const FOREIGN_CODE: u64 = 64;
const _: () = assert!(LogOnly::ALL.len() as u64 + LOG_ONLY_CODE <= FOREIGN_CODE, "codes do not meet");

/// The most that a record claims while it is read: over the largest title and header line.
const RECORD_BYTES_MAX: usize = 256 << 20;

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<RECORD_BYTES_MAX>()
}

fn to_bincode(value: &impl bincode::Encode) -> Vec<u8> {
    // Writing plain records to memory has no way to fail.
    bincode::encode_to_vec(value, config()).unwrap_or_default()
}

fn from_bincode<T: bincode::Decode<()>>(bytes: &[u8]) -> Result<T, Malformed> {
    match bincode::decode_from_slice(bytes, config()) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        _ => Err(Malformed("the record does not read")),
    }
}

pub(super) fn write_meta(meta: &SegmentMeta) -> Vec<u8> {
    to_bincode(meta)
}

pub(super) fn read_meta(bytes: &[u8]) -> Result<SegmentMeta, Malformed> {
    from_bincode(bytes)
}

/// One block of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Texts or events in the block.
    pub(super) items: u32,
    /// Where the block starts, from the start of its column.
    pub(super) offset: u64,
    pub(super) stored: u64,
    pub(super) raw: u64,
    pub(super) checksum: [u8; CHECKSUM_LEN],
}

fn write_blocks(out: &mut Vec<u8>, blocks: &[Block]) {
    put(out, blocks.len() as u64);
    for block in blocks {
        put(out, u64::from(block.items));
        put(out, block.stored);
        out.extend_from_slice(&block.checksum);
    }
}

/// Reads a table of blocks over items of `lengths` raw bytes.
fn read_blocks(
    cursor: &mut Cursor<'_>,
    mut lengths: impl ExactSizeIterator<Item = u64>,
) -> Result<Vec<Block>, Malformed> {
    let count = cursor.count()?;
    let mut blocks = Vec::with_capacity(count.min(lengths.len()));
    let mut offset = 0_u64;
    for _ in 0..count {
        let items = cursor.short()?;
        let stored = cursor.number()?;
        let mut raw = 0_u64;
        for _ in 0..items {
            raw += lengths.next().ok_or(Malformed("a block holds more than there is"))?;
        }
        if items == 0 || stored > raw || raw > PIECE_BYTES_MAX {
            return Err(Malformed("a block's length is out of bounds"));
        }
        blocks.push(Block { items, offset, stored, raw, checksum: cursor.array()? });
        offset += stored;
    }
    if lengths.next().is_some() {
        return Err(Malformed("the blocks hold less than there is"));
    }
    Ok(blocks)
}

/// One text of the column `visible`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) seq: Seq,
    pub(super) bytes: u32,
    /// The text's block, and its place inside that block's raw bytes.
    pub(super) block: u32,
    pub(super) offset: u32,
    pub(super) rest: Option<ValueDigest>,
}

/// The texts of a segment, ascending by seq, and the blocks that hold them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) texts: Vec<Text>,
    pub(super) blocks: Vec<Block>,
}

impl Directory {
    pub(super) fn write(&self, first: Seq) -> Vec<u8> {
        let (mut seqs, mut lengths, mut rests) = (Vec::new(), Vec::new(), Vec::new());
        let mut due = first;
        for text in &self.texts {
            put(&mut seqs, text.seq.since(due));
            due = text.seq.next();
            put(&mut lengths, u64::from(text.bytes) << 1 | u64::from(text.rest.is_some()));
            rests.extend_from_slice(text.rest.as_ref().map_or(&[][..], |rest| rest));
        }
        let mut out = Vec::with_capacity(seqs.len() + lengths.len() + rests.len() + self.blocks.len() * 24);
        put(&mut out, self.texts.len() as u64);
        for part in [seqs, lengths, rests] {
            put_bytes(&mut out, &part);
        }
        write_blocks(&mut out, &self.blocks);
        out
    }

    pub(super) fn read(bytes: &[u8], first: Seq, count: u64) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let texts_len = cursor.count()?;
        let (mut seqs, mut lengths, mut rests) = (cursor.part()?, cursor.part()?, cursor.part()?);
        if texts_len > seqs.left() || texts_len as u64 > count {
            return Err(Malformed("a count is over what is there"));
        }
        let mut texts = Vec::with_capacity(texts_len);
        let mut due = first.value();
        let end = first.value() + count;
        for _ in 0..texts_len {
            let seq = due.checked_add(seqs.number()?).filter(|seq| *seq < end);
            let seq = Seq::new(seq.ok_or(Malformed("a text belongs to no event"))?);
            due = seq.next().value();
            let coded = lengths.number()?;
            let bytes = u32::try_from(coded >> 1).map_err(|_| Malformed("a text is too long"))?;
            let rest = if coded & 1 == 1 { Some(rests.array()?) } else { None };
            texts.push(Text { seq, bytes, block: 0, offset: 0, rest });
        }
        seqs.end()?;
        lengths.end()?;
        rests.end()?;
        let blocks = read_blocks(&mut cursor, texts.iter().map(|text| u64::from(text.bytes)))?;
        cursor.end()?;
        let mut rest = texts.iter_mut();
        for (index, block) in blocks.iter().enumerate() {
            let mut offset = 0;
            for text in rest.by_ref().take(block.items as usize) {
                text.block = index as u32;
                text.offset = offset;
                // A block is no longer than 1 GiB, which was checked.
                offset += text.bytes;
            }
        }
        Ok(Self { texts, blocks })
    }
}

/// How the bytes around an event's data are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShapeMark {
    Order(KeyOrder),
    /// Verbatim, in the column `rest` before the data, so many bytes each.
    Verbatim {
        before: u32,
        behind: u32,
    },
}

/// An event without its texts: what a scan of a log's structure needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) seq: Seq,
    pub(crate) time_ms: u64,
    pub(crate) kind: Kind,
    pub(crate) op: Option<SurfaceOp>,
    pub(super) sources: Option<Arc<[Seq]>>,
    pub(super) ignorable: bool,
    pub(super) shape: ShapeMark,
    /// Bytes of the data without its visible span.
    pub(super) data_rest: u32,
    /// Where the visible span starts in the data, where there is one.
    pub(super) visible_start: Option<u32>,
}

impl Envelope {
    /// Bytes of the event in the column `rest`.
    pub(super) fn rest_bytes(&self) -> u64 {
        let around = match self.shape {
            ShapeMark::Order(_) => 0,
            ShapeMark::Verbatim { before, behind } => u64::from(before) + u64::from(behind),
        };
        around + u64::from(self.data_rest)
    }
}

/// The envelopes of a segment, and the blocks of the column `rest`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Envelopes {
    pub(super) list: Vec<Envelope>,
    pub(super) blocks: Vec<Block>,
}

const OP_MASK: u8 = 0b11;
const HAS_SOURCES: u8 = 0b100;
const IGNORABLE: u8 = 0b1000;
const HAS_VISIBLE: u8 = 0b1_0000;
const FLAGS: u8 = OP_MASK | HAS_SOURCES | IGNORABLE | HAS_VISIBLE;

impl Envelopes {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut names: Vec<Arc<str>> = Vec::new();
        let mut name_codes = std::collections::HashMap::<Arc<str>, u64>::new();
        let mut orders: Vec<KeyOrder> = Vec::new();
        let mut parts: [Vec<u8>; 8] = Default::default();
        let [kinds, times, flags, ops, sources, shapes, lengths, starts] = &mut parts;
        let mut last_time = 0;
        for envelope in &self.list {
            put(
                kinds,
                match &envelope.kind {
                    Kind::SystemMessage => 0,
                    Kind::UserMessage => 1,
                    Kind::AssistantMessage => 2,
                    Kind::ToolResult => 3,
                    Kind::LogOnly(log_only) => LOG_ONLY_CODE + *log_only as u64,
                    Kind::Foreign(name) => {
                        let next = names.len() as u64;
                        FOREIGN_CODE
                            + *name_codes.entry(Arc::clone(name)).or_insert_with(|| {
                                names.push(Arc::clone(name));
                                next
                            })
                    }
                },
            );
            put_step(times, last_time, envelope.time_ms);
            last_time = envelope.time_ms;
            let mut flag = 0;
            match envelope.op {
                None => {}
                Some(SurfaceOp::Append) => flag |= 1,
                Some(SurfaceOp::Replace { start, end }) => {
                    flag |= 2;
                    put_step(ops, envelope.seq.value(), start.value());
                    put_step(ops, start.value(), end.value());
                }
            }
            if let Some(seqs) = &envelope.sources {
                flag |= HAS_SOURCES;
                put(sources, seqs.len() as u64);
                let mut last = envelope.seq;
                for seq in seqs.iter() {
                    put_step(sources, last.value(), seq.value());
                    last = *seq;
                }
            }
            flag |= if envelope.ignorable { IGNORABLE } else { 0 };
            match envelope.shape {
                ShapeMark::Order(order) => {
                    let code = orders.iter().position(|known| *known == order).unwrap_or_else(|| {
                        orders.push(order);
                        orders.len() - 1
                    });
                    put(shapes, code as u64 + 1);
                }
                ShapeMark::Verbatim { before, behind } => {
                    put(shapes, 0);
                    put(shapes, u64::from(before));
                    put(shapes, u64::from(behind));
                }
            }
            put(lengths, u64::from(envelope.data_rest));
            if let Some(start) = envelope.visible_start {
                flag |= HAS_VISIBLE;
                put(starts, u64::from(start));
            }
            flags.push(flag);
        }
        let mut out = Vec::with_capacity(parts.iter().map(Vec::len).sum::<usize>() + 1024);
        put(&mut out, names.len() as u64);
        for name in &names {
            put_bytes(&mut out, name.as_bytes());
        }
        put(&mut out, orders.len() as u64);
        for order in &orders {
            out.extend_from_slice(&order.0.to_le_bytes());
        }
        for part in &parts {
            put_bytes(&mut out, part);
        }
        write_blocks(&mut out, &self.blocks);
        out
    }

    /// Reads the envelopes of the `count` events from `first` on, whose texts `directory` lists.
    pub(super) fn read(
        bytes: &[u8],
        first: Seq,
        count: u64,
        directory: &Directory,
    ) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let names_len = cursor.count()?;
        let mut names = Vec::with_capacity(names_len);
        for _ in 0..names_len {
            let name = std::str::from_utf8(cursor.bytes()?).map_err(|_| Malformed("a name is not UTF-8"))?;
            let kind = Kind::from_name(name);
            if !matches!(kind, Kind::Foreign(_)) {
                return Err(Malformed("a name belongs to the format"));
            }
            names.push(kind);
        }
        let orders_len = cursor.count()?;
        let mut orders = Vec::with_capacity(orders_len);
        for _ in 0..orders_len {
            let order = KeyOrder(u32::from_le_bytes(cursor.array()?));
            if !is_order(order) {
                return Err(Malformed("an order of keys is none"));
            }
            orders.push(order);
        }
        let mut part = || cursor.part();
        let (mut kinds, mut times, mut flags, mut ops) = (part()?, part()?, part()?, part()?);
        let (mut sources, mut shapes, mut lengths, mut starts) = (part()?, part()?, part()?, part()?);
        if flags.left() as u64 != count {
            return Err(Malformed("there are not as many envelopes as events"));
        }
        let mut texts = directory.texts.iter().peekable();
        let mut list = Vec::with_capacity(count as usize);
        let mut time_ms = 0;
        for offset in 0..count {
            let seq = first.plus(offset);
            let kind = read_kind(kinds.number()?, &names)?;
            time_ms = times.step(time_ms)?;
            let flag = flags.byte()?;
            if flag & !FLAGS != 0 {
                return Err(Malformed("a flag is unknown"));
            }
            let op = match flag & OP_MASK {
                0 => None,
                1 => Some(SurfaceOp::Append),
                2 => {
                    let start = ops.step(seq.value())?;
                    let end = ops.step(start)?;
                    Some(SurfaceOp::Replace { start: Seq::new(start), end: Seq::new(end) })
                }
                _ => return Err(Malformed("a flag is unknown")),
            };
            let sources = if flag & HAS_SOURCES == 0 { None } else { Some(read_sources(&mut sources, seq)?) };
            let shape = match shapes.number()? {
                0 => ShapeMark::Verbatim { before: shapes.short()?, behind: shapes.short()? },
                code => {
                    let order = usize::try_from(code - 1).ok().and_then(|index| orders.get(index));
                    ShapeMark::Order(*order.ok_or(Malformed("an order of keys is none"))?)
                }
            };
            let data_rest = lengths.short()?;
            let text = texts.next_if(|text| text.seq == seq);
            let visible_start = match (flag & HAS_VISIBLE != 0, text) {
                (false, None) => None,
                (true, Some(text)) => {
                    let start = starts.short()?;
                    if start > data_rest || data_rest.checked_add(text.bytes).is_none() {
                        return Err(Malformed("a visible text lies outside its data"));
                    }
                    Some(start)
                }
                _ => return Err(Malformed("directory and envelopes disagree")),
            };
            let may_be_visible = kind.node().is_some() || kind == Kind::LogOnly(LogOnly::RequestHeader);
            if kind.node().is_some() != op.is_some()
                || (op.is_none() && sources.is_some())
                || (visible_start.is_some() && !may_be_visible)
                || (kind == Kind::UserMessage && (visible_start, data_rest) != (Some(0), 0))
            {
                return Err(Malformed("an envelope does not fit its type"));
            }
            let ignorable = flag & IGNORABLE != 0;
            list.push(Envelope {
                seq,
                time_ms,
                kind,
                op,
                sources,
                ignorable,
                shape,
                data_rest,
                visible_start,
            });
        }
        for part in [kinds, times, flags, ops, sources, shapes, lengths, starts] {
            part.end()?;
        }
        if texts.next().is_some() {
            return Err(Malformed("directory and envelopes disagree"));
        }
        let blocks = read_blocks(&mut cursor, list.iter().map(Envelope::rest_bytes))?;
        cursor.end()?;
        Ok(Self { list, blocks })
    }
}

fn read_kind(code: u64, names: &[Kind]) -> Result<Kind, Malformed> {
    let unknown = Malformed("a type is unknown");
    match code {
        0 => Ok(Kind::SystemMessage),
        1 => Ok(Kind::UserMessage),
        2 => Ok(Kind::AssistantMessage),
        3 => Ok(Kind::ToolResult),
        LOG_ONLY_CODE..FOREIGN_CODE => {
            let log_only = LogOnly::ALL.get((code - LOG_ONLY_CODE) as usize);
            log_only.map(|log_only| Kind::LogOnly(*log_only)).ok_or(unknown)
        }
        _ => usize::try_from(code - FOREIGN_CODE)
            .ok()
            .and_then(|index| names.get(index))
            .cloned()
            .ok_or(unknown),
    }
}

fn read_sources(cursor: &mut Cursor<'_>, seq: Seq) -> Result<Arc<[Seq]>, Malformed> {
    let count = cursor.count()?;
    let mut list = Vec::with_capacity(count);
    let mut last = seq.value();
    for _ in 0..count {
        last = cursor.step(last)?;
        list.push(Seq::new(last));
    }
    Ok(list.into())
}

/// Whether `order` names each key at most once, and the data.
fn is_order(order: KeyOrder) -> bool {
    let (mut codes, mut seen) = (order.0, 0_u32);
    while codes != 0 {
        let code = codes & 15;
        if !(1..=7).contains(&code) || seen & (1 << code) != 0 {
            return false;
        }
        seen |= 1 << code;
        codes >>= 4;
    }
    seen & (1 << 4) != 0
}

/// Writes `checkpoint` without the digests of its nodes, which stand in the directories of the
/// segments that hold the nodes' events.
pub(super) fn write_checkpoint(checkpoint: &Checkpoint) -> Vec<u8> {
    let (mut kinds, mut seqs, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let mut due = 0;
    for node in &checkpoint.nodes {
        let moved = node.place.value() != node.seq.value();
        kinds.push(node_code(node.kind) << 1 | u8::from(moved));
        put_step(&mut seqs, due, node.seq.value());
        due = node.seq.value().wrapping_add(1);
        if moved {
            put_step(&mut places, node.seq.value(), node.place.value());
        }
    }
    let bare = Checkpoint {
        next: checkpoint.next,
        generation: checkpoint.generation,
        nodes: Vec::new(),
        header: checkpoint.header,
        counters: checkpoint.counters,
        turn: checkpoint.turn.clone(),
        title: checkpoint.title.clone(),
        steps: std::sync::Arc::clone(&checkpoint.steps),
    };
    let mut out = Vec::with_capacity(kinds.len() + seqs.len() + places.len() + 256);
    put_bytes(&mut out, &to_bincode(&bare));
    for part in [kinds, seqs, places] {
        put_bytes(&mut out, &part);
    }
    out
}

pub(super) fn read_checkpoint(bytes: &[u8]) -> Result<Checkpoint, Malformed> {
    let mut cursor = Cursor::new(bytes);
    let mut checkpoint: Checkpoint = from_bincode(cursor.bytes()?)?;
    if !checkpoint.nodes.is_empty() {
        return Err(Malformed("the record does not read"));
    }
    let (mut kinds, mut seqs, mut places) = (cursor.part()?, cursor.part()?, cursor.part()?);
    cursor.end()?;
    checkpoint.nodes.reserve_exact(kinds.left());
    let mut due = 0;
    let mut last_place = None;
    while kinds.left() > 0 {
        let code = kinds.byte()?;
        let kind = node_kind(code >> 1).ok_or(Malformed("a node is of no kind"))?;
        let seq = seqs.step(due)?;
        due = seq.wrapping_add(1);
        let place = if code & 1 == 1 { places.step(seq)? } else { seq };
        if seq >= checkpoint.next.value() || last_place.is_some_and(|last| last >= place) {
            return Err(Malformed("the nodes are out of order"));
        }
        last_place = Some(place);
        checkpoint.nodes.push(NodeMark { place: Place(place), seq: Seq::new(seq), kind, rest: None });
    }
    seqs.end()?;
    places.end()?;
    Ok(checkpoint)
}

fn node_code(kind: NodeKind) -> u8 {
    match kind {
        NodeKind::System => 0,
        NodeKind::User => 1,
        NodeKind::Assistant => 2,
        NodeKind::ToolResult => 3,
    }
}

fn node_kind(code: u8) -> Option<NodeKind> {
    match code {
        0 => Some(NodeKind::System),
        1 => Some(NodeKind::User),
        2 => Some(NodeKind::Assistant),
        3 => Some(NodeKind::ToolResult),
        _ => None,
    }
}

pub(super) fn write_steps(steps: &[StepMark], first: Seq) -> Vec<u8> {
    let mut out = Vec::with_capacity(steps.len() * 2);
    let mut due = first;
    for step in steps {
        put(&mut out, step.seq.since(due) << 2 | step_code(step.kind));
        due = step.seq.next();
    }
    out
}

pub(super) fn read_steps(bytes: &[u8], first: Seq, count: u64) -> Result<Vec<StepMark>, Malformed> {
    let mut cursor = Cursor::new(bytes);
    let mut steps = Vec::with_capacity(bytes.len().min(count as usize));
    let mut due = first.value();
    while cursor.left() > 0 {
        let coded = cursor.number()?;
        let seq = due.checked_add(coded >> 2).filter(|seq| *seq < first.value() + count);
        let seq = Seq::new(seq.ok_or(Malformed("a step belongs to no event"))?);
        due = seq.next().value();
        let kind = match coded & 3 {
            0 => StepKind::Message,
            1 => StepKind::Attempt,
            2 => StepKind::Header,
            _ => StepKind::Dispatch,
        };
        steps.push(StepMark { seq, kind });
    }
    Ok(steps)
}

fn step_code(kind: StepKind) -> u64 {
    match kind {
        StepKind::Message => 0,
        StepKind::Attempt => 1,
        StepKind::Header => 2,
        StepKind::Dispatch => 3,
    }
}

pub(super) fn write_references(references: &[[u8; 32]]) -> Vec<u8> {
    references.concat()
}

pub(super) fn read_references(bytes: &[u8]) -> Result<Vec<[u8; 32]>, Malformed> {
    let (list, rest) = bytes.as_chunks::<32>();
    if !rest.is_empty() || !list.is_sorted_by(|a, b| a < b) {
        return Err(Malformed("the references are out of order"));
    }
    Ok(list.to_vec())
}

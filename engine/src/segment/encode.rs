//! Events into the bytes of a segment file.

use super::error::SegmentError;
use super::layout::{
    Codec, EVENTS_MAX, Entry, HEADER_LEN, Header, PIECE_BYTES_MAX, Packer, Section, checksum,
};
use super::sections::{self, Block, Directory, Envelope, Envelopes, ShapeMark, Text};
use super::{SegmentMeta, StepKind, StepMark, references};
use crate::event::{Event, Kind, LogOnly, Shape};
use crate::fold::{Checkpoint, NodeMark, rest_digest};
use crate::ids::{SegmentId, Seq, SessionKey};

/// Raw bytes from which a block of visible texts is closed: small, so that opening reads little
/// that is not live.
const VISIBLE_BLOCK_BYTES: usize = 64 * 1024;
/// Texts from this length on have a block of their own.
const LONE_TEXT_BYTES: usize = 32 * 1024;
/// Raw bytes from which a block of the rest is closed.
const REST_BLOCK_BYTES: usize = 256 * 1024;

/// What a segment is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentInput<'a> {
    pub(crate) id: SegmentId,
    pub(crate) key: SessionKey,
    pub(crate) meta: &'a SegmentMeta,
    /// At least one event, contiguous.
    pub(crate) events: &'a [Event],
    /// The fold behind the last of them.
    pub(crate) end: &'a Checkpoint,
}

/// The bytes of the segment of `input`.
///
/// Costs one copy and one compression of the events' texts.
///
/// # Errors
///
/// [`SegmentError::TooLarge`]: more than 2²⁴ events, or one event of more than 1 GiB.
pub(crate) fn encode(input: &SegmentInput<'_>, packer: &mut Packer) -> Result<Vec<u8>, SegmentError> {
    let count = input.events.len() as u64;
    let first = input.events.first().map_or(Seq::FIRST, Event::seq);
    assert!(count > 0, "an empty segment is never sealed");
    assert!(
        input.events.iter().zip(0..).all(|(event, offset)| event.seq == first.plus(offset)),
        "a segment's events are contiguous"
    );
    assert!(input.end.next == first.plus(count), "the checkpoint stands at the segment's end");
    check("number of events", count, EVENTS_MAX)?;

    let mut visible = Column::new(VISIBLE_BLOCK_BYTES, LONE_TEXT_BYTES);
    let mut rest = Column::new(REST_BLOCK_BYTES, REST_BLOCK_BYTES);
    let mut texts = Vec::new();
    let mut list = Vec::with_capacity(input.events.len());
    let mut steps = Vec::new();
    let mut objects = std::collections::BTreeSet::new();
    let digests = Digests::of(input.end, first);
    for event in input.events {
        let mut visible_start = None;
        let (mut head, mut tail) = (&*event.data, &[][..]);
        if let Some(span) = event.visible {
            let text = span.of(&event.data);
            head = event.data.get(..span.start as usize).unwrap_or_default();
            tail = event.data.get(span.end as usize..).unwrap_or_default();
            assert!(head.len() + text.len() + tail.len() == event.data.len(), "the span lies in its data");
            check("length of a text", text.len() as u64, PIECE_BYTES_MAX)?;
            visible_start = Some(span.start);
            texts.push(Text {
                seq: event.seq,
                bytes: text.len() as u32,
                block: 0,
                offset: 0,
                rest: (event.kind == Kind::ToolResult).then(|| digests.get(event)),
            });
            visible.push(&[text], packer);
        }
        references::of_event(event, |digest| {
            objects.insert(digest);
        });
        let (before, behind, shape) = match &event.shape {
            Shape::Order(order) => (&[][..], &[][..], ShapeMark::Order(*order)),
            Shape::Verbatim { before, behind } => {
                let mark = ShapeMark::Verbatim { before: before.len() as u32, behind: behind.len() as u32 };
                (&**before, &**behind, mark)
            }
        };
        let rest_bytes = before.len() + behind.len() + head.len() + tail.len();
        check("length of an event", rest_bytes as u64, PIECE_BYTES_MAX)?;
        rest.push(&[before, behind, head, tail], packer);
        if let Some(kind) = step_kind(&event.kind) {
            steps.push(StepMark { seq: event.seq, kind });
        }
        list.push(Envelope {
            seq: event.seq,
            time_ms: event.time_ms,
            kind: event.kind.clone(),
            op: event.op,
            sources: event.sources.clone(),
            ignorable: event.ignorable,
            shape,
            data_rest: (head.len() + tail.len()) as u32,
            visible_start,
        });
    }
    visible.close(packer);
    rest.close(packer);

    let directory = Directory { texts, blocks: visible.blocks }.write(first);
    let envelopes = Envelopes { list, blocks: rest.blocks }.write();
    let objects: Vec<[u8; 32]> = objects.into_iter().collect();
    let plain = [
        sections::write_meta(input.meta),
        sections::write_checkpoint(input.end),
        directory,
        sections::write_steps(&steps, first),
        sections::write_references(&objects),
        envelopes,
    ];
    let mut out = vec![0; HEADER_LEN];
    let mut entries = Vec::with_capacity(Section::ALL.len());
    for raw in &plain {
        check("length of a section", raw.len() as u64, PIECE_BYTES_MAX)?;
        let offset = out.len();
        let stored = packer.pack(raw, &mut out);
        entries.push(Entry {
            codec: if stored == raw.len() as u64 { Codec::Raw } else { Codec::Zstd },
            offset: offset as u64,
            stored,
            raw: raw.len() as u64,
            checksum: checksum(out.get(offset..).unwrap_or_default()),
        });
    }
    for (stored, raw) in [(visible.stored, visible.raw_bytes), (rest.stored, rest.raw_bytes)] {
        entries.push(Entry {
            codec: Codec::Blocks,
            offset: out.len() as u64,
            stored: stored.len() as u64,
            raw,
            checksum: [0; 16],
        });
        out.extend_from_slice(&stored);
    }
    let sections = entries.try_into().unwrap_or_else(|_| unreachable!("there is an entry a section"));
    let file_bytes = out.len() as u64;
    let header = Header { id: input.id, key: input.key, first, count, file_bytes, sections }.write();
    for (to, from) in out.iter_mut().zip(header) {
        *to = from;
    }
    Ok(out)
}

fn check(what: &'static str, found: u64, most: u64) -> Result<(), SegmentError> {
    if found <= most { Ok(()) } else { Err(SegmentError::TooLarge { what, found, most }) }
}

pub(super) fn step_kind(kind: &Kind) -> Option<StepKind> {
    match kind {
        Kind::AssistantMessage => Some(StepKind::Message),
        Kind::LogOnly(LogOnly::AssistantAttempt) => Some(StepKind::Attempt),
        Kind::LogOnly(LogOnly::RequestHeader) => Some(StepKind::Header),
        Kind::LogOnly(LogOnly::RequestDispatch) => Some(StepKind::Dispatch),
        _ => None,
    }
}

/// The digests of tool results, from the checkpoint as far as it has them.
struct Digests<'a> {
    nodes: Vec<&'a NodeMark>,
}

impl<'a> Digests<'a> {
    fn of(end: &'a Checkpoint, first: Seq) -> Self {
        let mut nodes: Vec<&NodeMark> =
            end.nodes.iter().filter(|node| node.seq >= first && node.rest.is_some()).collect();
        nodes.sort_unstable_by_key(|node| node.seq);
        Self { nodes }
    }

    fn get(&self, event: &Event) -> crate::event::value::ValueDigest {
        self.nodes
            .binary_search_by_key(&event.seq, |node| node.seq)
            .ok()
            .and_then(|index| self.nodes.get(index)?.rest)
            .unwrap_or_else(|| rest_digest(event))
    }
}

/// A column that is being written.
struct Column {
    block_bytes: usize,
    lone_bytes: usize,
    raw: Vec<u8>,
    items: u32,
    stored: Vec<u8>,
    raw_bytes: u64,
    blocks: Vec<Block>,
}

impl Column {
    fn new(block_bytes: usize, lone_bytes: usize) -> Self {
        Self {
            block_bytes,
            lone_bytes,
            raw: Vec::with_capacity(block_bytes * 2),
            items: 0,
            stored: Vec::new(),
            raw_bytes: 0,
            blocks: Vec::new(),
        }
    }

    /// Adds an item, which is `parts` one behind the other.
    fn push(&mut self, parts: &[&[u8]], packer: &mut Packer) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let alone = bytes >= self.lone_bytes;
        if alone {
            self.close(packer);
        }
        for part in parts {
            self.raw.extend_from_slice(part);
        }
        self.items += 1;
        if alone || self.raw.len() >= self.block_bytes {
            self.close(packer);
        }
    }

    fn close(&mut self, packer: &mut Packer) {
        if self.items == 0 {
            return;
        }
        let offset = self.stored.len();
        let stored = packer.pack(&self.raw, &mut self.stored);
        self.blocks.push(Block {
            items: self.items,
            offset: offset as u64,
            stored,
            raw: self.raw.len() as u64,
            checksum: checksum(self.stored.get(offset..).unwrap_or_default()),
        });
        self.raw_bytes += self.raw.len() as u64;
        self.raw.clear();
        self.items = 0;
    }
}

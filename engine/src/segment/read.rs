//! Reading a segment file: the small sections on open, columns block by block when asked for.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use rederive_disk::{Disk, DiskFile, OpenMode, read_exact_at};

use super::error::{Malformed, SegmentError, io_error};
use super::layout::{HEADER_LEN, Header, HeaderFault, Section, Unpacker, VERSION, checksum};
use super::sections::{self, Block, Directory, Envelope, Envelopes, ShapeMark, Text};
use super::{SegmentMeta, StepMark};
use crate::event::json::Span;
use crate::event::value::ValueDigest;
use crate::event::{Event, Shape};
use crate::fold::{Checkpoint, Fold, Header as RequestHeader};
use crate::ids::{SegmentId, Seq, SessionKey};

/// Bytes that are read first: header and small sections of most segments.
const FIRST_READ_BYTES: u64 = 32 * 1024;
/// The small sections, which stand behind the header in this order.
const SMALL: [Section; 5] =
    [Section::Lineage, Section::Checkpoint, Section::Directory, Section::Steps, Section::References];

/// The text of an event that reaches the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VisibleText {
    pub(crate) text: Box<str>,
    /// For a tool result, the digest of everything in its data but the message's content.
    pub(crate) rest: Option<ValueDigest>,
}

/// The fold of `checkpoint`, whose nodes have the texts `texts`, in order.
pub(crate) fn restore(
    mut checkpoint: Checkpoint,
    texts: Vec<VisibleText>,
    header: Option<RequestHeader>,
) -> Fold {
    let mut plain = Vec::with_capacity(texts.len());
    for (node, text) in checkpoint.nodes.iter_mut().zip(texts) {
        node.rest = text.rest;
        plain.push(text.text);
    }
    Fold::restore(&checkpoint, plain, header)
}

/// An open segment file, its header and small sections checked.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    header: Header,
    /// The stored bytes of the small sections, one behind the other.
    small: Vec<u8>,
    directory: Directory,
    envelopes: OnceLock<Envelopes>,
}

impl SegmentReader {
    /// Opens the file at `path` of the segment `id`.
    ///
    /// Costs one read, two where the small sections are long, and their checksums.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Missing`], [`SegmentError::Version`], [`SegmentError::Damaged`],
    /// [`SegmentError::Io`].
    pub(crate) fn open(disk: &dyn Disk, path: &Path, id: SegmentId) -> Result<Self, SegmentError> {
        let file = match disk.open(path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(SegmentError::Missing { path: path.to_owned() });
            }
            Err(error) => return Err(io_error("open", path)(error)),
        };
        let damaged =
            |section, offset, what| SegmentError::Damaged { path: path.to_owned(), section, offset, what };
        let file_bytes = file.len().map_err(io_error("read the length of", path))?;
        let mut bytes = vec![0; file_bytes.min(FIRST_READ_BYTES) as usize];
        read_exact_at(file.as_ref(), &mut bytes, 0).map_err(io_error("read", path))?;
        let header = Header::read(&bytes, file_bytes).map_err(|fault| match fault {
            HeaderFault::Version(found) => {
                SegmentError::Version { path: path.to_owned(), found, supported: VERSION }
            }
            HeaderFault::Malformed(what) => damaged("header", 0, what),
        })?;
        if header.id != id {
            return Err(damaged("header", 0, "the file is another segment"));
        }
        // The sections end where the file ends, so that this is no more than the file holds.
        let end = header.section(Section::Envelopes).offset as usize;
        let got = bytes.len();
        if got < end {
            bytes.resize(end, 0);
            let more = bytes.get_mut(got..).unwrap_or_default();
            read_exact_at(file.as_ref(), more, got as u64).map_err(io_error("read", path))?;
        }
        bytes.truncate(end);
        let small = bytes.split_off(HEADER_LEN.min(end));
        let mut reader = Self {
            path: path.to_owned(),
            file,
            header,
            small,
            directory: Directory::default(),
            envelopes: OnceLock::new(),
        };
        for section in SMALL {
            let entry = reader.header.section(section);
            if checksum(reader.stored(section)) != entry.checksum {
                return Err(reader.damaged(section, 0, Malformed("the checksum differs")));
            }
        }
        reader.directory = reader.decode(Section::Directory, |bytes| {
            Directory::read(bytes, reader.header.first, reader.header.count)
        })?;
        let stored: u64 = reader.directory.blocks.iter().map(|block| block.stored).sum();
        reader.check_column(Section::Visible, stored, &reader.directory.blocks)?;
        Ok(reader)
    }

    #[cfg(test)]
    pub(crate) fn id(&self) -> SegmentId {
        self.header.id
    }

    pub(crate) fn key(&self) -> SessionKey {
        self.header.key
    }

    pub(crate) fn first_seq(&self) -> Seq {
        self.header.first
    }

    /// The seq behind the last event.
    pub(crate) fn end_seq(&self) -> Seq {
        self.header.first.plus(self.header.count)
    }

    pub(crate) fn count(&self) -> u64 {
        self.header.count
    }

    /// Bytes of the file, and of the texts in it before compression.
    pub(crate) fn stored_and_raw_bytes(&self) -> (u64, u64) {
        let raw = self.header.section(Section::Visible).raw + self.header.section(Section::Rest).raw;
        (self.header.file_bytes, raw)
    }

    /// Whose events these are.
    pub(crate) fn meta(&self) -> Result<SegmentMeta, SegmentError> {
        self.decode(Section::Lineage, sections::read_meta)
    }

    /// The fold at the segment's end, without the digests of its nodes: [`SegmentReader::visible`]
    /// gives them with the texts, and [`restore`] puts the two together.
    pub(crate) fn checkpoint(&self) -> Result<Checkpoint, SegmentError> {
        let checkpoint = self.decode(Section::Checkpoint, sections::read_checkpoint)?;
        if checkpoint.next != self.end_seq() {
            let what = Malformed("the checkpoint stands elsewhere than at the end");
            return Err(self.damaged(Section::Checkpoint, 0, what));
        }
        Ok(checkpoint)
    }

    /// The events from which past requests are found, ascending.
    pub(crate) fn steps(&self) -> Result<Vec<StepMark>, SegmentError> {
        self.decode(Section::Steps, |bytes| sections::read_steps(bytes, self.header.first, self.header.count))
    }

    /// The digests of the objects that the visible texts may reference, sorted.
    pub(crate) fn references(&self) -> Result<Vec<[u8; 32]>, SegmentError> {
        self.decode(Section::References, sections::read_references)
    }

    /// The events that have visible texts, ascending.
    #[cfg(test)]
    pub(crate) fn visible_seqs(&self) -> impl ExactSizeIterator<Item = Seq> {
        self.directory.texts.iter().map(|text| text.seq)
    }

    /// The visible texts of `seqs`, which ascend.
    ///
    /// Reads only the blocks that hold them, each once; copies each text once.
    pub(crate) fn visible(&self, seqs: &[Seq]) -> Result<Vec<VisibleText>, SegmentError> {
        let mut texts = Vec::with_capacity(seqs.len());
        for seq in seqs {
            let found = self.directory.texts.binary_search_by_key(seq, |text| text.seq).ok();
            texts.push(found.and_then(|index| self.directory.texts.get(index)).ok_or_else(|| {
                self.damaged(Section::Directory, 0, Malformed("a node's event has no text here"))
            })?);
        }
        let bytes: u64 = texts.iter().map(|text| u64::from(text.bytes)).sum();
        if bytes < UNPACKED_ALONE_BYTES {
            return self.texts_of(&texts);
        }
        // Unpacking is what opening a long conversation costs, and blocks do not need each other.
        let mut before = 0;
        let half = texts.iter().position(|text| {
            before += u64::from(text.bytes);
            bytes / 2 < before
        });
        let block = half.and_then(|half| texts.get(half)).map(|text| text.block);
        let half = texts.partition_point(|text| Some(text.block) < block);
        let (first, second) = texts.split_at(half);
        std::thread::scope(|scope| {
            let beside = scope.spawn(|| self.texts_of(second));
            let mut all = self.texts_of(first)?;
            match beside.join() {
                Ok(rest) => all.append(&mut rest?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
            Ok(all)
        })
    }

    fn texts_of(&self, texts: &[&Text]) -> Result<Vec<VisibleText>, SegmentError> {
        let mut blocks = VisibleBlocks::new(self);
        texts
            .iter()
            .map(|text| Ok(VisibleText { text: blocks.text(text)?.into(), rest: text.rest }))
            .collect()
    }

    /// The events without their texts, ascending. Reads and keeps the envelopes, and no column.
    #[cfg(test)]
    pub(crate) fn envelopes(&self) -> Result<&[Envelope], SegmentError> {
        Ok(&self.all_envelopes()?.list)
    }

    /// The events of `range`, as far as they are here, exactly as they were sealed.
    pub(crate) fn events(&self, range: Range<Seq>) -> Result<Vec<Event>, SegmentError> {
        let mut events = Vec::new();
        for block in self.event_blocks(range)? {
            events.append(&mut block?);
        }
        Ok(events)
    }

    /// As [`SegmentReader::events`], some hundred kilobytes at a time.
    pub(crate) fn event_blocks(&self, range: Range<Seq>) -> Result<EventBlocks<'_>, SegmentError> {
        let envelopes = self.all_envelopes()?;
        Ok(EventBlocks {
            reader: self,
            envelopes,
            visible: VisibleBlocks::new(self),
            unpacker: Unpacker::new(),
            range,
            next_block: 0,
            next_envelope: 0,
        })
    }

    /// Reads and checks everything.
    pub(crate) fn verify(&self) -> Result<(), SegmentError> {
        self.meta()?;
        self.checkpoint()?;
        self.steps()?;
        self.references()?;
        for events in self.event_blocks(self.first_seq()..self.end_seq())? {
            events?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn section(&self, section: Section) -> &super::layout::Entry {
        self.header.section(section)
    }

    fn all_envelopes(&self) -> Result<&Envelopes, SegmentError> {
        if let Some(envelopes) = self.envelopes.get() {
            return Ok(envelopes);
        }
        let entry = self.header.section(Section::Envelopes);
        let mut stored = vec![0; entry.stored as usize];
        read_exact_at(self.file.as_ref(), &mut stored, entry.offset).map_err(io_error("read", &self.path))?;
        let envelopes = if checksum(&stored) == entry.checksum {
            Unpacker::new()
                .unpack(stored, entry.raw)
                .and_then(|raw| Envelopes::read(&raw, self.header.first, self.header.count, &self.directory))
        } else {
            Err(Malformed("the checksum differs"))
        };
        let envelopes = envelopes.map_err(|fault| self.damaged(Section::Envelopes, 0, fault))?;
        let stored: u64 = envelopes.blocks.iter().map(|block| block.stored).sum();
        self.check_column(Section::Rest, stored, &envelopes.blocks)?;
        Ok(self.envelopes.get_or_init(|| envelopes))
    }

    fn check_column(&self, section: Section, stored: u64, blocks: &[Block]) -> Result<(), SegmentError> {
        let entry = self.header.section(section);
        let raw: u64 = blocks.iter().map(|block| block.raw).sum();
        if (stored, raw) == (entry.stored, entry.raw) && entry.checksum == [0; 16] {
            return Ok(());
        }
        Err(self.damaged(section, 0, Malformed("the column has another length than its blocks")))
    }

    fn stored(&self, section: Section) -> &[u8] {
        let entry = self.header.section(section);
        let start = (entry.offset as usize).saturating_sub(HEADER_LEN);
        self.small.get(start..start + entry.stored as usize).unwrap_or_default()
    }

    fn decode<T>(
        &self,
        section: Section,
        read: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, SegmentError> {
        let raw = self.header.section(section).raw;
        Unpacker::new()
            .unpack(self.stored(section).to_vec(), raw)
            .and_then(|bytes| read(&bytes))
            .map_err(|fault| self.damaged(section, 0, fault))
    }

    fn read_block(
        &self,
        section: Section,
        block: &Block,
        unpacker: &mut Unpacker,
    ) -> Result<Vec<u8>, SegmentError> {
        // The blocks of a column add up to the column, which lies in the file.
        let mut stored = vec![0; block.stored as usize];
        let offset = self.header.section(section).offset + block.offset;
        read_exact_at(self.file.as_ref(), &mut stored, offset).map_err(io_error("read", &self.path))?;
        let raw = if checksum(&stored) == block.checksum {
            unpacker.unpack(stored, block.raw)
        } else {
            Err(Malformed("the checksum differs"))
        };
        raw.map_err(|fault| self.damaged(section, block.offset, fault))
    }

    fn damaged(&self, section: Section, offset: u64, fault: Malformed) -> SegmentError {
        SegmentError::Damaged {
            path: self.path.clone(),
            section: section.name(),
            offset: self.header.section(section).offset + offset,
            what: fault.0,
        }
    }
}

/// Texts of fewer bytes are unpacked by one thread, since another one costs more than it saves.
const UNPACKED_ALONE_BYTES: u64 = 512 * 1024;

/// Texts of the column `visible`, through the block that was read last.
struct VisibleBlocks<'a> {
    reader: &'a SegmentReader,
    unpacker: Unpacker,
    last: Option<(u32, Vec<u8>)>,
}

impl<'a> VisibleBlocks<'a> {
    fn new(reader: &'a SegmentReader) -> Self {
        Self { reader, unpacker: Unpacker::new(), last: None }
    }

    fn text(&mut self, text: &Text) -> Result<&str, SegmentError> {
        let reader = self.reader;
        let fault = |what| reader.damaged(Section::Visible, 0, Malformed(what));
        if self.last.as_ref().is_none_or(|(index, _)| *index != text.block) {
            let block = reader.directory.blocks.get(text.block as usize);
            let block = block.ok_or_else(|| fault("a text has no block"))?;
            let raw = reader.read_block(Section::Visible, block, &mut self.unpacker)?;
            self.last = Some((text.block, raw));
        }
        let raw = self.last.as_ref().map(|(_, raw)| &**raw).unwrap_or_default();
        let start = text.offset as usize;
        let found = raw.get(start..start + text.bytes as usize);
        let found = found.ok_or_else(|| fault("a text lies outside its block"))?;
        // Content that JSON would refuse harms nobody.
        std::str::from_utf8(found).map_err(|_| fault("a text is not UTF-8"))
    }
}

/// The events of a range, block by block of the column `rest`.
pub(crate) struct EventBlocks<'a> {
    reader: &'a SegmentReader,
    envelopes: &'a Envelopes,
    visible: VisibleBlocks<'a>,
    unpacker: Unpacker,
    range: Range<Seq>,
    next_block: usize,
    next_envelope: usize,
}

impl Iterator for EventBlocks<'_> {
    type Item = Result<Vec<Event>, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let envelopes = self.envelopes;
            let block = envelopes.blocks.get(self.next_block)?;
            let start = self.next_envelope;
            self.next_block += 1;
            self.next_envelope += block.items as usize;
            let list = envelopes.list.get(start..self.next_envelope).unwrap_or_default();
            let first = list.first()?;
            if self.range.end <= first.seq {
                return None;
            }
            if list.last().is_some_and(|last| last.seq < self.range.start) {
                continue;
            }
            let events = self.events_of(block, list);
            if events.is_err() {
                // Nothing behind damage is given out.
                self.next_block = usize::MAX;
            }
            return Some(events);
        }
    }
}

impl EventBlocks<'_> {
    fn events_of(&mut self, block: &Block, list: &[Envelope]) -> Result<Vec<Event>, SegmentError> {
        let reader = self.reader;
        let fault = |what| reader.damaged(Section::Rest, block.offset, Malformed(what));
        let raw = Bytes::from(reader.read_block(Section::Rest, block, &mut self.unpacker)?);
        let texts = &reader.directory.texts;
        let first = list.first().map_or(Seq::FIRST, |envelope| envelope.seq);
        let mut texts =
            texts.get(texts.partition_point(|text| text.seq < first)..).unwrap_or_default().iter();

        // The data of events with visible texts is put together in one buffer for all of them.
        let mut woven = Vec::new();
        let mut plans = Vec::with_capacity(list.len());
        let mut at = 0_usize;
        for envelope in list {
            let text = if envelope.visible_start.is_some() { texts.next() } else { None };
            let end = at + envelope.rest_bytes() as usize;
            if self.range.contains(&envelope.seq) {
                let (before, behind) = match envelope.shape {
                    ShapeMark::Order(_) => (0, 0),
                    ShapeMark::Verbatim { before, behind } => (before as usize, behind as usize),
                };
                let data = at + before + behind..end;
                let span = match (envelope.visible_start, text) {
                    (Some(start), Some(text)) => {
                        let rest =
                            raw.get(data.clone()).ok_or_else(|| fault("an event lies outside its block"))?;
                        let (head, tail) = rest
                            .split_at_checked(start as usize)
                            .ok_or_else(|| fault("a span lies outside"))?;
                        woven.extend_from_slice(head);
                        woven.extend_from_slice(self.visible.text(text)?.as_bytes());
                        woven.extend_from_slice(tail);
                        Some(Span { start, end: start + text.bytes })
                    }
                    _ => None,
                };
                plans.push((envelope, at..at + before, at + before..data.start, data, span));
            }
            at = end;
        }
        if at != raw.len() {
            return Err(fault("an event lies outside its block"));
        }
        let woven = Bytes::from(woven);
        let mut woven_at = 0;
        let mut events = Vec::with_capacity(plans.len());
        for (envelope, before, behind, data, span) in plans {
            let data = match span {
                None => raw.slice(data),
                Some(span) => {
                    let length = data.len() + (span.end - span.start) as usize;
                    woven_at += length;
                    woven.slice(woven_at - length..woven_at)
                }
            };
            if std::str::from_utf8(&data).is_err() {
                return Err(fault("an event's data is not UTF-8"));
            }
            let shape = match envelope.shape {
                ShapeMark::Order(order) => Shape::Order(order),
                ShapeMark::Verbatim { .. } => {
                    let (before, behind) = (raw.slice(before), raw.slice(behind));
                    if std::str::from_utf8(&before).is_err() || std::str::from_utf8(&behind).is_err() {
                        return Err(fault("an event's line is not UTF-8"));
                    }
                    Shape::Verbatim { before, behind }
                }
            };
            events.push(Event {
                seq: envelope.seq,
                time_ms: envelope.time_ms,
                kind: envelope.kind.clone(),
                op: envelope.op,
                sources: envelope.sources.clone(),
                ignorable: envelope.ignorable,
                data,
                visible: span,
                shape,
            });
        }
        Ok(events)
    }
}

//! The frame of a segment file: its header, the table of its sections, and compressed pieces.
//!
//! Every number that is read here is a claim until it was compared with the file's length and with
//! the limits below. Bytes: FORMAT.md § Segments.

use std::path::{Path, PathBuf};

use super::error::Malformed;
use super::wire::Cursor;
use crate::ids::{SegmentId, Seq, SessionKey};

/// The version of the format that is written.
pub(super) const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"RDRVSEG\0";
pub(super) const CHECKSUM_LEN: usize = 16;
const ENTRY_LEN: usize = 4 + 4 + 8 + 8 + 8 + CHECKSUM_LEN;
const TABLE_START: usize = 64;
/// Length of the header: fixed fields, the table of sections, and the header's own checksum.
pub(super) const HEADER_LEN: usize = TABLE_START + Section::ALL.len() * ENTRY_LEN + CHECKSUM_LEN;

const _: () = assert!(
    TABLE_START == 8 + 4 + 4 + 8 + 8 + 8 + 8 + 8 + 8,
    "magic, version, sections, id, key, first seq, count, file length, reserved"
);
const _: () = assert!(ENTRY_LEN == 48, "kind, codec, offset, stored, raw, checksum");
const _: () = assert!(HEADER_LEN == 464, "eight sections");

/// The most raw bytes of one compressed piece: 1 GiB.
pub(super) const PIECE_BYTES_MAX: u64 = 1 << 30;
/// The most events of one segment.
pub(super) const EVENTS_MAX: u64 = 1 << 24;

/// A part of a segment, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Lineage,
    Checkpoint,
    Directory,
    Steps,
    References,
    Envelopes,
    Visible,
    Rest,
}

impl Section {
    pub(super) const ALL: [Self; 8] = [
        Self::Lineage,
        Self::Checkpoint,
        Self::Directory,
        Self::Steps,
        Self::References,
        Self::Envelopes,
        Self::Visible,
        Self::Rest,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lineage => "lineage",
            Self::Checkpoint => "checkpoint",
            Self::Directory => "directory",
            Self::Steps => "steps",
            Self::References => "references",
            Self::Envelopes => "envelopes",
            Self::Visible => "visible",
            Self::Rest => "rest",
        }
    }

    /// Whether the section is a column of blocks that are compressed and checked one by one.
    pub(super) fn is_column(self) -> bool {
        matches!(self, Self::Visible | Self::Rest)
    }
}

/// How bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Raw = 0,
    Zstd = 1,
    /// Blocks, each with a codec and a checksum of its own.
    Blocks = 2,
}

/// One row of the table of sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) codec: Codec,
    pub(super) offset: u64,
    pub(super) stored: u64,
    pub(super) raw: u64,
    pub(super) checksum: [u8; CHECKSUM_LEN],
}

/// What a segment's header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: SegmentId,
    pub(super) key: SessionKey,
    pub(super) first: Seq,
    pub(super) count: u64,
    pub(super) file_bytes: u64,
    pub(super) sections: [Entry; Section::ALL.len()],
}

/// How a header does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFault {
    Version(u32),
    Malformed(&'static str),
}

impl From<Malformed> for HeaderFault {
    fn from(fault: Malformed) -> Self {
        Self::Malformed(fault.0)
    }
}

impl Header {
    pub(super) fn section(&self, section: Section) -> &Entry {
        let [lineage, checkpoint, directory, steps, references, envelopes, visible, rest] = &self.sections;
        match section {
            Section::Lineage => lineage,
            Section::Checkpoint => checkpoint,
            Section::Directory => directory,
            Section::Steps => steps,
            Section::References => references,
            Section::Envelopes => envelopes,
            Section::Visible => visible,
            Section::Rest => rest,
        }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(Section::ALL.len() as u32).to_le_bytes());
        for field in [self.id.value(), self.key.value(), self.first.value(), self.count, self.file_bytes, 0] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        for (index, entry) in self.sections.iter().enumerate() {
            out.extend_from_slice(&(index as u32 + 1).to_le_bytes());
            out.extend_from_slice(&(entry.codec as u32).to_le_bytes());
            for field in [entry.offset, entry.stored, entry.raw] {
                out.extend_from_slice(&field.to_le_bytes());
            }
            out.extend_from_slice(&entry.checksum);
        }
        let checksum = checksum(&out);
        out.extend_from_slice(&checksum);
        assert!(out.len() == HEADER_LEN, "the header has one length");
        out
    }

    /// Reads the header of a file of `file_bytes` bytes, whose first bytes are `bytes`.
    pub(super) fn read(bytes: &[u8], file_bytes: u64) -> Result<Self, HeaderFault> {
        let mut cursor = Cursor::new(bytes);
        if cursor.take(MAGIC.len())? != MAGIC {
            return Err(HeaderFault::Malformed("no segment: the magic is missing"));
        }
        let version = u32::from_le_bytes(cursor.array()?);
        // Before the checksum: another version's header may have another length.
        if version != VERSION {
            return Err(HeaderFault::Version(version));
        }
        if !is_checked(bytes) {
            return Err(HeaderFault::Malformed("the checksum differs"));
        }
        if u32::from_le_bytes(cursor.array()?) != Section::ALL.len() as u32 {
            return Err(HeaderFault::Malformed("the number of sections is unknown"));
        }
        let mut field = || cursor.array().map(u64::from_le_bytes);
        let (id, key, first) = (SegmentId(field()?), SessionKey(field()?), Seq::new(field()?));
        let (count, claimed_bytes, reserved) = (field()?, field()?, field()?);
        if count == 0 || count > EVENTS_MAX || first.value().checked_add(count).is_none() {
            return Err(HeaderFault::Malformed("the number of events is out of bounds"));
        }
        if claimed_bytes != file_bytes {
            return Err(HeaderFault::Malformed("the file has another length"));
        }
        if reserved != 0 {
            return Err(HeaderFault::Malformed("reserved bytes are set"));
        }
        let mut sections =
            [Entry { codec: Codec::Raw, offset: 0, stored: 0, raw: 0, checksum: [0; CHECKSUM_LEN] };
                Section::ALL.len()];
        let mut end = HEADER_LEN as u64;
        for (index, (section, slot)) in Section::ALL.iter().zip(&mut sections).enumerate() {
            let kind = u32::from_le_bytes(cursor.array()?);
            if kind != index as u32 + 1 {
                return Err(HeaderFault::Malformed("the sections are out of order"));
            }
            let codec = match u32::from_le_bytes(cursor.array()?) {
                0 if !section.is_column() => Codec::Raw,
                1 if !section.is_column() => Codec::Zstd,
                2 if section.is_column() => Codec::Blocks,
                _ => return Err(HeaderFault::Malformed("a codec is unknown")),
            };
            let mut field = || cursor.array().map(u64::from_le_bytes);
            let (offset, stored, raw) = (field()?, field()?, field()?);
            if offset != end {
                return Err(HeaderFault::Malformed("a section does not follow the one before"));
            }
            end = end.checked_add(stored).ok_or(HeaderFault::Malformed("a section is too long"))?;
            let fits = match codec {
                Codec::Raw => raw == stored,
                Codec::Zstd => stored < raw && raw <= PIECE_BYTES_MAX,
                Codec::Blocks => stored <= raw,
            };
            if !fits {
                return Err(HeaderFault::Malformed("a length is out of bounds"));
            }
            *slot = Entry { codec, offset, stored, raw, checksum: cursor.array()? };
        }
        if end != file_bytes {
            return Err(HeaderFault::Malformed("the sections end elsewhere than the file"));
        }
        Ok(Self { id, key, first, count, file_bytes, sections })
    }
}

fn is_checked(bytes: &[u8]) -> bool {
    bytes
        .get(..HEADER_LEN)
        .and_then(|header| header.split_at_checked(HEADER_LEN - CHECKSUM_LEN))
        .is_some_and(|(fields, claimed)| checksum(fields) == claimed)
}

/// The first 16 bytes of the BLAKE3 of `bytes`.
pub(super) fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut out = [0; CHECKSUM_LEN];
    if cfg!(fuzzing) {
        return out; // so that mutated bytes get past it
    }
    for (to, from) in out.iter_mut().zip(blake3::hash(bytes).as_bytes()) {
        *to = *from;
    }
    out
}

/// Where the file of the segment `id` stands under the folder of segments.
pub(crate) fn segment_path(folder: &Path, id: SegmentId) -> PathBuf {
    shard(folder, id).join(format!("{id}.seg"))
}

/// The folder of the file of the segment `id`.
pub(super) fn shard(folder: &Path, id: SegmentId) -> PathBuf {
    folder.join(format!("{:02x}", id.value() & 0xff))
}

/// The segment that a file name inside a shard folder names.
pub(crate) fn segment_of(name: &str) -> Option<SegmentId> {
    let digits = name.strip_suffix(".seg").filter(|digits| digits.len() == 16)?;
    let id = SegmentId(u64::from_str_radix(digits, 16).ok()?);
    (id.to_string() == digits).then_some(id)
}

/// Compresses pieces, and keeps its context from one to the next.
pub(crate) struct Packer {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl Packer {
    /// A packer at zstd's `level`.
    pub(crate) fn new(level: i32) -> Self {
        // Without memory for a context everything is stored raw, which is right, if large.
        Self { zstd: zstd::bulk::Compressor::new(level).ok(), scratch: Vec::new() }
    }

    /// A packer that compresses nothing, so that its bytes depend on no library.
    #[cfg(test)]
    pub(super) fn storing() -> Self {
        Self { zstd: None, scratch: Vec::new() }
    }

    /// Appends `raw` to `out`, compressed where that is shorter; says how many bytes that took.
    pub(super) fn pack(&mut self, raw: &[u8], out: &mut Vec<u8>) -> u64 {
        self.scratch.clear();
        self.scratch.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        let packed = self.zstd.as_mut().and_then(|zstd| zstd.compress_to_buffer(raw, &mut self.scratch).ok());
        let packed = packed.and_then(|length| self.scratch.get(..length));
        let stored = packed.filter(|packed| packed.len() < raw.len()).unwrap_or(raw);
        out.extend_from_slice(stored);
        stored.len() as u64
    }
}

/// Decompresses pieces.
pub(super) struct Unpacker {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Unpacker {
    pub(super) fn new() -> Self {
        Self { zstd: None }
    }

    /// The `raw_bytes` bytes that `stored` holds, raw where it is exactly as long.
    ///
    /// `raw_bytes` was compared with [`PIECE_BYTES_MAX`]; memory is touched only as far as the
    /// piece really decompresses.
    pub(super) fn unpack(&mut self, stored: Vec<u8>, raw_bytes: u64) -> Result<Vec<u8>, Malformed> {
        if stored.len() as u64 == raw_bytes {
            return Ok(stored);
        }
        if raw_bytes > PIECE_BYTES_MAX {
            return Err(Malformed("a length is out of bounds"));
        }
        let mut raw = Vec::new();
        raw.try_reserve_exact(raw_bytes as usize).map_err(|_| Malformed("there is no memory for it"))?;
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Decompressor::new().ok();
        }
        let zstd = self.zstd.as_mut().ok_or(Malformed("there is no memory for it"))?;
        zstd.decompress_to_buffer(&stored, &mut raw).map_err(|_| Malformed("does not decompress"))?;
        if raw.len() as u64 == raw_bytes { Ok(raw) } else { Err(Malformed("decompresses to another length")) }
    }
}

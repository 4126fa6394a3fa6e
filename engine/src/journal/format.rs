//! The bytes of a journal file: two header blocks and the frames behind them.
//!
//! Owns layout, checksums and the rules by which a frame is valid. Every number that is read here
//! is a claim until it was compared with the file. Bytes: FORMAT.md § Journal.

use std::io;
use std::path::{Path, PathBuf};

use rederive_disk::DiskFile;

/// Length of one header block.
pub(super) const BLOCK_LEN: usize = 4096;
/// Where the first frame stands: behind the two header blocks.
pub(super) const FRAMES_START: u64 = 8192;
/// Length of what stands before a frame's payload.
pub(super) const FRAME_HEADER_LEN: usize = 56;
/// The most payload bytes of one frame: 1 GiB.
pub(super) const PAYLOAD_BYTES_MAX: u64 = 1 << 30;
/// Frames start at multiples of this.
pub(super) const FRAME_ALIGN: u64 = 8;
/// The version of the format that is written.
pub(super) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"RDRVJNL\0";
const CHECKSUM_LEN: usize = 16;
const CHECKED_LEN: usize = FRAME_HEADER_LEN - CHECKSUM_LEN;
const HEADER_FIELDS_LEN: usize = 8 + 4 + 4 + 8 + 8 + 4 + 4 + 8;

const _: () = assert!(FRAMES_START == 2 * BLOCK_LEN as u64, "two header blocks, then frames");
const _: () = assert!(
    FRAME_HEADER_LEN == 4 + 4 + 8 + 8 + 8 + 8 + CHECKSUM_LEN,
    "length, events, salt, session key, first seq, synced to, checksum"
);
const _: () = assert!((FRAME_HEADER_LEN as u64).is_multiple_of(FRAME_ALIGN), "the salt keeps its alignment");
const _: () = assert!(FRAMES_START.is_multiple_of(FRAME_ALIGN), "the first frame is aligned");
const _: () = assert!(HEADER_FIELDS_LEN + CHECKSUM_LEN <= BLOCK_LEN, "the fields fit their block");
const _: () = assert!(PAYLOAD_BYTES_MAX <= u32::MAX as u64, "a length is four bytes");

/// One of the two files of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    A,
    B,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::A, Self::B];

    pub(super) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }
}

/// Something that each of the two files has.
#[derive(Clone, Debug, Default)]
pub(super) struct Pair<T> {
    a: T,
    b: T,
}

impl<T> Pair<T> {
    pub(super) fn new(a: T, b: T) -> Self {
        Self { a, b }
    }

    pub(super) fn get(&self, side: Side) -> &T {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }

    pub(super) fn get_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }
}

/// The file whose lock says that a slot's owner lives.
pub(super) fn lock_path(folder: &Path, slot: u32) -> PathBuf {
    folder.join(format!("{slot}.lock"))
}

/// One of a slot's two journal files.
pub(super) fn journal_path(folder: &Path, slot: u32, side: Side) -> PathBuf {
    folder.join(format!("{slot}-{}.jnl", side.letter()))
}

/// The slot that a file name of the journal folder belongs to.
pub(super) fn slot_of(name: &str) -> Option<u32> {
    let stem = name.strip_suffix(".lock").or_else(|| {
        let stem = name.strip_suffix(".jnl")?;
        stem.strip_suffix("-a").or_else(|| stem.strip_suffix("-b"))
    })?;
    let slot = stem.parse().ok()?;
    (stem == format!("{slot}")).then_some(slot)
}

/// What tells frames of the present use of a file from those of earlier uses, and frames of the
/// present owner from those that a dead one left unfinished.
///
/// The upper half is random, one for each use of a file. The lower half is a counter of a header:
/// in a header, that of the first header of the use (the *generation*, so that it says which use is
/// younger); in a frame, that of the header in force when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Salt(u64);

impl Salt {
    pub(super) fn new(random: u64, counter: u32) -> Self {
        Self((random & !u64::from(u32::MAX)) | u64::from(counter))
    }

    /// The same use's salt under a later header.
    pub(super) fn under(self, counter: u32) -> Self {
        assert!(self.counter() <= counter, "counters rise");
        Self::new(self.0, counter)
    }

    pub(super) fn counter(self) -> u32 {
        (self.0 & u64::from(u32::MAX)) as u32
    }

    /// Whether a frame with this salt may stand behind one with `before`, or behind the header
    /// with that salt.
    pub(super) fn follows(self, before: Self) -> bool {
        self.0 >> 32 == before.0 >> 32 && before.counter() <= self.counter()
    }

    pub(super) fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }

    pub(super) fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }
}

/// The content of a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) slot: u32,
    pub(super) side: Side,
    /// Rises with each header that a slot writes, in either of its files.
    pub(super) counter: u32,
    pub(super) salt: Salt,
    /// The owner; zero in a file that was closed with nothing left in it.
    pub(super) pid: u32,
    /// The file has at least this length: it was synced before the header was written.
    pub(super) capacity: u64,
}

/// What a header block reads as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderBlock {
    Valid(Header),
    /// Whole, and of a version that this build does not read.
    Version(u32),
    /// Never written, torn, or damaged.
    Invalid,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK_LEN);
        block.extend_from_slice(&MAGIC);
        block.extend_from_slice(&VERSION.to_le_bytes());
        block.extend_from_slice(&self.slot.to_le_bytes());
        block.extend_from_slice(&u64::from(self.counter).to_le_bytes());
        block.extend_from_slice(&self.salt.to_bytes());
        block.extend_from_slice(&self.pid.to_le_bytes());
        block.extend_from_slice(&self.side.number().to_le_bytes());
        block.extend_from_slice(&self.capacity.to_le_bytes());
        assert!(block.len() == HEADER_FIELDS_LEN, "every field once");
        block.resize(BLOCK_LEN - CHECKSUM_LEN, 0);
        let checksum = truncated(blake3::hash(&block));
        block.extend_from_slice(&checksum);
        block
    }

    /// Reads the block of a file that should belong to `slot` and `side`.
    pub(super) fn decode(block: &[u8], slot: u32, side: Side) -> HeaderBlock {
        Self::decode_any(block, slot, side).unwrap_or(HeaderBlock::Invalid)
    }

    fn decode_any(block: &[u8], slot: u32, side: Side) -> Option<HeaderBlock> {
        let (checked, checksum) = block.split_last_chunk::<CHECKSUM_LEN>()?;
        if block.len() != BLOCK_LEN || truncated(blake3::hash(checked)) != *checksum {
            return None;
        }
        let mut rest = checked;
        if take::<8>(&mut rest)? != MAGIC {
            return None;
        }
        let version = u32::from_le_bytes(take(&mut rest)?);
        if version != VERSION {
            return Some(HeaderBlock::Version(version));
        }
        let found_slot = u32::from_le_bytes(take(&mut rest)?);
        let counter = u32::try_from(u64::from_le_bytes(take(&mut rest)?)).ok()?;
        let salt = Salt::from_bytes(take(&mut rest)?);
        let pid = u32::from_le_bytes(take(&mut rest)?);
        let found_side = u32::from_le_bytes(take(&mut rest)?);
        let capacity = u64::from_le_bytes(take(&mut rest)?);
        let expected = found_slot == slot
            && found_side == side.number()
            && 0 < counter
            && salt.counter() <= counter
            && FRAMES_START <= capacity
            && rest.iter().all(|&byte| byte == 0);
        expected.then_some(HeaderBlock::Valid(Self { slot, side, counter, salt, pid, capacity }))
    }
}

/// What a frame is written from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameWrite<'a> {
    /// The session whose events these are, as the caller numbers sessions.
    pub(crate) session_key: u64,
    /// Position of the first event.
    pub(crate) first_seq: u64,
    /// How many events the payload holds; never zero.
    pub(crate) events: u32,
    /// The events' bytes, opaque here; never empty.
    pub(crate) payload: &'a [u8],
}

/// The fields before a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) length: u32,
    pub(super) events: u32,
    pub(super) salt: Salt,
    pub(super) session_key: u64,
    pub(super) first_seq: u64,
    pub(super) synced_to: u64,
    checksum: [u8; CHECKSUM_LEN],
}

/// Bytes that a frame takes in the file, padding included.
pub(super) fn frame_len(payload_bytes: u64) -> u64 {
    (FRAME_HEADER_LEN as u64 + payload_bytes).next_multiple_of(FRAME_ALIGN)
}

/// Puts the frame that is to stand at `offset` into `out`, in the place of what was there.
pub(super) fn encode_frame(
    out: &mut Vec<u8>,
    frame: &FrameWrite<'_>,
    salt: Salt,
    synced_to: u64,
    offset: u64,
) {
    assert!(0 < frame.events, "a batch holds an event");
    assert!(!frame.payload.is_empty(), "an event has bytes");
    assert!(frame.payload.len() as u64 <= PAYLOAD_BYTES_MAX, "the caller holds the limit");
    assert!(frame.first_seq.checked_add(u64::from(frame.events)).is_some(), "seqs do not wrap");
    assert!(FRAMES_START <= synced_to && synced_to <= offset, "what is synced stands before");
    out.clear();
    out.reserve(frame_len(frame.payload.len() as u64) as usize);
    out.extend_from_slice(&(frame.payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&frame.events.to_le_bytes());
    out.extend_from_slice(&salt.to_bytes());
    out.extend_from_slice(&frame.session_key.to_le_bytes());
    out.extend_from_slice(&frame.first_seq.to_le_bytes());
    out.extend_from_slice(&synced_to.to_le_bytes());
    let checksum = frame_checksum(out, offset, frame.payload);
    out.extend_from_slice(&checksum);
    out.extend_from_slice(frame.payload);
    out.resize(frame_len(frame.payload.len() as u64) as usize, 0);
}

impl FrameHeader {
    pub(super) fn decode(bytes: &[u8; FRAME_HEADER_LEN]) -> Option<Self> {
        let mut rest = bytes.as_slice();
        Some(Self {
            length: u32::from_le_bytes(take(&mut rest)?),
            events: u32::from_le_bytes(take(&mut rest)?),
            salt: Salt::from_bytes(take(&mut rest)?),
            session_key: u64::from_le_bytes(take(&mut rest)?),
            first_seq: u64::from_le_bytes(take(&mut rest)?),
            synced_to: u64::from_le_bytes(take(&mut rest)?),
            checksum: take(&mut rest)?,
        })
    }

    /// Where the frame at `offset` says that it ends.
    pub(super) fn claimed_end(&self, offset: u64) -> u64 {
        offset.saturating_add(frame_len(u64::from(self.length)))
    }

    /// Whether the fields are ones that a writer writes, and the payload fits the file.
    pub(super) fn plausible(&self, offset: u64, file_len: u64) -> bool {
        0 < self.length
            && u64::from(self.length) <= PAYLOAD_BYTES_MAX
            && 0 < self.events
            && self.first_seq.checked_add(u64::from(self.events)).is_some()
            && FRAMES_START <= self.synced_to
            && self.synced_to <= offset
            && self.claimed_end(offset) <= file_len
    }

    pub(super) fn next_seq(&self) -> u64 {
        self.first_seq.saturating_add(u64::from(self.events))
    }

    fn matches(&self, header: &[u8; FRAME_HEADER_LEN], offset: u64, payload: &[u8]) -> bool {
        let (checked, _) = header.split_at(CHECKED_LEN);
        frame_checksum(checked, offset, payload) == self.checksum
    }
}

/// Reads the fields at `offset`; `None` where the file ends before them.
pub(super) fn read_frame_header(
    file: &dyn DiskFile,
    offset: u64,
) -> io::Result<Option<(FrameHeader, [u8; FRAME_HEADER_LEN])>> {
    let mut bytes = [0; FRAME_HEADER_LEN];
    if file.read_at(&mut bytes, offset)? < bytes.len() {
        return Ok(None);
    }
    Ok(FrameHeader::decode(&bytes).map(|header| (header, bytes)))
}

/// Reads the frame at `offset` whose salt follows `before`, where one is given; `None` where none
/// is valid.
///
/// Allocates the claimed length only after it was compared with `file_len`.
pub(super) fn read_frame(
    file: &dyn DiskFile,
    offset: u64,
    file_len: u64,
    before: Option<Salt>,
) -> io::Result<Option<(FrameHeader, Vec<u8>)>> {
    let Some((header, bytes)) = read_frame_header(file, offset)? else { return Ok(None) };
    if before.is_some_and(|before| !header.salt.follows(before)) || !header.plausible(offset, file_len) {
        return Ok(None);
    }
    let mut payload = vec![0; header.length as usize];
    if file.read_at(&mut payload, offset + FRAME_HEADER_LEN as u64)? < payload.len() {
        return Ok(None); // cut since its length was taken
    }
    Ok(header.matches(&bytes, offset, &payload).then_some((header, payload)))
}

fn frame_checksum(fields: &[u8], offset: u64, payload: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(fields);
    hasher.update(&offset.to_le_bytes());
    hasher.update(payload);
    truncated(hasher.finalize())
}

fn truncated(hash: blake3::Hash) -> [u8; CHECKSUM_LEN] {
    let mut checksum = [0; CHECKSUM_LEN];
    if cfg!(fuzzing) {
        return checksum; // so that mutated bytes get past it
    }
    for (to, from) in checksum.iter_mut().zip(hash.as_bytes()) {
        *to = *from;
    }
    checksum
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

//! Reading one journal file whole: which frames live, where they end, and whether what follows is
//! a torn tail or damage.
//!
//! Guarantees that nothing acknowledged as synced is cut silently, as far as the file can tell: a
//! frame names the offset up to which the file was synced when it was written, so a valid frame
//! behind a bad one testifies against it. Changes nothing in the file.

use std::io;
use std::path::{Path, PathBuf};

use rederive_disk::DiskFile;

use super::error::{JournalError, io_error};
use super::format::{
    BLOCK_LEN, FRAME_ALIGN, FRAME_HEADER_LEN, FRAMES_START, Header, HeaderBlock, Salt, Side, VERSION,
    read_frame, read_frame_header,
};

const CHUNK_BYTES: usize = 64 * 1024;
/// Zeroes to write, and to compare with.
pub(super) const ZEROES: &[u8] = &[0; CHUNK_BYTES];

/// How often the search behind a bad frame may read a file's length in payloads, before so many
/// frames that claim each other's bytes are called damage.
const VERIFY_LENGTHS_MAX: u64 = 4;

/// Which of the two header blocks a header stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    First,
    Second,
}

impl Block {
    pub(super) fn offset(self) -> u64 {
        match self {
            Self::First => 0,
            Self::Second => BLOCK_LEN as u64,
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// One live frame of a dead owner's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecoveredFrame {
    /// The file that it stands in.
    pub(crate) path: PathBuf,
    /// Where it stands.
    pub(crate) offset: u64,
    /// The session whose events these are.
    pub(crate) session_key: u64,
    /// Position of the first event.
    pub(crate) first_seq: u64,
    /// How many events the payload holds.
    pub(crate) events: u32,
    /// The events' bytes as they were appended.
    pub(crate) payload: Vec<u8>,
}

/// Bytes at a file's end that looked like frames and were never acknowledged as synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DroppedTail {
    /// The file.
    pub(crate) path: PathBuf,
    /// Where the first bad frame stands.
    pub(crate) offset: u64,
    /// From there to the end of the last thing that looked like a frame.
    pub(crate) bytes: u64,
}

/// What a file holds.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) header: Header,
    pub(super) block: Block,
    pub(super) frames: Vec<RecoveredFrame>,
    /// Where the next frame goes.
    pub(super) end: u64,
    pub(super) dropped: Option<DroppedTail>,
}

/// The younger valid header, and its block; `None` where neither is valid.
pub(super) fn read_header(
    file: &dyn DiskFile,
    path: &Path,
    slot: u32,
    side: Side,
) -> Result<Option<(Header, Block)>, JournalError> {
    let mut best: Option<(Header, Block)> = None;
    for block in [Block::First, Block::Second] {
        let mut bytes = vec![0; BLOCK_LEN];
        let got = file.read_at(&mut bytes, block.offset()).map_err(io_error("read", path))?;
        bytes.truncate(got);
        match Header::decode(&bytes, slot, side) {
            HeaderBlock::Valid(header) => {
                if best.is_none_or(|(best, _)| best.counter < header.counter) {
                    best = Some((header, block));
                }
            }
            HeaderBlock::Version(found) => {
                return Err(JournalError::Version { path: path.to_owned(), found, supported: VERSION });
            }
            HeaderBlock::Invalid => {}
        }
    }
    Ok(best)
}

/// Reads the file whole; `None` for one whose creation was cut short before it held a frame.
pub(super) fn scan(
    file: &dyn DiskFile,
    path: &Path,
    slot: u32,
    side: Side,
) -> Result<Option<Scan>, JournalError> {
    let damaged = |offset, next_valid| JournalError::Damaged { path: path.to_owned(), offset, next_valid };
    let read_error = |source| io_error("read", path)(source);
    let file_len = file.len().map_err(read_error)?;
    let Some((header, block)) = read_header(file, path, slot, side)? else {
        // The first frame goes in after the first header was synced: no header, no frame.
        return if zero_from(file, FRAMES_START).map_err(read_error)? {
            Ok(None)
        } else {
            Err(damaged(0, None))
        };
    };
    if file_len < header.capacity {
        return Err(damaged(file_len, None));
    }
    // A frame of a later use than the header that was found: the header of that use is gone.
    if let Some((frame, _)) = read_frame(file, FRAMES_START, file_len, None).map_err(read_error)?
        && !frame.salt.follows(header.salt)
        && header.counter < frame.salt.counter()
    {
        return Err(damaged(block.other().offset(), Some(FRAMES_START)));
    }
    let mut scan = Scan { header, block, frames: Vec::new(), end: FRAMES_START, dropped: None };
    if header.pid == 0 {
        return Ok(Some(scan)); // closed: nothing was written since
    }
    let mut salt = header.salt;
    while let Some((frame, payload)) = read_frame(file, scan.end, file_len, Some(salt)).map_err(read_error)? {
        scan.frames.push(RecoveredFrame {
            path: path.to_owned(),
            offset: scan.end,
            session_key: frame.session_key,
            first_seq: frame.first_seq,
            events: frame.events,
            payload,
        });
        scan.end = frame.claimed_end(scan.end);
        salt = frame.salt;
    }
    match look_beyond(file, salt, scan.end, file_len).map_err(read_error)? {
        Beyond::Acknowledged { next_valid } => return Err(damaged(scan.end, next_valid)),
        Beyond::Unacknowledged { end } if scan.end < end => {
            scan.dropped =
                Some(DroppedTail { path: path.to_owned(), offset: scan.end, bytes: end - scan.end });
        }
        Beyond::Unacknowledged { .. } => {}
    }
    Ok(Some(scan))
}

/// The frames of the file's last use that read, with whatever between them. Where both headers are
/// gone, those of any use: what an earlier one holds is sealed, and passed over by its seqs.
pub(super) fn salvage(
    file: &dyn DiskFile,
    path: &Path,
    slot: u32,
    side: Side,
) -> Result<Vec<RecoveredFrame>, JournalError> {
    let read_error = |source| io_error("read", path)(source);
    let file_len = file.len().map_err(read_error)?;
    let header = read_header(file, path, slot, side)?.map(|(header, _)| header);
    let mut frames = Vec::new();
    if header.is_some_and(|header| header.pid == 0) {
        return Ok(frames);
    }
    let salt = header.map(|header| header.salt);
    let (mut chunk, mut chunk_at) = (Vec::new(), 0);
    let mut at = FRAMES_START;
    while at + FRAME_HEADER_LEN as u64 <= file_len {
        // Most of a file is zeroes, which no frame begins with.
        if at >= chunk_at + chunk.len() as u64 {
            chunk.resize(CHUNK_BYTES, 0);
            let got = file.read_at(&mut chunk, at).map_err(read_error)?;
            chunk.truncate(got);
            chunk_at = at;
            if is_zero(&chunk) {
                at += (got as u64).max(1);
                continue;
            }
        }
        let word = usize::try_from(at - chunk_at).ok().and_then(|from| chunk.get(from..from + 8));
        if word.is_some_and(is_zero) {
            at += FRAME_ALIGN;
            continue;
        }
        // Frames of an earlier use do not follow the salt; without a header there is none to follow.
        let Some((frame, payload)) = read_frame(file, at, file_len, None).map_err(read_error)? else {
            at += FRAME_ALIGN;
            continue;
        };
        let end = frame.claimed_end(at);
        if salt.is_none_or(|salt| frame.salt.follows(salt)) {
            frames.push(RecoveredFrame {
                path: path.to_owned(),
                offset: at,
                session_key: frame.session_key,
                first_seq: frame.first_seq,
                events: frame.events,
                payload,
            });
        }
        at = end;
    }
    Ok(frames)
}

/// What stands behind the last valid frame.
enum Beyond {
    /// A later frame says that the bytes at the bad offset were synced.
    Acknowledged { next_valid: Option<u64> },
    /// Nothing says so; what carries the salt ends at `end`.
    Unacknowledged { end: u64 },
}

fn look_beyond(file: &dyn DiskFile, salt: Salt, bad: u64, file_len: u64) -> io::Result<Beyond> {
    let mut end = bad;
    let mut verified = 0;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = bad;
    while at < file_len {
        let got = file.read_at(&mut chunk, at)?;
        let bytes = chunk.get(..got).unwrap_or_default();
        let (words, _) = if is_zero(bytes) { Default::default() } else { bytes.as_chunks::<8>() };
        for (word, offset) in words.iter().zip((at..).step_by(FRAME_ALIGN as usize)) {
            // The salt stands eight bytes into a frame.
            if !Salt::from_bytes(*word).follows(salt) || offset < bad + FRAME_ALIGN {
                continue;
            }
            let start = offset - FRAME_ALIGN;
            end = end.max((start + FRAME_HEADER_LEN as u64).min(file_len));
            let Some((frame, _)) = read_frame_header(file, start)? else { continue };
            end = end.max(frame.claimed_end(start).min(file_len));
            if frame.synced_to <= bad || !frame.plausible(start, file_len) {
                continue;
            }
            verified += u64::from(frame.length);
            if file_len.saturating_mul(VERIFY_LENGTHS_MAX) < verified {
                return Ok(Beyond::Acknowledged { next_valid: None });
            }
            if read_frame(file, start, file_len, Some(salt))?.is_some() {
                return Ok(Beyond::Acknowledged { next_valid: Some(start) });
            }
        }
        if got < chunk.len() {
            break;
        }
        at += got as u64;
    }
    Ok(Beyond::Unacknowledged { end })
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROES.len()).all(|chunk| ZEROES.starts_with(chunk))
}

/// Whether the file holds nothing but zeroes from `start` on.
fn zero_from(file: &dyn DiskFile, start: u64) -> io::Result<bool> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = start;
    loop {
        let got = file.read_at(&mut chunk, at)?;
        if !is_zero(chunk.get(..got).unwrap_or_default()) {
            return Ok(false);
        }
        if got < chunk.len() {
            return Ok(true);
        }
        at += got as u64;
    }
}

/// Zeroes what is not zero already between `from` and `to`; gives the bytes that it wrote.
pub(super) fn erase(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut written = 0;
    let mut at = from;
    while at < to {
        let want = (to - at).min(CHUNK_BYTES as u64) as usize;
        chunk.resize(want, 0);
        let got = file.read_at(&mut chunk, at)?;
        if got == 0 {
            break;
        }
        chunk.truncate(got);
        if !is_zero(&chunk) {
            chunk.fill(0);
            file.write_at(&chunk, at)?;
            written += got as u64;
        }
        at += got as u64;
    }
    Ok(written)
}

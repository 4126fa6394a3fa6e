//! One object's file: a header of 64 bytes and the payload.
//!
//! Owns every byte of the format (FORMAT.md § Objects). Knows bytes and the digest that they must
//! have; knows no paths and no disk. Nothing is allocated on the word of a header alone.

use std::io::Read;

use crate::digest::Digest;

/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 64;
/// The version that is written, and the newest that is read.
pub(crate) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"RDRVOBJ\0";
const CHECKSUM_BYTES: usize = 16;
const CHECKED_BYTES: usize = HEADER_BYTES - CHECKSUM_BYTES;
const ZSTD_LEVEL: i32 = 3;

const _: () = assert!(
    HEADER_BYTES == 8 + 4 + 1 + 3 + 8 + 8 + CHECKSUM_BYTES + CHECKSUM_BYTES,
    "magic, version, codec, reserved, length, put time, payload checksum, header checksum"
);

/// How an object's bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// As they are.
    Raw,
    /// As one zstd frame.
    Zstd,
}

/// What the header of an object's file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) codec: Codec,
    /// Length of the object, uncompressed.
    pub(crate) bytes: u64,
    /// When it was put, in ms since the epoch.
    pub(crate) put_ms: u64,
    /// Of the stored payload, where it is not the object itself; zeroes otherwise.
    payload_checksum: [u8; CHECKSUM_BYTES],
}

/// What is wrong with an object's file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The file is shorter than a header, or its payload is not as long as the header says.
    #[error("file of {found} bytes, where {expected} belong")]
    Length {
        /// Bytes that the file has.
        found: u64,
        /// Bytes that it should have, or at least should have.
        expected: u64,
    },
    /// The file does not begin as an object does.
    #[error("file that does not begin as an object does")]
    Magic,
    /// The header's checksum is not that of its bytes and of the name.
    #[error("header that does not match its checksum, or not this name")]
    Header,
    /// A field of the header has a value that this version does not know.
    #[error("header field {field} with an unknown value")]
    Field {
        /// Name of the field, as in the description of the format.
        field: &'static str,
    },
    /// The stored payload is not what was written.
    #[error("payload that does not match its checksum")]
    Payload,
    /// The payload is whole and cannot be decompressed to the length that the header says.
    #[error("payload that does not decompress to {expected} bytes")]
    Decompress {
        /// Bytes that the object has.
        expected: u64,
    },
    /// The bytes are those of another object.
    #[error("bytes of {found}")]
    Digest {
        /// Digest of the bytes that are there.
        found: Digest,
    },
}

/// Why a header cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    Damage(Damage),
    Version(u32),
}

impl From<Damage> for HeaderFault {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

/// What a put writes: the header, and the payload where it is not the object's own bytes.
pub(crate) struct Encoded {
    pub(crate) header: [u8; HEADER_BYTES],
    pub(crate) codec: Codec,
    compressed: Vec<u8>,
}

impl Encoded {
    /// Encodes `object`, whose digest is `digest`: compressed where that saves at least 5 %.
    pub(crate) fn new(object: &[u8], digest: &Digest, put_ms: u64) -> std::io::Result<Self> {
        let compressed =
            if is_compressed(object) { None } else { Some(zstd::bulk::compress(object, ZSTD_LEVEL)?) };
        let kept = compressed.filter(|compressed| saves(compressed.len(), object.len()));
        let header = Header {
            codec: if kept.is_some() { Codec::Zstd } else { Codec::Raw },
            bytes: object.len() as u64,
            put_ms,
            payload_checksum: kept.as_deref().map_or([0; CHECKSUM_BYTES], checksum),
        };
        Ok(Self { header: header.encode(digest), codec: header.codec, compressed: kept.unwrap_or_default() })
    }

    /// The bytes behind the header.
    pub(crate) fn payload<'a>(&'a self, object: &'a [u8]) -> &'a [u8] {
        match self.codec {
            Codec::Raw => object,
            Codec::Zstd => &self.compressed,
        }
    }
}

/// Whether `compressed` bytes in the place of `bytes` save at least 5 %.
fn saves(compressed: usize, bytes: usize) -> bool {
    compressed as u128 * 20 <= bytes as u128 * 19 && compressed < bytes
}

/// Whether `object` begins like a medium or an archive that is compressed already.
fn is_compressed(object: &[u8]) -> bool {
    const STARTS: [&[u8]; 10] = [
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff",
        b"GIF8",
        b"PK\x03\x04",
        b"\x1f\x8b\x08",
        b"\x28\xb5\x2f\xfd",
        b"\xfd7zXZ\0",
        b"7z\xbc\xaf\x27\x1c",
        b"OggS",
        b"fLaC",
    ];
    STARTS.iter().any(|start| object.starts_with(start))
        || (object.starts_with(b"RIFF") && object.get(8..12) == Some(b"WEBP"))
        || object.get(4..8) == Some(b"ftyp")
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    first_half(blake3::hash(bytes))
}

fn first_half(hash: blake3::Hash) -> [u8; CHECKSUM_BYTES] {
    let (halves, _) = hash.as_bytes().as_chunks::<CHECKSUM_BYTES>();
    halves.first().copied().unwrap_or_default()
}

/// Of the header's bytes and the digest: a file under another object's name is found by its header.
fn header_checksum(checked: &[u8], digest: &Digest) -> [u8; CHECKSUM_BYTES] {
    first_half(blake3::Hasher::new().update(checked).update(digest.as_bytes()).finalize())
}

impl Header {
    fn encode(&self, digest: &Digest) -> [u8; HEADER_BYTES] {
        let codec = match self.codec {
            Codec::Raw => 0,
            Codec::Zstd => 1,
        };
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[codec, 0, 0, 0]);
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.put_ms.to_le_bytes());
        out.extend_from_slice(&self.payload_checksum);
        let checksum = header_checksum(&out, digest);
        out.extend_from_slice(&checksum);
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&out);
        header
    }

    /// Reads the header of `digest`'s file, which is `file_bytes` long.
    pub(crate) fn decode(
        bytes: &[u8; HEADER_BYTES],
        digest: &Digest,
        file_bytes: u64,
    ) -> Result<Self, HeaderFault> {
        let (magic, rest) = bytes.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(Damage::Magic.into());
        }
        let (checked, found) = bytes.split_at(CHECKED_BYTES);
        if found != header_checksum(checked, digest) {
            return Err(Damage::Header.into());
        }
        let mut rest = rest;
        let version = u32::from_le_bytes(take(&mut rest));
        if version != VERSION {
            return Err(HeaderFault::Version(version));
        }
        let codec = match take::<1>(&mut rest) {
            [0] => Codec::Raw,
            [1] => Codec::Zstd,
            _ => return Err(Damage::Field { field: "codec" }.into()),
        };
        if take::<3>(&mut rest) != [0; 3] {
            return Err(Damage::Field { field: "reserved" }.into());
        }
        let header = Self {
            codec,
            bytes: u64::from_le_bytes(take(&mut rest)),
            put_ms: u64::from_le_bytes(take(&mut rest)),
            payload_checksum: take(&mut rest),
        };
        if codec == Codec::Raw {
            let expected = header.bytes.saturating_add(HEADER_BYTES as u64);
            if file_bytes != expected {
                return Err(Damage::Length { found: file_bytes, expected }.into());
            }
            if header.payload_checksum != [0; CHECKSUM_BYTES] {
                return Err(Damage::Field { field: "payload checksum" }.into());
            }
        }
        Ok(header)
    }

    /// The object that `payload` holds, once its digest was found to be `digest`.
    ///
    /// The caller has held [`Header::bytes`] against its limit. What is allocated grows with what
    /// is decompressed.
    pub(crate) fn open(&self, payload: Vec<u8>, digest: &Digest) -> Result<Vec<u8>, Damage> {
        let object = match self.codec {
            Codec::Raw => payload,
            Codec::Zstd => {
                if checksum(&payload) != self.payload_checksum {
                    return Err(Damage::Payload);
                }
                self.decompress(&payload).ok_or(Damage::Decompress { expected: self.bytes })?
            }
        };
        let found = Digest::of(&object);
        if found == *digest { Ok(object) } else { Err(Damage::Digest { found }) }
    }

    fn decompress(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let likely = (payload.len() as u64).saturating_mul(16).min(self.bytes);
        let mut object = Vec::with_capacity(usize::try_from(likely).ok()?);
        let decoder = zstd::stream::Decoder::with_buffer(payload).ok()?;
        decoder.take(self.bytes.saturating_add(1)).read_to_end(&mut object).ok()?;
        (object.len() as u64 == self.bytes).then_some(object)
    }
}

/// The first `N` bytes of `bytes`, which has them: its callers cut a header of fixed length.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (first, rest) = bytes.split_first_chunk::<N>().unwrap_or((&[0; N], &[]));
    *bytes = rest;
    *first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_kept_from_five_percent_on() {
        assert!(saves(95, 100) && !saves(96, 100) && !saves(0, 0));
        let digest = Digest::of(&[7; 1000]);
        let encoded = Encoded::new(&[7; 1000], &digest, 5).unwrap();
        assert_eq!(encoded.codec, Codec::Zstd);
        let header = Header::decode(&encoded.header, &digest, 64).unwrap();
        assert_eq!((header.bytes, header.put_ms), (1000, 5));
        assert_eq!(header.open(encoded.payload(&[]).to_vec(), &digest).unwrap(), [7; 1000]);
    }

    #[test]
    fn known_media_are_not_compressed() {
        let gif = [b"GIF89a".as_slice(), &[0; 5000]].concat();
        assert_eq!(Encoded::new(&gif, &Digest::of(&gif), 0).unwrap().codec, Codec::Raw);
    }

    #[test]
    fn a_newer_version_is_named() {
        let digest = Digest::of(b"x");
        let mut header = Encoded::new(b"x", &digest, 0).unwrap().header;
        header[8] = 2;
        let checksum = header_checksum(&header[..48], &digest);
        header[48..].copy_from_slice(&checksum);
        assert_eq!(Header::decode(&header, &digest, 65), Err(HeaderFault::Version(2)));
    }

    #[test]
    fn a_bomb_in_a_payload_allocates_no_more_than_the_header_says() {
        let payload = zstd::bulk::compress(&vec![0; 10_000_000], 3).unwrap();
        let header =
            Header { codec: Codec::Zstd, bytes: 1000, put_ms: 0, payload_checksum: checksum(&payload) };
        assert_eq!(header.open(payload, &Digest::of(b"")), Err(Damage::Decompress { expected: 1000 }));
    }
}

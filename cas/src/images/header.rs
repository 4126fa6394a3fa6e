//! What an image's container says of it: dimensions, orientation, and where it ends.
//!
//! Walks the chunks, segments or blocks of the four formats from the first byte to the last and
//! never decodes a pixel, so a decompression bomb costs what its bytes cost. Knows no limits.
//!
//! Sources: PNG (ISO/IEC 15948), JPEG (ITU-T T.81), EXIF 2.32, WebP (RFC 9649), GIF89a.

use super::MediaType;

/// What the container says, as far as it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageHeader {
    /// Width and height as stored, where the walk came as far as that.
    size: Option<(u32, u32)>,
    /// EXIF orientation, 1 to 8; 1 where there is none.
    orientation: u8,
    /// Where the image ends: what stands behind it is not part of it.
    pub(crate) end: Result<usize, HeaderFault>,
}

impl ImageHeader {
    /// Width and height as shown: after the orientation is applied.
    pub(crate) fn size(&self) -> Option<(u32, u32)> {
        let (width, height) = self.size?;
        Some(if 5 <= self.orientation { (height, width) } else { (width, height) })
    }
}

/// Why a container cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// The bytes end before the image does.
    Truncated,
    /// The structure is broken at this offset.
    Malformed { at: usize },
}

/// The offset of the end.
type End = Result<usize, HeaderFault>;

/// What was found on the way.
#[derive(Default)]
struct Found {
    size: Option<(u32, u32)>,
    orientation: Option<u8>,
}

/// Reads the container of `bytes`, whose magic bytes are those of `media_type`.
pub(crate) fn read(media_type: MediaType, bytes: &[u8]) -> ImageHeader {
    let cursor = Cursor { bytes, at: 0 };
    let mut found = Found::default();
    let end = match media_type {
        MediaType::Png => png(cursor, &mut found),
        MediaType::Jpeg => jpeg(cursor, &mut found),
        MediaType::Webp => webp(cursor, &mut found),
        MediaType::Gif => gif(cursor, &mut found),
    };
    ImageHeader { size: found.size, orientation: found.orientation.unwrap_or(1), end }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], HeaderFault> {
        let end = self.at.checked_add(length).ok_or(HeaderFault::Truncated)?;
        let taken = self.bytes.get(self.at..end).ok_or(HeaderFault::Truncated)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], HeaderFault> {
        self.take(N)?.try_into().map_err(|_| HeaderFault::Truncated)
    }

    fn byte(&mut self) -> Result<u8, HeaderFault> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// Most significant byte first, as PNG and JPEG have it.
    fn network_u16(&mut self) -> Result<u16, HeaderFault> {
        let [high, low] = self.array()?;
        Ok(u16::from(high) << 8 | u16::from(low))
    }

    fn network_u32(&mut self) -> Result<u32, HeaderFault> {
        Ok(u32::from(self.network_u16()?) << 16 | u32::from(self.network_u16()?))
    }

    fn malformed(&self) -> HeaderFault {
        HeaderFault::Malformed { at: self.at }
    }
}

/// Signature, IHDR first, chunks, IDAT among them, IEND.
fn png(mut cursor: Cursor<'_>, found: &mut Found) -> End {
    cursor.take(8)?;
    let mut has_data = false;
    loop {
        let at = cursor.at;
        let length = cursor.network_u32()?;
        let kind: [u8; 4] = cursor.array()?;
        if length > i32::MAX as u32 {
            return Err(HeaderFault::Malformed { at });
        }
        let mut chunk = Cursor { bytes: cursor.take(length as usize)?, at: 0 };
        let checksum = cursor.network_u32()?;
        match (&kind, found.size) {
            (b"IHDR", None) if length == 13 => {
                found.size = Some((chunk.network_u32()?, chunk.network_u32()?));
                // The one chunk whose checksum is looked at: it is what is believed here.
                if checksum != crc(&kind, chunk.bytes) {
                    return Err(HeaderFault::Malformed { at });
                }
            }
            (b"IHDR", _) | (_, None) => return Err(HeaderFault::Malformed { at }),
            (b"IDAT", _) => has_data = true,
            (b"IEND", _) if has_data => return Ok(cursor.at),
            (b"IEND", _) => return Err(HeaderFault::Malformed { at }),
            _ => {}
        }
    }
}

/// The checksum of PNG's chunks, bit by bit: seventeen bytes are no work.
fn crc(kind: &[u8], chunk: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in kind.iter().chain(chunk) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// SOI, segments, a frame header among them, scans, EOI.
fn jpeg(mut cursor: Cursor<'_>, found: &mut Found) -> End {
    cursor.take(2)?;
    let mut has_scan = false;
    loop {
        if cursor.byte()? != 0xff {
            return Err(cursor.malformed());
        }
        let mut marker = cursor.byte()?;
        while marker == 0xff {
            marker = cursor.byte()?; // fill bytes
        }
        let is_frame = matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc);
        match marker {
            0xd9 if found.size.is_some() && has_scan => return Ok(cursor.at),
            0x01 | 0xd0..=0xd7 => continue, // no length
            0x00 | 0xd8 | 0xd9 => return Err(cursor.malformed()),
            _ => {}
        }
        let length = usize::from(cursor.network_u16()?);
        if length < 2 {
            return Err(cursor.malformed());
        }
        let mut segment = Cursor { bytes: cursor.take(length - 2)?, at: 0 };
        if is_frame {
            if found.size.is_some() {
                return Err(cursor.malformed());
            }
            segment.byte()?;
            let height = segment.network_u16()?;
            found.size = Some((u32::from(segment.network_u16()?), u32::from(height)));
        } else if marker == 0xe1 && found.orientation.is_none() {
            found.orientation = segment.bytes.strip_prefix(b"Exif\0\0").and_then(exif_orientation);
        } else if marker == 0xda {
            has_scan = true;
            skip_scan(&mut cursor)?;
        }
    }
}

/// Passes over entropy-coded bytes, up to the next marker that is not part of them.
fn skip_scan(cursor: &mut Cursor<'_>) -> Result<(), HeaderFault> {
    loop {
        let rest = cursor.bytes.get(cursor.at..).unwrap_or_default();
        let to = memchr::memchr(0xff, rest).ok_or(HeaderFault::Truncated)?;
        match rest.get(to + 1) {
            None => return Err(HeaderFault::Truncated),
            Some(0x00 | 0xd0..=0xd7) => cursor.at += to + 2,
            Some(0xff) => cursor.at += to + 1,
            Some(_) => {
                cursor.at += to;
                return Ok(());
            }
        }
    }
}

/// The orientation in the first directory of a TIFF structure.
fn exif_orientation(tiff: &[u8]) -> Option<u8> {
    let is_little = match tiff.get(..4)? {
        b"II\x2a\0" => true,
        b"MM\0\x2a" => false,
        _ => return None,
    };
    let u16_at = |at: usize| {
        let (first, second) = (u16::from(*tiff.get(at)?), u16::from(*tiff.get(at.checked_add(1)?)?));
        Some(if is_little { second << 8 | first } else { first << 8 | second })
    };
    let u32_at = |at: usize| {
        let (first, second) = (u32::from(u16_at(at)?), u32::from(u16_at(at.checked_add(2)?)?));
        Some(if is_little { second << 16 | first } else { first << 16 | second })
    };
    let directory = u32_at(4)? as usize;
    let entries = usize::from(u16_at(directory)?);
    (0..entries).find_map(|entry| {
        let at = directory.checked_add(2 + entry * 12)?;
        // Tag 0x0112, one SHORT, whose value stands in the first two of the four value bytes.
        let is_orientation = u16_at(at)? == 0x0112 && u16_at(at + 2)? == 3 && u32_at(at + 4)? == 1;
        let value = u8::try_from(u16_at(at + 8)?).ok()?;
        (is_orientation && (1..=8).contains(&value)).then_some(value)
    })
}

/// RIFF of one WEBP form: `VP8 `, `VP8L`, or `VP8X` with frames in further chunks.
fn webp(mut cursor: Cursor<'_>, found: &mut Found) -> End {
    cursor.take(4)?;
    let riff_bytes = u32::from_le_bytes(cursor.array()?) as usize;
    let end = riff_bytes.checked_add(8).ok_or(HeaderFault::Truncated)?;
    // Cut short where the bytes are: what stands there is read, then the end is missed.
    let mut form = Cursor { bytes: cursor.bytes.get(..end).unwrap_or(cursor.bytes), at: 12 };
    let mut has_data = false;
    while form.at < end {
        let at = form.at;
        let kind: [u8; 4] = form.array()?;
        let length = u32::from_le_bytes(form.array()?) as usize;
        let rest = form.bytes.get(form.at..).unwrap_or_default();
        let mut chunk = Cursor { bytes: rest.get(..length).unwrap_or(rest), at: 0 };
        match &kind {
            b"VP8X" if found.size.is_none() => {
                chunk.take(4)?;
                let [w0, w1, w2, h0, h1, h2] = chunk.array()?;
                let side = |bytes: [u8; 4]| u32::from_le_bytes(bytes) + 1;
                found.size = Some((side([w0, w1, w2, 0]), side([h0, h1, h2, 0])));
            }
            b"VP8 " => {
                has_data = true;
                chunk.take(3)?;
                if chunk.array()? != [0x9d, 0x01, 0x2a] {
                    return Err(HeaderFault::Malformed { at });
                }
                let width = u16::from_le_bytes(chunk.array()?) & 0x3fff; // above it: scaling
                let height = u16::from_le_bytes(chunk.array()?) & 0x3fff;
                found.size = found.size.or(Some((u32::from(width), u32::from(height))));
            }
            b"VP8L" => {
                has_data = true;
                if chunk.byte()? != 0x2f {
                    return Err(HeaderFault::Malformed { at });
                }
                let packed = u32::from_le_bytes(chunk.array()?);
                found.size = found.size.or(Some(((packed & 0x3fff) + 1, (packed >> 14 & 0x3fff) + 1)));
            }
            b"ANMF" => has_data = true,
            b"EXIF" => {
                let tiff = chunk.bytes.strip_prefix(b"Exif\0\0").unwrap_or(chunk.bytes);
                found.orientation = exif_orientation(tiff);
            }
            _ => {}
        }
        if found.size.is_none() {
            return Err(HeaderFault::Malformed { at });
        }
        form.take(length)?;
        if length % 2 == 1 {
            form.take(1)?;
        }
    }
    if has_data { Ok(end) } else { Err(HeaderFault::Malformed { at: 12 }) }
}

/// Header, screen descriptor, blocks, an image among them, trailer.
fn gif(mut cursor: Cursor<'_>, found: &mut Found) -> End {
    cursor.take(6)?;
    let width = u32::from(u16::from_le_bytes(cursor.array()?));
    let height = u32::from(u16::from_le_bytes(cursor.array()?));
    found.size = Some((width, height));
    let flags = cursor.byte()?;
    cursor.take(2)?;
    take_colours(&mut cursor, flags)?;
    let mut has_image = false;
    loop {
        match cursor.byte()? {
            0x2c => {
                has_image = true;
                cursor.take(8)?;
                let flags = cursor.byte()?;
                take_colours(&mut cursor, flags)?;
                cursor.take(1)?;
            }
            0x21 => {
                cursor.take(1)?;
            }
            0x3b if has_image => return Ok(cursor.at),
            _ => return Err(HeaderFault::Malformed { at: cursor.at - 1 }),
        }
        loop {
            let length = cursor.byte()?;
            if length == 0 {
                break;
            }
            cursor.take(usize::from(length))?;
        }
    }
}

fn take_colours(cursor: &mut Cursor<'_>, flags: u8) -> Result<(), HeaderFault> {
    if flags & 0x80 != 0 {
        cursor.take(3 << ((flags & 7) + 1))?;
    }
    Ok(())
}

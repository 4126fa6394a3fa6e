//! Images made by hand, and stores to put them in.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rederive_cas::{Objects, ObjectsOptions};
use rederive_disk::Disk;

/// A clock that tests set.
#[derive(Clone, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::Relaxed);
    }
}

pub(crate) fn options(clock: &Clock) -> ObjectsOptions {
    let clock = clock.clone();
    ObjectsOptions {
        object_bytes_max: 64 << 20,
        refresh: Duration::from_secs(1),
        clock_ms: Arc::new(move || clock.now()),
    }
}

pub(crate) fn open(disk: impl Disk, folder: impl AsRef<Path>) -> Objects {
    Objects::open(Arc::new(disk), folder.as_ref(), options(&Clock::default())).unwrap()
}

/// Bytes that do not compress, from a seed.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}

fn network(number: u32) -> [u8; 4] {
    let mut bytes = number.to_le_bytes();
    bytes.reverse();
    bytes
}

fn network_short(number: u16) -> [u8; 2] {
    let [low, high] = number.to_le_bytes();
    [high, low]
}

fn chunk(kind: [u8; 4], data: &[u8]) -> Vec<u8> {
    let mut crc = u32::MAX;
    for byte in kind.iter().chain(data) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    [&network(data.len() as u32)[..], &kind, data, &network(!crc)].concat()
}

/// A PNG of these sides, whose data is as long as it takes to make the file `bytes` long.
pub(crate) fn png_of(width: u32, height: u32, bytes: usize) -> Vec<u8> {
    let fixed = 8 + 25 + 12 + 12;
    let data = noise(u64::from(width), bytes.checked_sub(fixed).expect("room for an empty image"));
    let header = [&network(width)[..], &network(height), &[8, 2, 0, 0, 0]].concat();
    let parts = [chunk(*b"IHDR", &header), chunk(*b"IDAT", &data), chunk(*b"IEND", b"")];
    [b"\x89PNG\r\n\x1a\n".to_vec(), parts.concat()].concat()
}

pub(crate) fn png(width: u32, height: u32) -> Vec<u8> {
    png_of(width, height, 200)
}

fn segment(marker: u8, data: &[u8]) -> Vec<u8> {
    [&[0xff, marker][..], &network_short(data.len() as u16 + 2), data].concat()
}

/// A JPEG of these sides as stored, with an orientation in either byte order.
pub(crate) fn jpeg(width: u16, height: u16, orientation: Option<(u8, bool)>) -> Vec<u8> {
    let mut out = vec![0xff, 0xd8];
    if let Some((orientation, is_little)) = orientation {
        let tiff: Vec<u8> = if is_little {
            [&b"II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"[..], &[orientation, 0, 0, 0], &[0; 4]]
                .concat()
        } else {
            [&b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01"[..], &[0, orientation, 0, 0], &[0; 4]]
                .concat()
        };
        out.extend(segment(0xe1, &[b"Exif\0\0".to_vec(), tiff].concat()));
    }
    let frame = [&[8][..], &network_short(height), &network_short(width), &[1, 1, 0x11, 0]].concat();
    out.extend(segment(0xc0, &frame));
    out.extend(segment(0xda, &[1, 1, 0, 0, 63, 0]));
    out.extend([0x12, 0xff, 0x00, 0x34, 0xff, 0xd0, 0x56, 0xff, 0xd9]);
    out
}

/// A GIF of these sides with one image of one pixel.
pub(crate) fn gif(width: u16, height: u16) -> Vec<u8> {
    let mut out = include_bytes!("images/pixel.gif").to_vec();
    out[6..8].copy_from_slice(&width.to_le_bytes());
    out[8..10].copy_from_slice(&height.to_le_bytes());
    out
}

fn riff(chunks: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let mut body = b"WEBP".to_vec();
    for (kind, data) in chunks {
        body.extend(*kind);
        body.extend((data.len() as u32).to_le_bytes());
        body.extend(data);
        body.extend(vec![0; data.len() % 2]);
    }
    [b"RIFF".to_vec(), (body.len() as u32).to_le_bytes().to_vec(), body].concat()
}

/// A lossless WebP of these sides.
pub(crate) fn webp_lossless(width: u32, height: u32) -> Vec<u8> {
    let packed = (width - 1) | (height - 1) << 14;
    riff(&[(b"VP8L", [&[0x2f][..], &packed.to_le_bytes(), &[1, 2]].concat())])
}

/// A lossy WebP of these sides, with scaling bits that are none of the sides'.
pub(crate) fn webp_lossy(width: u16, height: u16) -> Vec<u8> {
    let sides = [(width | 0x4000).to_le_bytes(), (height | 0x8000).to_le_bytes()].concat();
    riff(&[(b"VP8 ", [&[0, 0, 0, 0x9d, 0x01, 0x2a][..], &sides, &[0; 6]].concat())])
}

/// An extended WebP of these sides.
pub(crate) fn webp_extended(width: u32, height: u32) -> Vec<u8> {
    let sides = [&(width - 1).to_le_bytes()[..3], &(height - 1).to_le_bytes()[..3]].concat();
    let header = [&[0; 4][..], &sides].concat();
    riff(&[(b"VP8X", header), (b"VP8L", vec![0x2f, 0, 0, 0, 0, 7])])
}

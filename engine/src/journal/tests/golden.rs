//! The bytes of FORMAT.md § Journal, pinned.

use std::fmt::Write as _;
use std::fs;

use super::*;

const START: usize = 8192;

/// A journal of two frames, up to the end of the second one.
fn two_frames() -> Vec<u8> {
    let disk = store(1);
    let (journal, _) = acquire(&disk);
    append_synced(&journal, 7, 0, b"first");
    let frame = FrameWrite { session_key: 7, first_seq: 1, events: 2, payload: b"second, third" };
    let end = journal.append(frame).unwrap();
    disk.files()[&file("0-a.jnl")][..end.offset as usize].to_vec()
}

/// Offset, length and comment of every field that is not zero padding.
fn fields() -> Vec<(usize, usize, &'static str)> {
    let mut fields = vec![
        (0, 8, "magic \"RDRVJNL\\0\""),
        (8, 4, "format version 1"),
        (12, 4, "slot 0"),
        (16, 8, "counter 1"),
        (24, 8, "salt: generation 1 below, random above"),
        (32, 4, "process id 4711"),
        (36, 4, "file a"),
        (40, 8, "capacity 256 KiB"),
        (4080, 16, "checksum of the block's first 4080 bytes"),
    ];
    let payloads = [(START, 5, "payload \"first\""), (START + 64, 13, "payload \"second, third\"")];
    for (start, length, payload) in payloads {
        fields.extend([
            (start, 4, "payload length"),
            (start + 4, 4, "events"),
            (start + 8, 8, "salt"),
            (start + 16, 8, "session key 7"),
            (start + 24, 8, "first seq"),
            (start + 32, 8, "synced to"),
            (start + 40, 16, "checksum of the fields, the frame's offset and the payload"),
            (start + 56, length, payload),
        ]);
    }
    fields
}

fn to_hex(bytes: &[u8]) -> String {
    let mut out = String::from(
        "# FORMAT.md § Journal: slot 0, file a, one header, two frames. Offset: bytes # field.\n\
         # What is not listed is zero.\n",
    );
    for (offset, length, comment) in fields() {
        let hex: Vec<String> =
            bytes[offset..offset + length].iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(out, "{offset:06x}: {} # {comment}", hex.join(" ")).unwrap();
    }
    writeln!(out, "{:06x}: # end", bytes.len()).unwrap();
    out
}

fn from_hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (line, _comment) = line.split_once('#').unwrap();
        let (offset, hex) = line.split_once(':').unwrap();
        bytes.resize(usize::from_str_radix(offset, 16).unwrap(), 0);
        bytes.extend(hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    bytes
}

#[test]
fn two_frames_have_their_golden_bytes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1/journal-two-frames.hex");
    let written = two_frames();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, to_hex(&written)).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    let mut golden = from_hex(&text);
    assert_eq!(golden, written);
    assert_eq!(text, to_hex(&golden), "every byte that is not zero is listed");

    golden.resize(256 * 1024, 0);
    let disk = SimDisk::from_files(1, [(file("0-a.jnl"), golden)]);
    let (_, recovered) = acquire(&disk);
    let frame = |offset, first_seq, events, payload: &[u8]| RecoveredFrame {
        path: file("0-a.jnl"),
        offset,
        session_key: 7,
        first_seq,
        events,
        payload: payload.to_vec(),
    };
    assert_eq!(recovered.frames, [frame(8192, 0, 1, b"first"), frame(8256, 1, 2, b"second, third")]);
    assert_eq!(recovered.dropped, []);
}

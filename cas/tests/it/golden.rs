//! The bytes of version 1 are read for ever. `UPDATE_GOLDEN=1` writes them anew.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rederive_cas::{Codec, Objects};
use rederive_disk::OsDisk;

use crate::samples::{self, Clock};

const FIELDS: [(&str, usize); 8] = [
    ("magic", 8),
    ("version", 4),
    ("codec", 1),
    ("reserved", 3),
    ("length", 8),
    ("put time", 8),
    ("payload checksum", 16),
    ("header checksum", 16),
];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(name)
}

fn dump(title: &str, bytes: &[u8]) -> String {
    let mut out = format!("# {title} FORMAT.md, Objects.\n");
    let mut at = 0;
    for (field, length) in FIELDS.into_iter().chain([("payload", bytes.len() - 64)]) {
        writeln!(out, "# {field}, at {at}").unwrap();
        for line in bytes[at..at + length].chunks(16) {
            let digits: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(out, "{}", digits.join(" ")).unwrap();
        }
        at += length;
    }
    out
}

fn undump(text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn check(name: &str, title: &str, object: &[u8], codec: Codec) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::default();
    clock.set(1_700_000_000_000);
    let objects = Objects::open(Arc::new(OsDisk), folder.path(), samples::options(&clock)).unwrap();
    let digest = objects.put(object).unwrap();
    let written = fs::read(objects.path(&digest)).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path(name), dump(title, &written)).unwrap();
    }
    let golden = undump(&fs::read_to_string(path(name)).unwrap());
    if codec == Codec::Raw {
        assert_eq!(written, golden, "{name} is written as it ever was");
    }
    // What zstd writes may change with its version; what it reads may not.
    fs::remove_file(objects.path(&digest)).unwrap();
    fs::write(objects.path(&digest), &golden).unwrap();
    assert_eq!(objects.get(&digest).unwrap(), object);
    let stat = objects.stat(&digest).unwrap();
    assert_eq!((stat.codec, stat.put_ms), (codec, 1_700_000_000_000));
}

#[test]
fn objects_of_version_1_are_read_as_they_were_written() {
    check("object-raw.hex", "An object of five bytes, raw.", b"hello", Codec::Raw);
    let zeroes = [0; 1000];
    check("object-zstd.hex", "An object of a thousand zeroes, compressed.", &zeroes, Codec::Zstd);
}

#[test]
fn the_format_is_written_down() {
    let format = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/FORMAT.md")).unwrap();
    let objects = format.split("\n## ").find(|section| section.starts_with("Objects")).unwrap();
    for (field, _) in FIELDS {
        assert!(objects.contains(&format!("| {field} |")), "{field}");
    }
}

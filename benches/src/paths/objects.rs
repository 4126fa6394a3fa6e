//! Images: putting and getting objects, beside a plain file with a sync and a BLAKE3 of the bytes.

use std::fs::{self, File};
use std::io::Write;
use std::sync::Arc;

use rederive_cas::{Objects, ObjectsOptions};
use rederive_disk::OsDisk;

use super::Settings;
use crate::measure::{Rounds, bytes_f64, micros, timed};
use crate::peers;
use crate::report::{Bound, Goal, Report, Row};
use crate::{BenchError, during};

/// What a JPEG begins with, and bytes that do not compress, another run of them for each `seed`.
fn picture(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    out.extend_from_slice(&[0xff, 0xd8, 0xff, 0xe0]);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// Fills `report` with everything about objects.
///
/// # Errors
///
/// A [`BenchError`].
pub fn run(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    one(settings, report, "1MB", 1_000_000, settings.pick(40, 5))?;
    one(settings, report, "20MB", 20_000_000, settings.pick(9, 2))
}

fn one(
    settings: &Settings,
    report: &mut Report,
    name: &str,
    bytes: usize,
    rounds: u64,
) -> Result<(), BenchError> {
    let folder = settings.fresh()?;
    let objects = Objects::open(Arc::new(OsDisk), folder.path().join("objects"), ObjectsOptions::default())
        .map_err(during("open objects"))?;
    // A store in use has all its folders.
    for seed in 0..1_500 {
        objects.put(&picture(1_000_000 + seed, 64)).map_err(during("put an object"))?;
    }
    let plain = folder.path().join("plain");
    let mut measured = Rounds::new(4);
    for round in 0..rounds {
        let object = picture(round + 1, bytes);
        let path = plain.with_extension(round.to_string());
        let (put_plain, outcome) = timed(|| {
            let hash = blake3::hash(&object);
            let mut file = File::create(&path)?;
            file.write_all(&object)?;
            file.sync_all().map(|()| hash)
        });
        let hash = outcome.map_err(during("write a file"))?;
        let (put, digest) = timed(|| objects.put(&object));
        let digest = digest.map_err(during("put an object"))?;
        let (get_plain, read) = timed(|| fs::read(&path).map(|read| (blake3::hash(&read), read)));
        let (read_hash, read) = read.map_err(during("read a file"))?;
        let (get, got) = timed(|| objects.get(&digest));
        let got = got.map_err(during("get an object"))?;
        if got != read || read_hash != hash || *digest.as_bytes() != *hash.as_bytes() {
            return Err(BenchError::Unfit(format!("{name}: the object is not what was put")));
        }
        for (lane, took) in [put, put_plain, get, get_plain].into_iter().enumerate() {
            measured.push(lane, [micros(took) / 1000.0].into_iter().collect());
        }
    }
    let own = peers::REDERIVE.name;
    let limit = "plain file, BLAKE3";
    let row = |path: &str, who: &str, lane, to| {
        Row::new(format!("objects/{path}/{name}"), who, "ms", measured.all(lane))
            .against(limit, measured.ratio(lane, to))
    };
    report.row(row("put", own, 0, 1));
    report.row(row("put", limit, 1, 1));
    report.row(row("get", own, 2, 3));
    report.row(row("get", limit, 3, 3));
    let within = Bound::AtMost(1.3);
    report.goal(
        Goal::Objects,
        &format!("put {name}, to the plain file"),
        "x",
        measured.ratio(0, 1).median,
        within,
    );
    report.goal(
        Goal::Objects,
        &format!("get {name}, to the plain file"),
        "x",
        measured.ratio(2, 3).median,
        within,
    );
    let gb_a_second = bytes_f64(bytes as u64) / 1e6 / measured.all(2).median;
    report.goal(Goal::Objects, &format!("get {name}, verified"), "GB/s", gb_a_second, Bound::AtLeast(1.0));
    Ok(())
}

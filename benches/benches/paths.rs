//! The hot paths one by one, with their limits beside them. `cargo bench -p rederive-benches`.
//!
//! Named by path and size. `BENCH_QUICK=1` takes the small workloads. The ratios against other ways to
//! keep a log are the command `compare`'s.
#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up has nothing to say")]

use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rederive_benches::data::messages;
use rederive_benches::paths::append::{EVENT, Lane};
use rederive_benches::paths::live::Open;
use rederive_benches::paths::open::Closed;
use rederive_benches::paths::{Settings, rebuild};
use rederive_benches::peers::{Commit, RAW, REDERIVE};
use rederive_fuzz::workload;

fn settings() -> Settings {
    let quick = std::env::var_os("BENCH_QUICK").is_some();
    Settings { quick, folder: std::env::temp_dir() }
}

/// Durable and buffered appends, and the raw file as their limit.
fn append(c: &mut Criterion) {
    let settings = settings();
    let lines = messages(100_000);
    let mut group = c.benchmark_group("append");
    for (name, commit) in [("synced", Commit::Durable), ("buffered", Commit::Buffered)] {
        for batch in [1, 8] {
            for (who, kind) in [("rederive", REDERIVE), ("raw_file", RAW)] {
                let mut lane = Lane::open(&settings, kind).unwrap();
                let mut batches = lines.chunks_exact(batch).cycle();
                let mut sealed = 0;
                group.bench_function(format!("{name}/{batch}x{EVENT}/{who}"), |bench| {
                    bench.iter_custom(|rounds| {
                        let mut took = Duration::ZERO;
                        for _ in 0..rounds {
                            // A log's lines carry their seq: a new log where they have come round.
                            sealed += batch;
                            if sealed > lines.len() - batch {
                                lane = Lane::open(&settings, kind).unwrap();
                                batches = lines.chunks_exact(batch).cycle();
                                sealed = batch;
                            }
                            took += lane.append(batches.next().unwrap(), commit).unwrap();
                        }
                        took
                    });
                });
            }
        }
    }
    group.finish();
}

/// The next request after two new events: flat in the number of nodes.
fn next_request(c: &mut Criterion) {
    let settings = settings();
    let mut group = c.benchmark_group("next_request");
    for nodes in [1_000, 10_000, settings.pick(100_000, 20_000)] {
        group.bench_function(format!("{nodes}_nodes"), |bench| {
            let mut open = Open::with_nodes(&settings, nodes).unwrap();
            bench.iter_custom(|rounds| {
                let mut took = Duration::ZERO;
                for _ in 0..rounds {
                    took += open.next_request().unwrap_or_else(|_| {
                        open = Open::with_nodes(&settings, nodes).unwrap();
                        open.next_request().unwrap()
                    });
                }
                took
            });
        });
    }
    group.finish();
}

/// Opening a closed session and building its next request, and parsing its JSONL beside it.
fn open(c: &mut Criterion) {
    let settings = settings();
    let mut group = c.benchmark_group("open_to_first_request");
    group.sample_size(10);
    let log = Closed::of(&settings, workload::steps(rederive_benches::data::SEED, settings.pick(2_000, 200)));
    let log = log.unwrap();
    group.bench_function("steps/rederive", |bench| {
        bench.iter_batched(|| (), |()| log.open().unwrap(), BatchSize::PerIteration);
    });
    group.bench_function("steps/serde_json", |bench| {
        bench.iter_batched(|| (), |()| log.parse().unwrap(), BatchSize::PerIteration);
    });
    group.finish();
}

/// Rebuilding every request of a log, as `verify` does.
fn full_rebuild(c: &mut Criterion) {
    let settings = settings();
    let log = rebuild::closed(&settings).unwrap();
    let mut group = c.benchmark_group("rebuild");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(log.text().len() as u64));
    group.bench_function(format!("{}_events", settings.pick(90_000, 9_000)), |bench| {
        bench.iter_batched(|| (), |()| rebuild::rebuild(&log).unwrap(), BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(paths, append, next_request, open, full_rebuild);
criterion_main!(paths);

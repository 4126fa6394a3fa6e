//! What the hot paths allocate: as much for a long conversation as for a short one.

use std::alloc::System;

use rederive_benches::paths::Settings;
use rederive_benches::paths::live::Open;
use rederive_engine::Durability;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The least that one of several rounds allocated: other threads allocate as well.
fn least(rounds: usize, mut work: impl FnMut()) -> Stats {
    let mut all: Vec<Stats> = (0..rounds)
        .map(|_| {
            let region = Region::new(GLOBAL);
            work();
            region.change()
        })
        .collect();
    all.sort_by_key(|stats| (stats.allocations, stats.bytes_allocated));
    all.remove(0)
}

// One test, since the counts are of the whole process.
#[test]
fn the_next_request_and_an_append_allocate_what_is_new() {
    let settings = Settings { quick: true, folder: std::env::temp_dir() };
    let mut counts = Vec::new();
    for nodes in [500, 8_000] {
        let mut open = Open::with_nodes(&settings, nodes).unwrap();
        let mut requests = Vec::new();
        for _ in 0..5 {
            open.append_next(2, Durability::Buffered).unwrap();
            requests.push(least(1, || drop(open.request().unwrap())));
        }
        let again = least(5, || drop(open.request().unwrap()));
        let request = requests.into_iter().min_by_key(|stats| stats.allocations).unwrap();
        let append = least(5, || open.append_next(1, Durability::Buffered).unwrap());
        println!(
            "{nodes} nodes: request after 2 events {} allocations, {} bytes; again {}; append {} allocations, {} bytes",
            request.allocations,
            request.bytes_allocated,
            again.allocations,
            append.allocations,
            append.bytes_allocated
        );
        assert!(request.allocations + request.reallocations <= 4, "{request:?}");
        assert!(request.bytes_allocated <= 8 * 1024, "{request:?}");
        assert!(again.allocations <= 4, "nothing is new: {again:?}");
        assert!(append.allocations <= 20, "{append:?}");
        counts.push(request.allocations);
    }
    let (few, many) = (counts.first().unwrap(), counts.last().unwrap());
    assert!(*many <= few + 8, "{many} allocations for many nodes, {few} for few");
}

//! The incremental projector makes, after every event, the bytes that the plain join makes and the
//! digest that BLAKE3 makes of them whole; both as the naive model says.

use rederive_engine::{Replay, TypeRegistry};
use rederive_fuzz::Model;
use rederive_fuzz::workload::{self, Options};
use rederive_projection::{Projector, canonical_bytes, digest_of};

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match number("REDERIVE_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            0..number("REDERIVE_SEEDS").unwrap_or(if std::env::var_os("REDERIVE_LONG").is_some() {
                1000
            } else {
                30
            })
        }
    }
}

/// Compares after every event, with one projector that sees every fold, one that sees a few, and one
/// that begins anew; a fold of the past never changes what comes later.
fn check(lines: impl Iterator<Item = String>, context: &str) -> (u64, u64) {
    let mut replay = Replay::new(TypeRegistry::new());
    let mut model = Model::new().without_requests();
    let (mut each, mut some) = (Projector::new(), Projector::new());
    let mut requests = 0;
    for (nth, line) in lines.skip(1).enumerate() {
        replay.push_line(&line).unwrap();
        model.push_line(&line).unwrap();
        let Some(expected) = model.next_request() else {
            assert!(each.request(replay.fold()).is_err(), "{context}, event {nth}: no header");
            continue;
        };
        requests += 1;
        assert_eq!(canonical_bytes(replay.fold()).unwrap(), expected, "{context}, event {nth}");
        let request = each.request(replay.fold()).unwrap();
        assert_eq!(request.digest(), digest_of(&expected), "{context}, event {nth}");
        assert_eq!(request.bytes(), expected.len() as u64, "{context}, event {nth}");
        assert_eq!(request.message_count(), model.messages().len(), "{context}, event {nth}");
        if nth % 7 == 0 {
            assert_eq!(request.to_vec(), expected, "{context}, event {nth}");
            let late = some.request(replay.fold()).unwrap();
            assert_eq!(late.digest(), request.digest(), "{context}, event {nth}: seen now and then");
            let anew = Projector::new().request(replay.fold()).unwrap();
            assert_eq!(anew.digest(), request.digest(), "{context}, event {nth}: begun anew");
        }
    }
    (requests, model.generation())
}

#[test]
fn after_every_event_of_a_random_log_the_request_is_that_of_the_model() {
    let (mut requests, mut replaces) = (0, 0);
    for seed in seeds() {
        let found = check(workload::random(seed, &Options::swarm(seed)), &format!("seed {seed}"));
        requests += found.0;
        replaces += found.1;
    }
    println!("{requests} requests compared, {replaces} replaces");
    assert!(std::env::var_os("REDERIVE_SEED").is_some() || (0 < replaces && 500 < requests));
}

/// Long enough for marks of the running digest to be left and gone back to.
#[test]
fn a_replace_far_behind_the_last_mark_is_hashed_anew() {
    let (requests, replaces) = check(workload::rebuild_of(5, 2500), "rebuild");
    assert!(0 < replaces && 1000 < requests);
}

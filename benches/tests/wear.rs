//! What reaches the device: a budget for each byte of event, and nothing from an idle store.

use std::sync::Arc;
use std::time::Duration;

use rederive_benches::data::{Log, SEED};
use rederive_benches::disk::CountingDisk;
use rederive_benches::paths::{Settings, wear};
use rederive_engine::{Draft, Durability, NewSession, Store, StoreOptions};
use rederive_fuzz::workload;

#[test]
fn a_byte_of_event_costs_few_bytes_on_the_device() {
    let settings = Settings { quick: true, folder: std::env::temp_dir() };
    let log = Log::of(workload::steps(SEED, 100));
    // Whole pages are counted, so small batches cost more for each byte.
    for (by_step, budget) in [(true, 4.0), (false, 6.5)] {
        let wear = wear::measure(&settings, &log, by_step).unwrap();
        println!("a step a batch: {by_step}, {:.2} bytes a byte: {:?}", wear.ratio(), wear.written);
        assert!(wear.ratio() <= budget, "{:.2} bytes a byte", wear.ratio());
        let of_segments = wear.written.iter().filter(|(kind, _)| kind.starts_with("segments"));
        let segments: u64 = of_segments.map(|(_, written)| written.device_bytes).sum();
        assert!(segments * 2 <= wear.event_bytes, "{segments} bytes of segments");
    }
}

#[test]
fn an_idle_store_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = CountingDisk::new();
    let options = StoreOptions::default();
    let store = Store::create_on(Arc::new(disk.clone()), folder.path(), options).unwrap();
    let mut session = store.create_session(NewSession::new("s")).unwrap();
    for turn in 1..20 {
        let draft = Draft::new("turn/start", format!("{{\"turn\":{turn}}}"));
        session.append(vec![draft], Durability::Synced).unwrap().wait().unwrap();
    }
    session.seal().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let before = disk.total();
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(disk.total(), before);
}

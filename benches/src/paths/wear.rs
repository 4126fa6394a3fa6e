//! Write wear: what reaches the device for each byte of event, by kind of file.
//!
//! Counted on a disk that counts whole pages at each sync ([`crate::disk`]). Two ways of appending:
//! each step as one durable batch, and each event as one.

use std::collections::BTreeMap;
use std::sync::Arc;

use rederive_engine::{Durability, NewSession, Store, StoreOptions};
use rederive_fuzz::workload;

use super::Settings;
use crate::data::{Log, SEED};
use crate::disk::{CountingDisk, Written};
use crate::measure::bytes_f64;
use crate::peers;
use crate::report::{Report, Row, figure};
use crate::{BenchError, during};

/// What was written for a log.
#[derive(Clone, Debug)]
pub struct Wear {
    /// Bytes of the events' lines.
    pub event_bytes: u64,
    /// What was written, by kind of file.
    pub written: BTreeMap<String, Written>,
}

impl Wear {
    /// Bytes that reached the device for each byte of event.
    pub fn ratio(&self) -> f64 {
        let device: u64 = self.written.values().map(|written| written.device_bytes).sum();
        bytes_f64(device) / bytes_f64(self.event_bytes)
    }
}

/// Appends `log` durably, a step or an event a batch, closes it, and counts.
///
/// # Errors
///
/// [`BenchError::Failed`].
pub fn measure(settings: &Settings, log: &Log, by_step: bool) -> Result<Wear, BenchError> {
    let folder = settings.fresh()?;
    let disk = CountingDisk::new();
    let store = Store::create_on(Arc::new(disk.clone()), folder.path(), StoreOptions::default())
        .map_err(during("create a store"))?;
    let mut session = store.create_session(NewSession::new("wear")).map_err(during("create a session"))?;
    let mut append = |batch: &[bytes::Bytes]| -> Result<(), BenchError> {
        let ticket = session.append_lines(batch, Durability::Synced).map_err(during("append"))?;
        ticket.wait().map_err(during("sync"))
    };
    if by_step {
        log.batches().try_for_each(&mut append)?;
    } else {
        log.events().chunks(1).try_for_each(&mut append)?;
    }
    session.close().map_err(during("close a session"))?;
    store.close().map_err(during("close a store"))?;
    Ok(Wear { event_bytes: log.event_bytes(), written: disk.written() })
}

/// Fills `report` with the wear of the workload `steps`.
///
/// # Errors
///
/// A [`BenchError`].
pub fn run(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    let log = Log::of(workload::steps(SEED, settings.pick(2_000, 200)));
    let own = peers::REDERIVE.name;
    for (name, by_step) in [("step_a_batch", true), ("event_a_batch", false)] {
        let wear = measure(settings, &log, by_step)?;
        for (kind, written) in &wear.written {
            let share = bytes_f64(written.device_bytes) / bytes_f64(wear.event_bytes);
            let row = Row::new(format!("wear/steps/{name}/{kind}"), own, "bytes a byte", figure(share));
            report.row(row);
        }
        let row = Row::new(format!("wear/steps/{name}"), own, "bytes a byte", figure(wear.ratio()));
        report.row(row);
    }
    Ok(())
}

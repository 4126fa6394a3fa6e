//! The workloads as lines and batches, ready to be appended.
//!
//! Owns where a log is cut into batches. The logs themselves come from `rederive_fuzz::workload`,
//! so that tests and measurements see the same ones.

use bytes::Bytes;
use rederive_fuzz::workload::{self, Lines};

/// The seed of every measurement.
pub const SEED: u64 = 7;

/// A whole log in memory.
#[derive(Clone, Debug)]
pub struct Log {
    header: Bytes,
    events: Vec<Bytes>,
}

impl Log {
    /// The log that `lines` gives.
    pub fn of(mut lines: Lines) -> Self {
        let header = lines.next().unwrap_or_default().into();
        Self { header, events: lines.map(Bytes::from).collect() }
    }

    /// The lines of the events.
    pub fn events(&self) -> &[Bytes] {
        &self.events
    }

    /// Bytes of the events' lines with their line feeds.
    pub fn event_bytes(&self) -> u64 {
        self.events.iter().map(|line| line.len() as u64 + 1).sum()
    }

    /// The log as a text: the header line, then one event a line.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.event_bytes() as usize + self.header.len() + 1);
        for line in std::iter::once(&self.header).chain(&self.events) {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        text
    }

    /// The events step by step: what belongs to one step, with what came before it, is one batch.
    pub fn batches(&self) -> impl Iterator<Item = &[Bytes]> {
        self.events.split_inclusive(|line| line.starts_with(b"{\"type\":\"step/end\""))
    }
}

/// `count` messages of about 1.2 KB as events of one session.
pub fn messages(count: u64) -> Vec<Bytes> {
    let log = workload::fanout(SEED, 1, count).next().map(Log::of);
    log.map(|log| log.events).unwrap_or_default()
}

/// Logs of as many sessions, each with `count` messages of about 1.2 KB.
pub fn fanout(sessions: u64, count: u64) -> impl Iterator<Item = Vec<Bytes>> {
    workload::fanout(SEED, sessions, count).map(|lines| Log::of(lines).events)
}

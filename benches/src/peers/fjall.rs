//! fjall: one key an event, one batch a batch.

use std::path::Path;

use bytes::Bytes;
use fjall::{Config, Keyspace, PartitionCreateOptions, PartitionHandle, PersistMode};

use super::{Commit, Held, Peer};
use crate::{BenchError, during};

struct Fjall {
    keyspace: Keyspace,
    events: PartitionHandle,
    next: u64,
}

fn open_log(folder: &Path) -> fjall::Result<Fjall> {
    let keyspace = Config::new(folder).open()?;
    let events = keyspace.open_partition("events", PartitionCreateOptions::default())?;
    Ok(Fjall { keyspace, events, next: 0 })
}

pub(super) fn open(folder: &Path) -> Result<Box<dyn Peer>, BenchError> {
    Ok(Box::new(open_log(folder).map_err(during("open fjall"))?))
}

/// Keys sort as numbers do when their highest byte comes first.
#[expect(clippy::big_endian_bytes, reason = "keys of fjall are compared byte by byte")]
fn key(seq: u64) -> [u8; 8] {
    seq.to_be_bytes()
}

impl Peer for Fjall {
    fn append(&mut self, batch: &[Bytes], commit: Commit) -> Result<(), BenchError> {
        let mode = match commit {
            Commit::Durable => PersistMode::SyncData,
            Commit::Buffered => PersistMode::Buffer,
        };
        let mut writes = self.keyspace.batch().durability(Some(mode));
        for (seq, line) in (self.next..).zip(batch) {
            writes.insert(&self.events, key(seq), &line[..]);
        }
        writes.commit().map_err(during("insert into fjall"))?;
        self.next += batch.len() as u64;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        // What is in memory becomes a compressed table; the journal is what is left.
        self.events.rotate_memtable_and_wait().map_err(during("flush fjall"))?;
        self.keyspace.persist(PersistMode::SyncAll).map_err(during("sync fjall"))
    }
}

pub(super) fn read(folder: &Path) -> Result<Held, BenchError> {
    let read = || -> fjall::Result<Held> {
        let mut held = Held::nothing();
        for row in open_log(folder)?.events.iter() {
            held.take(&row?.1);
        }
        Ok(held)
    };
    read().map_err(during("read fjall"))
}

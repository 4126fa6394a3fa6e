//! redb alone: one row an event, one transaction a batch.

use std::path::Path;

use bytes::Bytes;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Commit, Held, Peer};
use crate::{BenchError, during};

const EVENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("events");

struct Redb {
    database: Database,
    next: u64,
}

pub(super) fn open(folder: &Path) -> Result<Box<dyn Peer>, BenchError> {
    let database = Database::create(folder.join("log.redb")).map_err(during("create a redb file"))?;
    Ok(Box::new(Redb { database, next: 0 }))
}

impl Redb {
    fn insert(&self, batch: &[Bytes], durability: Durability) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        {
            let mut table = transaction.open_table(EVENTS)?;
            for (seq, line) in (self.next..).zip(batch) {
                table.insert(seq, &line[..])?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

impl Peer for Redb {
    fn append(&mut self, batch: &[Bytes], commit: Commit) -> Result<(), BenchError> {
        let durability = match commit {
            Commit::Durable => Durability::Immediate,
            Commit::Buffered => Durability::None,
        };
        self.insert(batch, durability).map_err(during("insert into redb"))?;
        self.next += batch.len() as u64;
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<(), BenchError> {
        self.insert(&[], Durability::Immediate).map_err(during("close redb"))?;
        self.database.compact().map_err(during("compact redb"))?;
        Ok(())
    }
}

pub(super) fn read(folder: &Path) -> Result<Held, BenchError> {
    let read = || -> Result<Held, redb::Error> {
        let database = Database::open(folder.join("log.redb"))?;
        let table = database.begin_read()?.open_table(EVENTS)?;
        let mut held = Held::nothing();
        for row in table.iter()? {
            held.take(row?.1.value());
        }
        Ok(held)
    };
    read().map_err(during("read redb"))
}

//! SQLite in WAL mode, one row an event, one transaction a batch.

use std::path::Path;

use bytes::Bytes;
use rusqlite::Connection;

use super::{Commit, Held, Peer};
use crate::{BenchError, during};

struct Sqlite {
    connection: Connection,
    next: i64,
}

fn open_with(folder: &Path, synchronous: &str) -> Result<Box<dyn Peer>, BenchError> {
    let connection = Connection::open(folder.join("log.db")).map_err(during("open SQLite"))?;
    let set_up = format!(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous};
         CREATE TABLE events (seq INTEGER PRIMARY KEY, line BLOB NOT NULL);"
    );
    connection.execute_batch(&set_up).map_err(during("set up SQLite"))?;
    Ok(Box::new(Sqlite { connection, next: 0 }))
}

pub(super) fn open_full(folder: &Path) -> Result<Box<dyn Peer>, BenchError> {
    open_with(folder, "FULL")
}

pub(super) fn open_normal(folder: &Path) -> Result<Box<dyn Peer>, BenchError> {
    open_with(folder, "NORMAL")
}

impl Peer for Sqlite {
    fn append(&mut self, batch: &[Bytes], _commit: Commit) -> Result<(), BenchError> {
        let mut insert = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            {
                let mut statement =
                    transaction.prepare_cached("INSERT INTO events (seq, line) VALUES (?1, ?2)")?;
                for (seq, line) in (self.next..).zip(batch) {
                    statement.execute((seq, &line[..]))?;
                }
            }
            transaction.commit()
        };
        insert().map_err(during("insert into SQLite"))?;
        self.next += i64::try_from(batch.len()).unwrap_or(i64::MAX);
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        // The last connection copies the log into the database.
        self.connection.close().map_err(|(_, error)| during("close SQLite")(error))
    }
}

pub(super) fn read(folder: &Path) -> Result<Held, BenchError> {
    let read = || -> rusqlite::Result<Held> {
        let connection = Connection::open(folder.join("log.db"))?;
        let mut statement = connection.prepare("SELECT line FROM events ORDER BY seq")?;
        let mut rows = statement.query(())?;
        let mut held = Held::nothing();
        while let Some(row) = rows.next()? {
            held.take(row.get_ref(0)?.as_blob()?);
        }
        Ok(held)
    };
    read().map_err(during("read SQLite"))
}

//! A session of a Rederive store.

use std::path::Path;

use bytes::Bytes;
use rederive_engine::{Durability, NewSession, Seq, Session, SessionId, Store, StoreOptions};

use super::{Commit, Held, Peer};
use crate::{BenchError, during};

const SESSION: &str = "bench";

/// A store with one session that is open for writing.
#[derive(Debug)]
pub struct Rederive {
    store: Store,
    session: Session,
}

impl Rederive {
    /// Makes a store in `folder` and a session in it.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn create(folder: &Path) -> Result<Self, BenchError> {
        let store = Store::create_with(folder, StoreOptions::default()).map_err(during("create a store"))?;
        let session = store.create_session(NewSession::new(SESSION)).map_err(during("create a session"))?;
        Ok(Self { store, session })
    }

    /// The session.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }
}

pub(super) fn open(folder: &Path) -> Result<Box<dyn Peer>, BenchError> {
    Ok(Box::new(Rederive::create(folder)?))
}

impl Peer for Rederive {
    fn append(&mut self, batch: &[Bytes], commit: Commit) -> Result<(), BenchError> {
        let durability = match commit {
            Commit::Durable => Durability::Synced,
            Commit::Buffered => Durability::Buffered,
        };
        let ticket = self.session.append_lines(batch, durability).map_err(during("append"))?;
        ticket.wait().map_err(during("sync"))
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        self.session.close().map_err(during("close a session"))?;
        self.store.close().map_err(during("close a store"))
    }
}

pub(super) fn read(folder: &Path) -> Result<Held, BenchError> {
    let store = Store::open_read_only(folder).map_err(during("open a store"))?;
    let id = SessionId::new(SESSION).ok_or_else(|| BenchError::Unfit("no session name".into()))?;
    let reader = store.read_session(&id).map_err(during("open a session"))?;
    let mut held = Held::nothing();
    let mut line = Vec::new();
    for event in reader.events(Seq::FIRST..reader.fold().next_seq()).map_err(during("read events"))? {
        line.clear();
        event.map_err(during("read events"))?.write_line(&mut line);
        held.take(&line);
    }
    Ok(held)
}

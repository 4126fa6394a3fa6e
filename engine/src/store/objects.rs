//! Which objects the sessions reference, sealed or not.
//!
//! Owns the answer that a sweep of objects stands on. Knows digests; knows no objects.

use std::collections::BTreeSet;

use super::error::StoreError;
use super::{Store, catalog};
use crate::index::View;
use crate::segment::references;

impl Store {
    /// The BLAKE3 digests of every object that some session references, in what reaches the model or
    /// waits in an inbox: sealed, or still in a journal of this process or another. Digests that only
    /// look like references are among them.
    ///
    /// # Cost
    ///
    /// Reads the index's table of references, and every session that has a writer.
    ///
    /// # Errors
    ///
    /// A [`StoreError`]; nothing may be swept then.
    pub fn referenced_objects(&self) -> Result<BTreeSet<[u8; 32]>, StoreError> {
        let core = &self.inner.core;
        // Tails first: what is sealed meanwhile is in the index by the time that is read.
        let mut found = BTreeSet::new();
        for id in catalog::written_sessions(core)? {
            match self.read_session(&id) {
                Ok(reader) => {
                    for event in reader.tail() {
                        references::of_event(event, |digest| {
                            found.insert(digest);
                        });
                    }
                }
                // Deleted meanwhile.
                Err(StoreError::NoSession { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        found.extend(core.index.read(|view| view.referenced())?);
        Ok(found)
    }
}

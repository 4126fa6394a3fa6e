//! Forking a session: a child that shares its parent's sealed events up to a cut.
//!
//! Owns the rule where a cut may be. Costs the same whatever the parent's length.

use super::error::{ForkError, StoreError};
use super::session::Session;
use super::{NewSession, Store, catalog};
use crate::event::Draft;
use crate::ids::{Seq, SessionId};
use crate::journal::Durability;

impl Store {
    /// Forks the session `parent` behind its event `at`, which must not be inside an open turn, and
    /// opens the child for writing. The child's log begins with the parent's events up to `at` and
    /// goes on with `session/end-seed {"inherited":true}`.
    ///
    /// # Cost
    ///
    /// One commit of the index and what the model saw at `at`; a parent that this process writes is
    /// sealed first. No event is copied.
    ///
    /// # Errors
    ///
    /// - [`ForkError::OpenTurn`], [`ForkError::NoEvent`]: not a place to fork at.
    /// - [`ForkError::Store`]: among others [`StoreError::SessionBusy`] where another process writes
    ///   the parent and has not sealed `at` yet.
    pub fn fork_session(&self, parent: &SessionId, at: Seq, child: NewSession) -> Result<Session, ForkError> {
        let core = &self.inner.core;
        core.check_writable()?;
        let cut = at.next();
        let (key, row) = catalog::find(core, parent)?;
        if let Some(live) = core.live(key) {
            self.inner.sealer.seal_now(&live, super::seal::Then::KeepOpen)?;
        } else if row.sealed_to < cut
            && let Some(owner) = row.owner.filter(|owner| !core.owns_slot(owner.slot))
            && let Some(pid) = super::recover::take_over_slot(core, owner.slot)?
        {
            return Err(StoreError::SessionBusy { session: parent.clone(), owner: pid }.into());
        }
        let (key, row) = catalog::find(core, parent)?;
        if row.sealed_to < cut {
            return Err(ForkError::NoEvent { session: parent.clone(), at, events: row.sealed_to.value() });
        }
        let fold = core.load(key, cut)?;
        if let Some(turn) = fold.turn().turn() {
            return Err(ForkError::OpenTurn { session: parent.clone(), at, turn });
        }
        let header_line = child.header_line((core.options.clock)(), Some(parent.as_str()), true)?;
        let mut types = core.options.types.clone();
        types.merge(&row.registry());
        let child_key = catalog::fork(core, &header_line, key, cut, &fold, &types)?;
        let time_ms = (core.options.clock)().max(fold.last_time_ms());
        let mut session = self.adopt(child_key, header_line, types, fold);
        let marker = Draft::new("session/end-seed", "{\"inherited\":true}").at(time_ms);
        match session.append_reserved(vec![marker], Durability::Buffered) {
            Ok(_ticket) => Ok(session),
            Err(super::AppendError::Journal(error)) => Err(StoreError::from(error).into()),
            Err(super::AppendError::Refused(refusal)) => {
                Err(StoreError::Inconsistent { session: session.id().clone(), refusal }.into())
            }
        }
    }
}

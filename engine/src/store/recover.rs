//! Taking over from the dead: journals whose owner ended without sealing them.
//!
//! Owns what happens to recovered frames. Their lines pass the same door as every event, they are
//! sealed, and only then is their journal's space free. Also reads what a live or dead writer has in
//! its journal, for readers, without changing anything.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rederive_disk::Disk;

use super::error::StoreError;
use super::reader::{Parts, Reader};
use super::session::LiveSession;
use super::{Shared, catalog, payload, salts};
use crate::admission::{Door, Origin};
use crate::event::Event;
use crate::event::line::Form;
use crate::fold::Fold;
use crate::ids::{Seq, SessionId, SessionKey};
use crate::index::Owner;
use crate::journal::{
    JournalError, JournalFollower, Recovered, RecoveredFrame, SlotState, lost_journal, recover_slot, slots,
    state_of,
};
use crate::types::TypeRegistry;

/// How often a reader starts over when a session was sealed or handed over under its eyes.
pub(super) const READ_ATTEMPTS: u32 = 8;

/// Whether some process ended without closing its journal, so that no file is to be trusted.
pub(crate) fn is_unclean(disk: &Arc<dyn Disk>, journals: &Path) -> Result<bool, StoreError> {
    let unclean = |state: &SlotState| matches!(state, SlotState::Dirty { .. } | SlotState::Unreadable { .. });
    Ok(slots(disk, journals)?.iter().any(|status| unclean(&status.state)))
}

/// Seals what the slots of dead processes hold, and finishes what they began.
///
/// What is damaged stays as it is: it must not keep the other sessions from being used, and who
/// asks for a session in it gets the error then. Gives the slots that are not to be used again.
pub(crate) fn at_open(core: &Shared) -> Result<Vec<u32>, StoreError> {
    let mut taken = Vec::new();
    let found = slots(&core.disk, &core.journals)?;
    if found.is_empty() {
        // The journals of a store that is not new are gone: what was in them is lost, and said.
        taken = catalog::owning_slots(core)?;
    }
    for status in found {
        let outcome = match status.state {
            SlotState::Dirty { .. } | SlotState::Blank => take_over_slot(core, status.slot).map(|_| ()),
            SlotState::Unreadable(error) => Err(error.into()),
            _ => Ok(()),
        };
        match outcome {
            Err(error) if error.is_damage() => {
                tracing::error!(%error, slot = status.slot, "a journal cannot be recovered");
                taken.push(status.slot);
            }
            outcome => outcome?,
        }
    }
    match catalog::finish_deletes(core) {
        Err(error) if error.is_damage() => {
            tracing::error!(%error, "a deletion cannot be finished");
        }
        outcome => outcome?,
    }
    Ok(taken)
}

/// Recovers the journal of `slot`, whose owner is dead; gives the owner's process id where it lives.
///
/// # Errors
///
/// Of several sessions that cannot be recovered, the first one's; the slot stays as it is then, and
/// the sessions that could be recovered are let go of.
pub(crate) fn take_over_slot(core: &Shared, slot: u32) -> Result<Option<u32>, StoreError> {
    let mut recovery = match recover_slot(&core.disk, &core.journals, slot) {
        Ok(recovery) => recovery,
        Err(JournalError::Held { pid, .. }) => return Ok(Some(pid.unwrap_or(0))),
        Err(error) => return Err(error.into()),
    };
    if recovery.is_blank() && catalog::owning_slots(core)?.contains(&slot) {
        return Err(lost_journal(&core.journals, slot).into());
    }
    report(recovery.recovered());
    seal_frames(core, slot, &recovery.recovered().frames)?;
    recovery.reset(&mut salts())?;
    Ok(None)
}

fn report(recovered: &Recovered) {
    for tail in &recovered.dropped {
        tracing::warn!(
            path = %tail.path.display(),
            offset = tail.offset,
            bytes = tail.bytes,
            "dropped an incomplete end of a journal; it was never acknowledged as synced"
        );
    }
}

/// Folds frames onto their sessions and seals these; sessions without frames that the slot owned are
/// let go of.
fn seal_frames(core: &Shared, slot: u32, frames: &[RecoveredFrame]) -> Result<(), StoreError> {
    let mut sessions: BTreeMap<u64, Vec<&RecoveredFrame>> = BTreeMap::new();
    for frame in frames {
        sessions.entry(frame.session_key).or_default().push(frame);
    }
    let mut stuck = Vec::new();
    let mut first_error = None;
    for (key, frames) in sessions {
        match seal_session(core, SessionKey(key), frames) {
            Err(error) if error.is_damage() => {
                tracing::error!(%error, slot, key, "a session cannot be recovered");
                stuck.push(SessionKey(key));
                first_error.get_or_insert(error);
            }
            outcome => outcome?,
        }
    }
    catalog::let_go_of_slot(core, slot, &stuck)?;
    first_error.map_or(Ok(()), Err)
}

fn seal_session(core: &Shared, key: SessionKey, mut frames: Vec<&RecoveredFrame>) -> Result<(), StoreError> {
    // A session that was deleted has nothing to recover.
    let Some(row) = catalog::row(core, key)? else { return Ok(()) };
    frames.sort_by_key(|frame| frame.first_seq);
    let header_line = row.header_line()?;
    let mut types = core.options.types.clone();
    types.merge(&row.registry());
    let fold = core.load(key, row.sealed_to)?;
    let session = Arc::new(LiveSession::new(key, header_line, types, fold));
    for frame in frames {
        push_frame(&session, frame)?;
    }
    super::seal::seal_recovered(core, &session)
}

/// Lets a frame in at the end of `session`, as far as it does not have its events yet.
pub(super) fn push_frame(session: &LiveSession, frame: &RecoveredFrame) -> Result<(), StoreError> {
    let lines = payload::decode(&frame.payload).ok_or_else(|| JournalError::Damaged {
        path: frame.path.clone(),
        offset: frame.offset,
        next_valid: None,
    })?;
    push_lines(session, frame.first_seq, &lines)
}

/// Lets a frame's lines in at the end of `session`, as far as it does not have them yet.
fn push_lines(session: &LiveSession, first_seq: u64, lines: &[&[u8]]) -> Result<(), StoreError> {
    let mut live = session.lock();
    let live = &mut *live;
    let events = admit_lines(&mut live.fold, &session.types, first_seq, lines, session.id())?;
    live.tail_bytes += lines.iter().map(|line| line.len() as u64).sum::<u64>();
    live.tail.extend(events);
    Ok(())
}

pub(super) fn admit_lines(
    fold: &mut Fold,
    types: &TypeRegistry,
    first_seq: u64,
    lines: &[&[u8]],
    id: &SessionId,
) -> Result<Vec<Event>, StoreError> {
    let first = Seq::new(first_seq);
    if first > fold.next_seq() {
        return Err(StoreError::Gap { from: fold.next_seq(), to: first, path: "journal".into() });
    }
    let door = Door { types, origin: Origin::Store, form: Form::Log, now_ms: 0, event_bytes_max: u64::MAX };
    let have = usize::try_from(fold.next_seq().since(first)).unwrap_or(usize::MAX);
    let mut events = Vec::new();
    for line in lines.iter().skip(have) {
        let mut undo = fold.begin();
        let event = door
            .enter_line(&Bytes::copy_from_slice(line), fold, &mut undo)
            .map_err(|refusal| StoreError::Inconsistent { session: id.clone(), refusal })?;
        events.push(event);
    }
    Ok(events)
}

/// A snapshot of a session that this process does not write: sealed events, and behind them what
/// its owner has in its journal.
pub(crate) fn read_with_journal(core: &Arc<Shared>, id: &SessionId) -> Result<Reader, StoreError> {
    let mut last = None;
    for _ in 0..READ_ATTEMPTS {
        let (key, row) = catalog::find(core, id)?;
        let header_line = row.header_line()?;
        let mut types = core.options.types.clone();
        types.merge(&row.registry());
        let mut fold = match core.load(key, row.sealed_to) {
            Ok(fold) => fold,
            // Sealed again, merged or deleted meanwhile: look again.
            Err(error @ (StoreError::Segment(_) | StoreError::Gap { .. })) => {
                last = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut tail = Vec::new();
        let mut owner = None;
        if let Some(held) = row.owner {
            // A slot that this process holds, or another than the recorded one, is no sign of life:
            // the session would be live here, and slots are taken again by those who come later.
            if !core.owns_slot(held.slot) {
                match state_of(&core.disk, &core.journals, held.slot)? {
                    SlotState::Held { pid } if pid.is_none_or(|pid| pid == held.pid) => {
                        owner = Some(held.pid);
                    }
                    // What follows would stop at the damage, as if the log ended there.
                    SlotState::Unreadable(error) => return Err(error.into()),
                    SlotState::Blank if still_owned(core, key, held)? => {
                        return Err(lost_journal(&core.journals, held.slot).into());
                    }
                    _ => {}
                }
            }
            let mut follower = JournalFollower::open(
                Arc::clone(&core.disk),
                &core.journals,
                held.slot,
                key.value(),
                row.sealed_to.value(),
            );
            let mut gap = false;
            for frame in follower.poll()? {
                if frame.first_seq > fold.next_seq().value() {
                    gap = true;
                    break;
                }
                let Some(lines) = payload::decode(&frame.payload) else { break };
                tail.extend(admit_lines(&mut fold, &types, frame.first_seq, &lines, id)?);
            }
            // What left the journal while it was read is sealed now.
            if gap || catalog::row(core, key)?.is_some_and(|now| now.sealed_to != row.sealed_to) {
                continue;
            }
        }
        let parts = Parts { key, header_line, types, fold, tail, sealed_to: row.sealed_to, owner };
        return Ok(Reader::new(Arc::clone(core), parts));
    }
    Err(last.unwrap_or(StoreError::Restless { session: id.clone() }))
}

/// Whether no other process has the store open for writing.
pub(crate) fn is_alone(core: &Shared) -> Result<bool, StoreError> {
    let held = |status: &crate::journal::SlotStatus| {
        !core.owns_slot(status.slot) && matches!(status.state, SlotState::Held { .. })
    };
    Ok(!slots(&core.disk, &core.journals)?.iter().any(held))
}

/// Overwrites what the journals of dead processes still hold; those of live ones are theirs. Says
/// whether there was none of these.
pub(crate) fn scrub_free_slots(core: &Shared) -> Result<bool, StoreError> {
    let mut all = true;
    let mut first_error = None;
    for status in slots(&core.disk, &core.journals)? {
        if core.owns_slot(status.slot) {
            continue;
        }
        if matches!(status.state, SlotState::Held { .. }) {
            all = false;
            continue;
        }
        match take_over_slot(core, status.slot) {
            Ok(None) => {}
            Ok(Some(_)) => {
                all = false;
                continue;
            }
            // The others are scrubbed all the same.
            Err(error) if error.is_damage() => {
                first_error.get_or_insert(error);
                continue;
            }
            Err(error) => return Err(error),
        }
        match recover_slot(&core.disk, &core.journals, status.slot) {
            Ok(mut recovery) => recovery.scrub(&mut salts())?,
            Err(JournalError::Held { .. }) => all = false,
            Err(error) => return Err(error.into()),
        }
    }
    first_error.map_or(Ok(all), Err)
}

fn still_owned(core: &Shared, key: SessionKey, owner: Owner) -> Result<bool, StoreError> {
    Ok(catalog::row(core, key)?.is_some_and(|row| row.owner == Some(owner)))
}

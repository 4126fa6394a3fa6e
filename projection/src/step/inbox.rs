//! The inbox: messages that wait to be sent, durable from the moment they are in.
//!
//! Owns who may touch which of them: what a step has claimed stays where it is until the step
//! enters, and cannot be edited or removed meanwhile. Every change is an `agent/inbox/spliced`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rederive_engine::{Draft, Durability, Fold, Session, Target, message_id};

use super::error::{InboxError, StepError};
use super::message::{self, Object};

/// What a conversation and its inboxes share.
#[derive(Debug)]
pub(crate) struct Shared {
    session: Option<Session>,
    claimed: Counts,
}

/// How many messages at the front of each list a step has claimed.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    next_step: usize,
    next_turn: usize,
}

impl Counts {
    const fn of(self, target: Target) -> usize {
        match target {
            Target::NextStep => self.next_step,
            Target::NextTurn => self.next_turn,
        }
    }
}

impl Shared {
    pub(super) fn new(session: Session) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { session: Some(session), claimed: Counts::default() }))
    }

    pub(super) fn session(&mut self) -> Result<&mut Session, StepError> {
        self.session.as_mut().ok_or(StepError::Closed)
    }

    pub(super) fn fold(&mut self) -> Result<Fold, StepError> {
        Ok(self.session()?.fold())
    }

    /// Says that what was claimed has left the inbox, with the batch that was just written.
    pub(super) fn release(&mut self) {
        self.claimed = Counts::default();
    }

    pub(super) fn take_session(&mut self) -> Option<Session> {
        self.session.take()
    }
}

pub(super) fn lock(shared: &Arc<Mutex<Shared>>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle on a conversation's inbox. Cloning gives another one; any thread may hold it, also
/// while a step is on its way: what is inserted after the step's claim joins a later request.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # use rederive_engine::{NewSession, Store, Target};
/// use rederive_projection::step::{Conversation, message};
///
/// # let store = Store::create(folder.path().join("store"))?;
/// let conversation = Conversation::new(store.create_session(NewSession::new("chat-1"))?);
/// let inbox = conversation.inbox();
/// inbox.insert(Target::NextTurn, &message::user("m1", "Hello"))?;
/// inbox.edit("m1", &message::user("m1", "Hello there"))?;
/// assert_eq!(inbox.pending(Target::NextTurn)?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Inbox {
    shared: Arc<Mutex<Shared>>,
}

impl Inbox {
    pub(super) fn new(shared: &Arc<Mutex<Shared>>) -> Self {
        Self { shared: Arc::clone(shared) }
    }

    /// The messages that wait for `target` and that no step has claimed, in order.
    ///
    /// # Errors
    ///
    /// [`StepError::Closed`].
    pub fn pending(&self, target: Target) -> Result<Vec<String>, StepError> {
        let mut shared = lock(&self.shared);
        let claimed = shared.claimed.of(target);
        Ok(shared.fold()?.step_state().pending(target).iter().skip(claimed).cloned().collect())
    }

    /// Puts `message` behind the others that wait for `target`. Durable on return.
    ///
    /// # Errors
    ///
    /// - [`StepError::Message`]: it is no user message with an id and something to say.
    /// - [`StepError::Inbox`]: a message of this id waits already.
    /// - [`StepError::Append`]: it could not be written; nothing changed.
    pub fn insert(&self, target: Target, message: &str) -> Result<(), StepError> {
        self.insert_at(target, usize::MAX, message)
    }

    /// As [`Inbox::insert`], at `index` among [`Inbox::pending`]; an index behind the end means the
    /// end.
    ///
    /// # Errors
    ///
    /// As [`Inbox::insert`].
    pub fn insert_at(&self, target: Target, index: usize, message: &str) -> Result<(), StepError> {
        message::check_user(message)?;
        let Some(id) = message_id(message) else { return Err(message::BadMessage::NoId.into()) };
        let mut shared = lock(&self.shared);
        let fold = shared.fold()?;
        if find(&fold, &id).is_some() {
            return Err(InboxError::Present { id: id.into_owned() }.into());
        }
        let start =
            shared.claimed.of(target).saturating_add(index).min(fold.step_state().pending(target).len());
        write(shared, splice(target, start, 0, &[message]))
    }

    /// Puts `message` in the place of the one named `id`. Durable on return.
    ///
    /// # Errors
    ///
    /// As [`Inbox::insert`]; [`StepError::Inbox`] where no such message waits, or a step has claimed
    /// it.
    pub fn edit(&self, id: &str, message: &str) -> Result<(), StepError> {
        message::check_user(message)?;
        let Some(new_id) = message_id(message) else { return Err(message::BadMessage::NoId.into()) };
        let mut shared = lock(&self.shared);
        let (target, index) = shared.unclaimed(id)?;
        if new_id != id && find(&shared.fold()?, &new_id).is_some() {
            return Err(InboxError::Present { id: new_id.into_owned() }.into());
        }
        write(shared, splice(target, index, 1, &[message]))
    }

    /// Takes the message named `id` out. Durable on return.
    ///
    /// # Errors
    ///
    /// [`StepError::Inbox`] where no such message waits, or a step has claimed it;
    /// [`StepError::Append`].
    pub fn remove(&self, id: &str) -> Result<(), StepError> {
        let mut shared = lock(&self.shared);
        let (target, index) = shared.unclaimed(id)?;
        write(shared, splice(target, index, 1, &[]))
    }
}

impl Shared {
    fn unclaimed(&mut self, id: &str) -> Result<(Target, usize), StepError> {
        let fold = self.fold()?;
        match find(&fold, id) {
            None => Err(InboxError::Absent { id: id.to_owned() }.into()),
            Some((target, index)) if index < self.claimed.of(target) => {
                Err(InboxError::Claimed { id: id.to_owned() }.into())
            }
            Some(found) => Ok(found),
        }
    }
}

fn find(fold: &Fold, id: &str) -> Option<(Target, usize)> {
    [Target::NextStep, Target::NextTurn].into_iter().find_map(|target| {
        let waiting = fold.step_state().pending(target);
        let index = waiting.iter().position(|message| message_id(message).as_deref() == Some(id))?;
        Some((target, index))
    })
}

fn splice(target: Target, start: usize, removed: usize, inserted: &[&str]) -> Draft {
    let data = Object::new()
        .text("target", target.name())
        .raw("start", start)
        .maybe("removedCount", (removed > 0).then_some(removed))
        .raw("inserted", format_args!("[{}]", inserted.join(",")))
        .finish();
    Draft::new("agent/inbox/spliced", data)
}

/// Appends under the lock and waits for the sync outside of it.
fn write(mut shared: MutexGuard<'_, Shared>, draft: Draft) -> Result<(), StepError> {
    let ticket = shared.session()?.append(vec![draft], Durability::Synced)?;
    drop(shared);
    Ok(ticket.wait()?)
}

/// Messages that one step has claimed: they go into its request, or are free again when this is
/// dropped.
#[derive(Debug)]
pub(super) struct Claimed {
    shared: Arc<Mutex<Shared>>,
    messages: Vec<String>,
    counts: Counts,
}

impl Claimed {
    /// Claims everything that waits for the next step and, with `prompt`, one queued prompt.
    pub(super) fn take(shared: &Arc<Mutex<Shared>>, prompt: bool) -> Result<Self, StepError> {
        let mut guard = lock(shared);
        let fold = guard.fold()?;
        let state = fold.step_state();
        let (input, prompts) = (state.pending(Target::NextStep), state.pending(Target::NextTurn));
        let prompts = prompts.get(..usize::from(prompt).min(prompts.len())).unwrap_or_default();
        let counts = Counts { next_step: input.len(), next_turn: prompts.len() };
        guard.claimed = counts;
        drop(guard);
        let messages = input.iter().chain(prompts).cloned().collect();
        Ok(Self { shared: Arc::clone(shared), messages, counts })
    }

    pub(super) fn messages(&self) -> &[String] {
        &self.messages
    }

    /// The events that take the claimed messages out of the inbox.
    pub(super) fn removal(&self) -> Vec<Draft> {
        [Target::NextStep, Target::NextTurn]
            .into_iter()
            .map(|target| (target, self.counts.of(target)))
            .filter(|(_, count)| *count > 0)
            .map(|(target, count)| splice(target, 0, count, &[]))
            .collect()
    }
}

impl Claimed {
    /// Takes the claimed messages out of the inbox, never to be sent. Durable on return.
    pub(super) fn discard(self) -> Result<(), StepError> {
        let mut shared = lock(&self.shared);
        let ticket = shared.session()?.append(self.removal(), Durability::Synced)?;
        shared.release();
        drop(shared);
        Ok(ticket.wait()?)
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        lock(&self.shared).release();
    }
}

//! The step protocol: the one way for a host to send a request.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! use rederive_engine::{NewSession, Store, Target};
//! use rederive_projection::step::{Answer, CallConfig, Conversation, Plan, message};
//!
//! let store = Store::create(folder.path().join("store"))?;
//! let mut conversation = Conversation::new(store.create_session(NewSession::new("chat-1"))?);
//! conversation.inbox().insert(Target::NextTurn, &message::user("m1", "Hello"))?;
//!
//! let plan = Plan::new("Be brief.", CallConfig::new("p", "m"));
//! let attempt = conversation.begin_turn()?.claim()?.plan(plan)?.enter()?;
//! assert_eq!(attempt.request().message_count(), 2); // durable, and frozen: send it now
//!
//! let said = message::assistant("a1", "p", "m", &[message::text_block("Hi.")]);
//! attempt.settle(Answer::new(said))?.end()?.end("completed")?;
//! conversation.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The states are types: [`Turn`] → [`Claim`] → [`Planned`] → [`Attempt`] → [`Step`] or [`Failed`] →
//! [`Turn`]. Each borrows the conversation, so nothing else can be appended between them, and what
//! the order forbids does not compile:
//!
//! - a request without a plan, or without what waits in the inbox:
//! ```compile_fail
//! # fn f(turn: rederive_projection::step::Turn<'_>) {
//! turn.enter();
//! # }
//! ```
//! - a message, a tool or a setting added to a request that was built:
//! ```compile_fail
//! # fn f(attempt: rederive_projection::step::Attempt<'_>, plan: rederive_projection::step::Plan) {
//! attempt.request().push("{}");
//! # }
//! ```
//! ```compile_fail
//! # fn f(attempt: rederive_projection::step::Attempt<'_>, plan: rederive_projection::step::Plan) {
//! attempt.plan(plan);
//! # }
//! ```
//! - a plan that changes between its check and the request:
//! ```compile_fail
//! # fn f(claim: rederive_projection::step::Claim<'_>, plan: rederive_projection::step::Plan) {
//! let planned = claim.plan(plan).unwrap();
//! let plan = plan.tools([r#"{"name":"late"}"#]);
//! planned.enter();
//! # }
//! ```
//! - an attempt that is settled twice, or goes on after it was settled:
//! ```compile_fail
//! # use rederive_projection::step::{Answer, Attempt};
//! # fn f(attempt: Attempt<'_>, answer: Answer) {
//! attempt.settle(answer.clone());
//! attempt.settle(answer);
//! # }
//! ```
//! - a second turn, or an upkeep, under a request that is on its way:
//! ```compile_fail
//! # use rederive_projection::step::{Conversation, Plan};
//! # fn f(conversation: &mut Conversation, plan: Plan) {
//! let attempt = conversation.begin_turn().unwrap().claim().unwrap().plan(plan).unwrap().enter().unwrap();
//! conversation.upkeep();
//! attempt.request();
//! # }
//! ```
//! - a tool's result without the permission to start it, or two for one permission:
//! ```compile_fail
//! # use rederive_projection::step::{Step, ToolResult};
//! # fn f(mut step: Step<'_>, result: ToolResult) {
//! step.finish_tool("c1", result);
//! # }
//! ```
//! ```compile_fail
//! # use rederive_projection::step::{Step, ToolPermit, ToolResult};
//! # fn f(mut step: Step<'_>, permit: ToolPermit, result: ToolResult) {
//! step.finish_tool(permit, result.clone());
//! step.finish_tool(permit, result);
//! # }
//! ```
//! - a one-shot call passed off as the conversation's request:
//! ```compile_fail
//! # use rederive_projection::{OneShot, Request};
//! # fn f(one_shot: &OneShot) {
//! let request: &Request = one_shot;
//! # }
//! ```
//!
//! Owns the order of events in a step. Knows no provider's wire beyond the body that a plan asks for.

mod dispatch;
mod error;
mod inbox; // reading order, not the alphabet
pub mod message;
mod plan;
mod prompt;
mod states;
mod tools;

use std::fmt;
use std::sync::{Arc, Mutex};

use rederive_engine::{Draft, Durability, Fold, Reader, Session, SessionId, StoreError, Target, TurnState};

pub use error::{InboxError, StepError};
pub use inbox::Inbox;
pub use message::BadMessage;
pub use plan::{CallConfig, Plan};
pub use states::{Answer, Attempt, Claim, Failed, FailedAttempt, Planned, Returned, Turn};
pub use tools::{Call, Step, ToolPermit, ToolResult};

use crate::bodies::Bodies;
use crate::formats::{ImageSource, NoObjects};
use crate::projector::Projector;
use crate::upkeep::Upkeep;
use inbox::{Shared, lock};
use message::Object;

/// One conversation: a session that is open for writing, and the state of its next request.
///
/// Everything that the model is to see goes through the states that [`Conversation::begin_turn`] and
/// [`Conversation::at`] hand out, or through [`Conversation::upkeep`].
pub struct Conversation {
    shared: Arc<Mutex<Shared>>,
    id: SessionId,
    /// Looked up when the first body is made.
    tree_id: Option<String>,
    projector: Projector,
    bodies: Bodies,
    images: Arc<dyn ImageSource + Send + Sync>,
}

impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Where a conversation stands, by its log.
#[derive(Debug)]
#[non_exhaustive]
pub enum At<'c> {
    /// No turn is open.
    Idle(&'c mut Conversation),
    /// A turn is open, and no step.
    Turn(Turn<'c>),
    /// A request was handed out and is not settled.
    Attempt(Attempt<'c>),
    /// An attempt was settled without an answer.
    Failed(Failed<'c>),
    /// The model has answered; its tools may run.
    Step(Step<'c>),
}

impl Conversation {
    /// The conversation of `session`.
    pub fn new(session: Session) -> Self {
        Self {
            tree_id: None,
            id: session.id().clone(),
            shared: Shared::new(session),
            projector: Projector::new(),
            bodies: Bodies::new(),
            images: Arc::new(NoObjects),
        }
    }

    /// Takes images of provider bodies from `images`.
    #[must_use]
    pub fn with_images(mut self, images: Arc<dyn ImageSource + Send + Sync>) -> Self {
        self.images = images;
        self
    }

    /// Names the session at the root of the tree of forks, from which providers' cache keys are made.
    /// Default: what the store knows ([`Session::tree_root`]).
    #[must_use]
    pub fn with_tree_id(mut self, tree_id: impl Into<String>) -> Self {
        self.tree_id = Some(tree_id.into());
        self
    }

    /// The session's name.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// A handle on the inbox, for any thread.
    pub fn inbox(&self) -> Inbox {
        Inbox::new(&self.shared)
    }

    /// What the log adds up to now.
    ///
    /// # Errors
    ///
    /// [`StepError::Closed`].
    pub fn fold(&self) -> Result<Fold, StepError> {
        lock(&self.shared).fold()
    }

    /// A snapshot of the log for reading.
    ///
    /// # Errors
    ///
    /// [`StepError::Closed`].
    pub fn reader(&self) -> Result<Reader, StepError> {
        Ok(lock(&self.shared).session()?.reader())
    }

    /// The settings from which the next call's config starts: those of the header in force that the
    /// host set itself. What an adapter brought is left out, so that it can bring something else.
    /// `None` before the first request.
    ///
    /// # Errors
    ///
    /// [`StepError::Closed`].
    pub fn config_seed(&self) -> Result<Option<CallConfig>, StepError> {
        Ok(self.fold()?.header().and_then(|header| CallConfig::explicit(header.text())))
    }

    /// Whether something waits in the inbox: input for the next step, or a prompt.
    ///
    /// # Errors
    ///
    /// [`StepError::Closed`].
    pub fn has_pending(&self) -> Result<bool, StepError> {
        let fold = self.fold()?;
        let state = fold.step_state();
        Ok([Target::NextStep, Target::NextTurn].into_iter().any(|target| !state.pending(target).is_empty()))
    }

    /// Opens a turn.
    ///
    /// # Errors
    ///
    /// [`StepError::TurnOpen`]; [`StepError::Append`].
    pub fn begin_turn(&mut self) -> Result<Turn<'_>, StepError> {
        let fold = self.fold()?;
        if let Some(turn) = fold.turn().turn() {
            return Err(StepError::TurnOpen { turn });
        }
        let turn = fold.turn().last_turn() + 1;
        self.append(Draft::new("turn/start", Object::new().raw("turn", turn).finish()))?;
        Ok(Turn::of(self))
    }

    /// The state in which the log stands: after an error, or after a state was dropped.
    ///
    /// # Errors
    ///
    /// [`StepError::Closed`].
    pub fn at(&mut self) -> Result<At<'_>, StepError> {
        let fold = self.fold()?;
        let last = fold.step_state().last_request();
        Ok(match (fold.turn().turn(), fold.turn().step()) {
            (None, _) => At::Idle(self),
            (Some(_), None) => At::Turn(Turn::of(self)),
            (Some(_), Some(_)) => match last {
                Some(last) if last.unsettled().is_some() => {
                    // Between a dispatch and its settlement nothing reaches the surface.
                    let request = self.projector.request(&fold)?;
                    At::Attempt(Attempt::of(self, request, None))
                }
                Some(last) if last.is_answered() => At::Step(Step::of(self)),
                _ => At::Failed(Failed::of(self)),
            },
        })
    }

    /// The operations that rewrite what the model sees: compaction, pruning.
    pub fn upkeep(&mut self) -> Upkeep<'_> {
        Upkeep::of(self)
    }

    /// Blocks until everything that was appended is durable.
    ///
    /// # Errors
    ///
    /// [`StepError::Append`], [`StepError::Closed`].
    pub fn flush(&self) -> Result<(), StepError> {
        Ok(lock(&self.shared).session()?.flush()?)
    }

    /// Seals the log and lets go of the session. Inboxes that are still held refuse from here on.
    ///
    /// # Errors
    ///
    /// A [`StoreError`]; nothing is lost.
    pub fn close(self) -> Result<(), StoreError> {
        let session = lock(&self.shared).take_session();
        session.map_or(Ok(()), Session::close)
    }

    /// Appends what the next barrier will sync.
    pub(crate) fn append(&mut self, draft: Draft) -> Result<(), StepError> {
        self.append_made(Durability::Buffered, |_| Ok(vec![draft]))
    }

    /// Appends what `make` makes of the fold under which it is admitted, and waits until it is as
    /// durable as is asked for. The inbox belongs to other threads, so what depends on where the log
    /// ends must be made here.
    pub(crate) fn append_made<E: From<StepError>>(
        &mut self,
        durability: Durability,
        make: impl FnOnce(&Fold) -> Result<Vec<Draft>, E>,
    ) -> Result<(), E> {
        let ticket = {
            let mut shared = lock(&self.shared);
            let batch = make(&shared.fold()?)?;
            shared.session()?.append(batch, durability).map_err(StepError::from)?
        };
        Ok(ticket.wait().map_err(StepError::from)?)
    }
}

/// The start of an event's data: the open turn and step.
fn position(state: &TurnState) -> Object {
    Object::new().raw("turn", state.turn().unwrap_or_default()).raw("step", state.step().unwrap_or_default())
}

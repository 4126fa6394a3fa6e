//! The states of a step up to its settlement. Each borrows the conversation; each transition takes
//! the state by value.

use rederive_engine::Draft;

use super::dispatch::Entry;
use super::error::StepError;
use super::inbox::Claimed;
use super::message::{self, Object};
use super::plan::{CallConfig, Plan};
use super::tools::Step;
use super::{Conversation, position};
use crate::formats::Body;
use crate::request::Request;
use crate::upkeep::Upkeep;

/// A turn that is open, between two steps.
#[derive(Debug)]
pub struct Turn<'c> {
    conversation: &'c mut Conversation,
}

impl<'c> Turn<'c> {
    pub(super) fn of(conversation: &'c mut Conversation) -> Self {
        Self { conversation }
    }

    /// Claims the messages that wait: all input for the next step and, before the turn's first step,
    /// one queued prompt. What is inserted from here on joins a later request. The messages stay in
    /// the inbox until the step enters, so that a crash loses none.
    ///
    /// # Errors
    ///
    /// [`StepError::Closed`].
    pub fn claim(self) -> Result<Claim<'c>, StepError> {
        let at_boundary = self.conversation.fold()?.turn().last_step() == 0;
        let claimed = Claimed::take(&self.conversation.shared, at_boundary)?;
        Ok(Claim { conversation: self.conversation, claimed })
    }

    /// Whether input for the next step waits in the inbox.
    ///
    /// # Errors
    ///
    /// [`StepError::Closed`].
    pub fn has_input(&self) -> Result<bool, StepError> {
        let fold = self.conversation.fold()?;
        Ok(!fold.step_state().pending(rederive_engine::Target::NextStep).is_empty())
    }

    /// The operations that rewrite what the model sees.
    pub fn upkeep(&mut self) -> Upkeep<'_> {
        self.conversation.upkeep()
    }

    /// Ends the turn; `reason` says how, as `completed` or `cancelled`.
    ///
    /// # Errors
    ///
    /// [`StepError::Append`].
    pub fn end(self, reason: &str) -> Result<(), StepError> {
        let fold = self.conversation.fold()?;
        let turn = fold.turn().turn().unwrap_or(fold.turn().last_turn());
        let reason = Object::new().text("kind", reason).finish();
        let data = Object::new().raw("turn", turn).raw("reason", reason).finish();
        self.conversation.append(Draft::new("turn/end", data))
    }
}

/// What becomes of claimed messages when no step opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// They wait in the inbox as before.
    ToInbox,
    /// They are taken out of the inbox and never sent.
    Dropped,
}

/// Messages that were claimed for a step.
#[derive(Debug)]
pub struct Claim<'c> {
    conversation: &'c mut Conversation,
    claimed: Claimed,
}

impl<'c> Claim<'c> {
    /// The claimed messages in order, each a verbatim JSON object.
    pub fn messages(&self) -> &[String] {
        self.claimed.messages()
    }

    /// The settings from which the call's config starts; see [`Conversation::config_seed`].
    ///
    /// # Errors
    ///
    /// [`StepError::Closed`].
    pub fn config_seed(&self) -> Result<Option<CallConfig>, StepError> {
        self.conversation.config_seed()
    }

    /// Says what the step sends beside the conversation. Writes nothing.
    ///
    /// # Errors
    ///
    /// [`StepError::Tool`].
    pub fn plan(self, plan: Plan) -> Result<Planned<'c>, StepError> {
        plan.check()?;
        let messages = self.claimed.messages().to_vec();
        Ok(Planned {
            conversation: self.conversation,
            claimed: self.claimed,
            plan,
            messages,
            declares_series: false,
        })
    }
}

/// A step that is ready to be entered or rejected: the host's pre-step decision.
#[derive(Debug)]
pub struct Planned<'c> {
    conversation: &'c mut Conversation,
    claimed: Claimed,
    plan: Plan,
    messages: Vec<String>,
    declares_series: bool,
}

impl<'c> Planned<'c> {
    /// The user messages that the step would send, in order.
    pub fn messages(&self) -> &[String] {
        &self.messages
    }

    /// Sends `messages` instead of the claimed ones.
    #[must_use]
    pub fn with_messages(mut self, messages: Vec<String>) -> Self {
        self.messages = messages;
        self
    }

    /// Declares that the request starts a new series: the host means to give up the prefix.
    #[must_use]
    pub fn starting_series(mut self) -> Self {
        self.declares_series = true;
        self
    }

    /// Opens no step. Gives the turn back.
    ///
    /// # Errors
    ///
    /// [`StepError::Append`] where messages are dropped.
    pub fn reject(self, messages: Returned) -> Result<Turn<'c>, StepError> {
        if messages == Returned::Dropped {
            self.claimed.discard()?;
        }
        Ok(Turn { conversation: self.conversation })
    }

    /// Opens the step: one atomic batch, durable on return, that ends with the dispatch of the
    /// request.
    ///
    /// # Cost
    ///
    /// One frame and one sync; the request costs what is new in it.
    ///
    /// # Errors
    ///
    /// Nothing was written, and the claimed messages wait again:
    /// - [`StepError::Message`]: a message of the batch cannot be sent.
    /// - [`StepError::Format`]: the body that the plan asks for cannot be built.
    /// - [`StepError::Append`].
    ///
    /// [`StepError::Journal`]: the sync failed; whether the batch is durable is not known until the
    /// store is opened again.
    pub fn enter(self) -> Result<Attempt<'c>, StepError> {
        self.messages.iter().try_for_each(|message| message::check_user(message))?;
        let entry = Entry {
            claimed: self.claimed.removal(),
            opens_step: true,
            messages: self.messages,
            declares_series: self.declares_series,
        };
        let (request, body) = self.conversation.dispatch(&self.plan, entry)?;
        Ok(Attempt::of(self.conversation, request, body))
    }
}

/// What a model answered.
#[derive(Clone, Debug)]
pub struct Answer {
    message: String,
    more: Vec<(&'static str, String)>,
}

impl Answer {
    /// The assistant message, a verbatim JSON object with its provider and model.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), more: Vec::new() }
    }

    /// The provider's token counts, a JSON object (`inputTokens`, `cacheReadTokens`, …).
    #[must_use]
    pub fn usage(mut self, usage: impl Into<String>) -> Self {
        self.more.push(("usage", usage.into()));
        self
    }

    /// The stream's deltas, a JSON array: evidence that no request carries.
    #[must_use]
    pub fn stream(mut self, stream: impl Into<String>) -> Self {
        self.more.push(("stream", stream.into()));
        self
    }
}

/// Why an attempt came to nothing.
#[derive(Clone, Debug)]
pub struct FailedAttempt {
    code: String,
    message: String,
    usage: Option<String>,
}

impl FailedAttempt {
    /// A failure, as `RATE_LIMIT` or `CONTEXT_WINDOW_EXCEEDED`, with a text for people.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), usage: None }
    }

    /// The provider's token counts, a JSON object.
    #[must_use]
    pub fn usage(mut self, usage: impl Into<String>) -> Self {
        self.usage = Some(usage.into());
        self
    }
}

/// A request that was handed out: logged, durable and frozen. Settle it with what came back.
///
/// Dropping it settles nothing; [`Conversation::at`] gives it again, and after a crash the closers
/// end its turn.
#[derive(Debug)]
pub struct Attempt<'c> {
    conversation: &'c mut Conversation,
    request: Request,
    body: Option<Box<Body>>,
}

impl<'c> Attempt<'c> {
    pub(super) fn of(conversation: &'c mut Conversation, request: Request, body: Option<Body>) -> Self {
        Self { conversation, request, body: body.map(Box::new) }
    }

    /// The request to send.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The provider's body of the request, where the plan asked for one.
    pub fn body(&self) -> Option<&Body> {
        self.body.as_deref()
    }

    /// Logs the answer. It is synced with the next barrier: the start of a tool, or the next request.
    ///
    /// # Errors
    ///
    /// - [`StepError::Message`]: it is no assistant message, or its tool calls cannot be told apart.
    /// - [`StepError::Append`]: a rule refuses it, or it could not be written.
    pub fn settle(self, answer: Answer) -> Result<Step<'c>, StepError> {
        message::check_assistant(&answer.message)?;
        let mut data = self.position()?.raw("message", &answer.message);
        for (key, value) in &answer.more {
            data = data.raw(key, value);
        }
        let data = data.finish();
        self.conversation.append(Draft::append("assistant/message", data))?;
        Ok(Step::of(self.conversation))
    }

    /// Logs that nothing came of the attempt.
    ///
    /// # Errors
    ///
    /// [`StepError::Append`].
    pub fn fail(self, failure: FailedAttempt) -> Result<Failed<'c>, StepError> {
        let why = Object::new().text("code", &failure.code).text("message", &failure.message).finish();
        let data = self.position()?.raw("failure", why).maybe("usage", failure.usage).finish();
        self.conversation.append(Draft::new("assistant/attempt", data))?;
        Ok(Failed::of(self.conversation))
    }

    /// The start of a settlement's data.
    fn position(&self) -> Result<Object, StepError> {
        Ok(position(self.conversation.fold()?.turn()))
    }
}

/// A step whose last attempt came to nothing.
#[derive(Debug)]
pub struct Failed<'c> {
    conversation: &'c mut Conversation,
}

impl<'c> Failed<'c> {
    pub(super) fn of(conversation: &'c mut Conversation) -> Self {
        Self { conversation }
    }

    /// Sends the step's request again, inside the same step. With another plan, or after an upkeep, it
    /// is another request, and the log says why.
    ///
    /// # Errors
    ///
    /// As [`Planned::enter`]; [`StepError::Tool`].
    pub fn retry(self, plan: &Plan) -> Result<Attempt<'c>, StepError> {
        plan.check()?;
        let entry =
            Entry { claimed: Vec::new(), opens_step: false, messages: Vec::new(), declares_series: false };
        let (request, body) = self.conversation.dispatch(plan, entry)?;
        Ok(Attempt::of(self.conversation, request, body))
    }

    /// The operations that rewrite what the model sees: where the context was too long, compact it and
    /// try again.
    pub fn upkeep(&mut self) -> Upkeep<'_> {
        self.conversation.upkeep()
    }

    /// Gives the step up and goes back to the turn.
    ///
    /// # Errors
    ///
    /// [`StepError::Append`].
    pub fn give_up(self) -> Result<Turn<'c>, StepError> {
        end_step(self.conversation)?;
        Ok(Turn { conversation: self.conversation })
    }
}

/// Logs the end of the open step.
pub(super) fn end_step(conversation: &mut Conversation) -> Result<(), StepError> {
    let data = position(conversation.fold()?.turn()).finish();
    conversation.append(Draft::new("step/end", data))
}

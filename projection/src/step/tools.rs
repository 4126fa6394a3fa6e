//! The tools of a step: permission to start one, and its result.
//!
//! Owns the barrier in front of a tool: its `tool/call` is durable before it may run, so that after
//! a crash the log says whether it can have had an effect.

use rederive_engine::{
    Draft, Durability, Fold, PendingCall, Seq, SessionId, list_items, object_member, string_text,
};

use super::error::StepError;
use super::message::{self, Object, is_type};
use super::states::{Turn, end_step};
use super::{Conversation, position};

/// A tool call that the model asked for and that has no result yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    id: String,
    name: String,
    arguments: String,
    /// The verbatim text of the arguments, quotes included.
    raw_arguments: String,
}

impl Call {
    /// The call's id, as the model gave it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The tool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The arguments as the model gave them: JSON text, unless the model erred.
    pub fn arguments(&self) -> &str {
        &self.arguments
    }
}

/// The permission to run one tool once: its start is on disk. Hand it back with the result.
///
/// ```compile_fail
/// # fn f(permit: rederive_projection::step::ToolPermit) {
/// let again = permit.clone();
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a tool that was started owes a result"]
pub struct ToolPermit {
    session: SessionId,
    call: Call,
    recorded: Seq,
}

impl ToolPermit {
    /// The call that may run.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The `tool/call` that recorded its start.
    pub fn recorded(&self) -> Seq {
        self.recorded
    }
}

/// What a tool gave back.
#[derive(Clone, Debug)]
pub struct ToolResult {
    blocks: Vec<String>,
    is_error: bool,
    error: Option<(String, String)>,
    meta: Option<String>,
}

impl ToolResult {
    /// A result of one text block.
    pub fn text(text: &str) -> Self {
        Self::blocks(vec![message::text_block(text)])
    }

    /// A result of `blocks`, each a verbatim JSON object.
    pub fn blocks(blocks: Vec<String>) -> Self {
        Self { blocks, is_error: false, error: None, meta: None }
    }

    /// Marks the result as an error, with its name and code for the host.
    #[must_use]
    pub fn error(mut self, name: impl Into<String>, code: impl Into<String>) -> Self {
        self.is_error = true;
        self.error = Some((name.into(), code.into()));
        self
    }

    /// What the host keeps beside the result, a JSON value that no request carries.
    #[must_use]
    pub fn meta(mut self, meta: impl Into<String>) -> Self {
        self.meta = Some(meta.into());
        self
    }

    fn data(&self, fold: &Fold, call: &str) -> String {
        let block = Object::new()
            .text("type", "tool-result")
            .text("toolCallId", call)
            .raw("content", format_args!("[{}]", self.blocks.join(",")))
            .raw("isError", self.is_error)
            .finish();
        let source = Object::new().text("kind", "tool").text("callId", call).finish();
        let message = Object::new()
            .text("id", &format!("result-{}", fold.next_seq()))
            .text("role", "user")
            .raw("source", source)
            .raw("content", format_args!("[{block}]"))
            .finish();
        let error = self
            .error
            .as_ref()
            .map(|(name, code)| Object::new().text("name", name).text("code", code).finish());
        position(fold.turn())
            .raw("message", message)
            .maybe("error", error)
            .maybe("meta", self.meta.as_ref())
            .finish()
    }
}

/// A step that the model has answered: its tools may run, one by one or side by side.
#[derive(Debug)]
pub struct Step<'c> {
    conversation: &'c mut Conversation,
}

impl<'c> Step<'c> {
    pub(super) fn of(conversation: &'c mut Conversation) -> Self {
        Self { conversation }
    }

    /// The calls without a result, in the order in which they were asked for.
    ///
    /// # Errors
    ///
    /// [`StepError::Closed`].
    pub fn calls(&self) -> Result<Vec<Call>, StepError> {
        let fold = self.conversation.fold()?;
        Ok(fold.turn().pending_calls().iter().filter_map(|pending| call(&fold, pending)).collect())
    }

    /// Records that the tool of `call` starts, and hands out the permission to run it. Durable on
    /// return, and with it everything before.
    ///
    /// # Errors
    ///
    /// [`StepError::NotPending`], [`StepError::Started`], [`StepError::Append`].
    pub fn begin_tool(&mut self, call: &str) -> Result<ToolPermit, StepError> {
        self.begin_tools(&[call])?.pop().ok_or_else(|| StepError::NotPending { call: call.to_owned() })
    }

    /// As [`Step::begin_tool`] for several calls, with one sync.
    ///
    /// # Errors
    ///
    /// As [`Step::begin_tool`]; none was started then.
    pub fn begin_tools(&mut self, calls: &[&str]) -> Result<Vec<ToolPermit>, StepError> {
        let session = self.conversation.id.clone();
        let mut permits: Vec<ToolPermit> = Vec::with_capacity(calls.len());
        self.conversation.append_made(Durability::Synced, |fold| {
            let mut batch = Vec::with_capacity(calls.len());
            for id in calls {
                let pending = find(fold, id)?;
                let again = permits.iter().find(|permit| permit.call.id == **id);
                if let Some(at) = pending.recorded().or(again.map(|permit| permit.recorded)) {
                    return Err(StepError::Started { call: (*id).to_owned(), at });
                }
                let call =
                    call(fold, pending).ok_or_else(|| StepError::NotPending { call: (*id).to_owned() })?;
                batch.push(Draft::new("tool/call", started(fold, &call)));
                let recorded = fold.next_seq().plus(permits.len() as u64);
                permits.push(ToolPermit { session: session.clone(), call, recorded });
            }
            Ok(batch)
        })?;
        Ok(permits)
    }

    /// Logs the result of a tool that was started. It is synced with the next barrier.
    ///
    /// # Errors
    ///
    /// [`StepError::NotPending`]: the call was answered meanwhile, by the closers of an interrupted
    /// turn; [`StepError::Append`].
    pub fn finish_tool(&mut self, permit: ToolPermit, result: ToolResult) -> Result<(), StepError> {
        let stale = permit.session != self.conversation.id;
        self.result(&permit.call.id, &result, |pending| !stale && pending.recorded() == Some(permit.recorded))
    }

    /// Logs a result for a call whose tool was never started: one that the user or a policy refused.
    ///
    /// # Errors
    ///
    /// [`StepError::NotPending`]; [`StepError::Started`]; [`StepError::Append`].
    pub fn refuse_tool(&mut self, call: &str, result: ToolResult) -> Result<(), StepError> {
        let fold = self.conversation.fold()?;
        if let Some(at) = find(&fold, call)?.recorded() {
            return Err(StepError::Started { call: call.to_owned(), at });
        }
        self.result(call, &result, |pending| pending.recorded().is_none())
    }

    fn result(
        &mut self,
        call: &str,
        result: &ToolResult,
        is_it: impl FnOnce(&PendingCall) -> bool,
    ) -> Result<(), StepError> {
        self.conversation.append_made(Durability::Buffered, |fold| {
            let pending = find(fold, call)?;
            if !is_it(pending) {
                return Err(StepError::NotPending { call: call.to_owned() });
            }
            let data = result.data(fold, call);
            Ok(vec![Draft::append("tool/result", data).citing(pending.recorded())])
        })
    }

    /// Ends the step.
    ///
    /// # Errors
    ///
    /// [`StepError::Unanswered`] where a call has no result; [`StepError::Append`].
    pub fn end(self) -> Result<Turn<'c>, StepError> {
        let fold = self.conversation.fold()?;
        let calls: Vec<String> =
            fold.turn().pending_calls().iter().map(|call| call.call_id().to_owned()).collect();
        if !calls.is_empty() {
            return Err(StepError::Unanswered { calls });
        }
        end_step(self.conversation)?;
        Ok(Turn::of(self.conversation))
    }
}

fn find<'f>(fold: &'f Fold, id: &str) -> Result<&'f PendingCall, StepError> {
    let found = fold.turn().pending_calls().iter().find(|pending| pending.call_id() == id);
    found.ok_or_else(|| StepError::NotPending { call: id.to_owned() })
}

/// The call of `pending`, read from its assistant message.
fn call(fold: &Fold, pending: &PendingCall) -> Option<Call> {
    let node = fold.surface().get(pending.node())?;
    let text = |block: &str, key: &str| {
        object_member(block, key).and_then(string_text).map(std::borrow::Cow::into_owned)
    };
    list_items(object_member(node.text(), "content")?)
        .into_iter()
        .find(|block| is_type(block, "tool-call") && text(block, "id").as_deref() == Some(pending.call_id()))
        .map(|block| Call {
            id: pending.call_id().to_owned(),
            name: text(block, "name").unwrap_or_default(),
            arguments: text(block, "arguments").unwrap_or_default(),
            raw_arguments: object_member(block, "arguments").unwrap_or("\"\"").to_owned(),
        })
}

fn started(fold: &Fold, call: &Call) -> String {
    position(fold.turn())
        .text("callId", &call.id)
        .text("name", &call.name)
        .raw("arguments", &call.raw_arguments)
        .finish()
}

//! Entering a step, and trying again: one atomic, synced batch that ends in the request's dispatch.
//!
//! Owns the batch's order: what leaves the inbox, `step/start`, the system prompt's operations, the
//! user messages, the owed `request/header`, `request/context` where the route changed,
//! `request/dispatch`. Where any of it is refused, nothing was written.

use rederive_engine::{Draft, Durability, Fold, StepState, equal_by_value};

use super::Conversation;
use super::error::StepError;
use super::inbox::lock;
use super::message::Object;
use super::plan::{Plan, header_event};
use super::prompt::{self, At};
use crate::bodies::Bodies;
use crate::formats::{Body, WireRecord};
use crate::projector::Projector;
use crate::request::Request;

/// What a dispatch is made from, beside the plan.
pub(super) struct Entry {
    /// Events that take the claimed messages out of the inbox.
    pub(super) claimed: Vec<Draft>,
    /// Whether a step opens; a retry stays in its own.
    pub(super) opens_step: bool,
    /// User messages, verbatim.
    pub(super) messages: Vec<String>,
    pub(super) declares_series: bool,
}

impl Conversation {
    /// Writes the batch and gives its frozen request, durable.
    pub(super) fn dispatch(
        &mut self,
        plan: &Plan,
        entry: Entry,
    ) -> Result<(Request, Option<Body>), StepError> {
        let (ticket, request, body) = {
            let mut shared = lock(&self.shared);
            let session = shared.session()?;
            let fold = session.fold();
            let at = position(&fold, entry.opens_step);
            let batch = events(&fold, plan, entry, at);
            let (projector, bodies) = (&mut self.projector, &mut self.bodies);
            if plan.wire.is_some() && self.tree_id.is_none() {
                self.tree_id = Some(session.tree_root()?);
            }
            let (tree_id, images) = (self.tree_id.as_deref().unwrap_or_default(), self.images.as_ref());
            let mut made = None;
            let dispatch = |fold: &Fold| -> Result<Draft, StepError> {
                let request = projector.request(fold)?;
                let mut wire = None;
                if let Some(options) = &plan.wire {
                    let body = bodies.next(&request, tree_id, options, images)?;
                    wire = Some((WireRecord::of(&body, options).in_tree(tree_id).to_json(), body));
                }
                let (record, body) = wire.unzip();
                let draft = draft(&request, at, record.as_deref());
                made = Some((request, body));
                Ok(draft)
            };
            let written = session.append_reserved_then(&batch, dispatch, Durability::Synced);
            match (written, made) {
                (Ok(ticket), Some((request, body))) => {
                    shared.release();
                    (ticket, request, body)
                }
                (written, _) => {
                    // They have seen nodes that are not there.
                    self.projector = Projector::new();
                    self.bodies = Bodies::new();
                    return Err(written.err().unwrap_or(StepError::Closed));
                }
            }
        };
        ticket.wait()?;
        Ok((request, body))
    }
}

/// Turn and step of the batch.
fn position(fold: &Fold, opens_step: bool) -> At {
    let state = fold.turn();
    At {
        turn: state.turn().unwrap_or(state.last_turn()),
        step: if opens_step { state.last_step() + 1 } else { state.last_step() },
        seq: fold.next_seq().value(),
    }
}

fn events(fold: &Fold, plan: &Plan, entry: Entry, at: At) -> Vec<Draft> {
    let At { turn, step, .. } = at;
    let mut batch = entry.claimed;
    if entry.opens_step {
        batch.push(Draft::new("step/start", Object::new().raw("turn", turn).raw("step", step).finish()));
    }
    let last = fold.step_state().last_request();
    let rewritten = last.is_some_and(|last| last.generation() != fold.surface().generation());
    let new_series = entry.declares_series || rewritten || last.is_none();
    let prompt =
        prompt::operations(fold.surface(), plan.system(), plan.is_reading_system_updates(), new_series, at);
    let starts_series = entry.declares_series || rewritten || (last.is_some() && prompt.rewrites);
    batch.extend(prompt.drafts);
    batch.extend(entry.messages.into_iter().map(|message| Draft::append("user/message", message)));
    let header = plan.header(fold);
    batch.extend(header_event(fold, &header, starts_series).map(|data| Draft::new("request/header", data)));
    batch.extend(context(fold.step_state(), plan));
    batch
}

/// The `request/context` that is owed where the route changed.
fn context(state: &StepState, plan: &Plan) -> Option<Draft> {
    let route = plan.route();
    let known = state.route().is_some_and(|known| equal_by_value(known, &route));
    (!known).then(|| Draft::new("request/context", route))
}

fn draft(request: &Request, at: At, wire: Option<&str>) -> Draft {
    let data = Object::new()
        .raw("turn", at.turn)
        .raw("step", at.step)
        .text("digest", &format!("blake3:{}", request.digest()))
        .raw("bytes", request.bytes())
        .raw("messages", request.message_count())
        .maybe("wire", wire)
        .finish();
    Draft::new("request/dispatch", data).ignorable()
}

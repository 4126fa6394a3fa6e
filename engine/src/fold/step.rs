//! What the step protocol goes on from: the inbox, the route last logged, and the last request.
//!
//! Owns how these follow from a log. Knows no requests' bytes and no surface. It is part of the
//! fold, so that a session goes on after a restart without reading its log again.

use std::sync::Arc;

use crate::event::json::{array_items, as_safe_integer, as_text, member};
use crate::event::{Event, Kind, LogOnly, string_text};
use crate::ids::{Generation, Seq};

/// Where a message of the inbox waits to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// `next-step`: into the next request, in the middle of a turn.
    NextStep,
    /// `next-turn`: a prompt that opens a turn of its own.
    NextTurn,
}

impl Target {
    /// The target's name in a log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NextStep => "next-step",
            Self::NextTurn => "next-turn",
        }
    }
}

/// The last request of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct LastRequest {
    pub(crate) unsettled: Option<Seq>,
    pub(crate) generation: Generation,
    pub(crate) answered: bool,
}

impl LastRequest {
    /// The request's `request/dispatch`, where its attempt was not settled yet.
    pub fn unsettled(&self) -> Option<Seq> {
        self.unsettled
    }

    /// Whether the request was settled by an `assistant/message`.
    pub fn is_answered(&self) -> bool {
        self.answered
    }

    /// How many replaces the surface had seen when the request was made.
    pub fn generation(&self) -> Generation {
        self.generation
    }
}

/// What the step protocol goes on from.
#[derive(Clone, Debug, Default, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct StepState {
    next_step: Vec<String>,
    next_turn: Vec<String>,
    route: Option<String>,
    last_request: Option<LastRequest>,
}

impl StepState {
    /// The messages that wait for `target`, in order, each a verbatim JSON object.
    pub fn pending(&self, target: Target) -> &[String] {
        match target {
            Target::NextStep => &self.next_step,
            Target::NextTurn => &self.next_turn,
        }
    }

    /// The verbatim data of the last `request/context`.
    pub fn route(&self) -> Option<&str> {
        self.route.as_deref()
    }

    /// The last request, as its dispatch says, or in logs without one its settlement.
    pub fn last_request(&self) -> Option<LastRequest> {
        self.last_request
    }

    /// Takes `event`, behind which the surface has seen `generation` replaces.
    pub(crate) fn take(state: &mut Arc<Self>, event: &Event, generation: Generation) {
        match &event.kind {
            Kind::LogOnly(LogOnly::InboxSpliced) => Arc::make_mut(state).splice(event),
            Kind::LogOnly(LogOnly::RequestContext) => {
                Arc::make_mut(state).route = Some(event.data().to_owned());
            }
            Kind::LogOnly(LogOnly::RequestDispatch) => {
                let last = LastRequest { unsettled: Some(event.seq), generation, answered: false };
                Arc::make_mut(state).last_request = Some(last);
            }
            kind if kind.settles() => {
                let last = match state.last_request {
                    Some(LastRequest { unsettled: Some(_), generation, .. }) => generation,
                    _ => generation,
                };
                let answered = *kind == Kind::AssistantMessage;
                let last = Some(LastRequest { unsettled: None, generation: last, answered });
                if state.last_request != last {
                    Arc::make_mut(state).last_request = last;
                }
            }
            _ => {}
        }
    }

    /// Removes and inserts as `event` says. What points behind the end is cut to it, since a log of
    /// another host may hold anything here.
    fn splice(&mut self, event: &Event) {
        let list = match event.data_at(&["target"]).and_then(string_text).as_deref() {
            Some("next-step") => &mut self.next_step,
            Some("next-turn") => &mut self.next_turn,
            _ => return,
        };
        let number = |key: &str| member(&event.data, key).and_then(as_safe_integer).unwrap_or(0);
        let start = usize::try_from(number("start")).unwrap_or(usize::MAX).min(list.len());
        let removed = usize::try_from(number("removedCount")).unwrap_or(usize::MAX);
        let end = start.saturating_add(removed).min(list.len());
        let inserted = member(&event.data, "inserted").map(array_items).unwrap_or_default();
        list.splice(start..end, inserted.into_iter().map(|item| crate::event::text(item).to_owned()));
    }
}

/// The `id` of the message `raw`, where it has one.
pub fn message_id(raw: &str) -> Option<std::borrow::Cow<'_, str>> {
    member(raw.as_bytes(), "id").and_then(as_text)
}

#[cfg(test)]
mod tests {
    use crate::{Replay, Target, TypeRegistry};

    fn log(lines: &[(&str, &str)]) -> Replay {
        let mut log = Replay::new(TypeRegistry::new());
        for (seq, (kind, data)) in lines.iter().enumerate() {
            let op = if kind.ends_with("message") { r#","surfaceOp":"append""# } else { "" };
            log.push_line(&format!(r#"{{"type":"{kind}","seq":{seq},"time":1,"data":{data}{op}}}"#)).unwrap();
        }
        log
    }

    #[test]
    fn splices_add_up_and_never_reach_behind_the_end() {
        let splice = "agent/inbox/spliced";
        let log = log(&[
            (splice, r#"{"target":"next-turn","start":0,"inserted":[{"id":"a"},{"id":"b"}]}"#),
            (
                splice,
                r#"{"target":"next-turn","start":1,"removedCount":1,"inserted":[{"id":"c"},{"id":"d"}]}"#,
            ),
            (splice, r#"{"target":"next-step","start":9,"removedCount":9,"inserted":[{"id":"s"}]}"#),
            (splice, r#"{"target":"elsewhere","start":0,"inserted":[{"id":"x"}]}"#),
            (splice, r#"{"target":"next-turn","start":2,"removedCount":7,"inserted":[]}"#),
        ]);
        let state = log.fold().step_state();
        assert_eq!(state.pending(Target::NextTurn), [r#"{"id":"a"}"#, r#"{"id":"c"}"#]);
        assert_eq!(state.pending(Target::NextStep), [r#"{"id":"s"}"#]);
    }

    #[test]
    fn the_last_request_is_the_dispatch_and_not_what_was_rewritten_behind_it() {
        let message = r#"{"id":"u","role":"user","content":[]}"#;
        let mut log = log(&[("user/message", message), ("request/dispatch", r#"{"turn":1,"step":1}"#)]);
        let dispatched = log.fold().step_state().last_request().unwrap();
        assert_eq!((dispatched.unsettled().unwrap().value(), dispatched.generation().value()), (1, 0));
        let replace = r#"{"type":"user/message","seq":2,"time":1,"data":{"id":"v","role":"user","content":[]},"surfaceOp":{"op":"replace","startSeq":0,"endSeq":0},"sourceEventSeqs":[0]}"#;
        log.push_line(replace).unwrap();
        log.push_line(r#"{"type":"assistant/attempt","seq":3,"time":1,"data":{}}"#).unwrap();
        let settled = log.fold().step_state().last_request().unwrap();
        assert_eq!((settled.unsettled(), settled.generation().value()), (None, 0));
        log.push_line(r#"{"type":"assistant/attempt","seq":4,"time":1,"data":{}}"#).unwrap();
        assert_eq!(log.fold().step_state().last_request().unwrap().generation().value(), 1);
    }
}

//! What the step protocol promises to a host.

mod compaction;
mod headers;
mod inbox;
mod prompts;
mod pruning;
mod random;
mod resume;
mod tools;

use rederive_engine::{NewSession, Reader, SessionId, Store, StoreOptions, Target};
use rederive_projection::Request;
use rederive_projection::audit::{Audit, audit};
use rederive_projection::step::{Answer, At, Attempt, CallConfig, Conversation, Plan, Step, message};
use rederive_projection::verify;

/// A store in a folder that lives as long as it does.
pub struct Home {
    _folder: tempfile::TempDir,
    pub store: Store,
}

impl Home {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create_with(folder.path().join("store"), StoreOptions::default()).unwrap();
        Self { _folder: folder, store }
    }

    pub fn create(&self, id: &str) -> Conversation {
        Conversation::new(self.store.create_session(NewSession::new(id)).unwrap())
    }

    pub fn open(&self, id: &str) -> Conversation {
        Conversation::new(self.store.open_session(&session(id)).unwrap())
    }

    pub fn reader(&self, id: &str) -> Reader {
        self.store.read_session(&session(id)).unwrap()
    }
}

pub fn session(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

/// A plan without tools, on a route that takes a prompt at the head alone.
pub fn plan() -> Plan {
    Plan::new("Be brief.", CallConfig::new("p", "m"))
}

/// Puts a prompt in and enters the step that sends it.
pub fn ask<'c>(conversation: &'c mut Conversation, id: &str, plan: Plan) -> Attempt<'c> {
    conversation.inbox().insert(Target::NextTurn, &message::user(id, &format!("question {id}"))).unwrap();
    conversation.begin_turn().unwrap().claim().unwrap().plan(plan).unwrap().enter().unwrap()
}

pub fn says(text: &str) -> Answer {
    let id = format!("a-{}", text.len());
    Answer::new(message::assistant(&id, "p", "m", &[message::text_block(text)]))
}

/// An answer that asks for the tools named `calls`.
pub fn asks_for(calls: &[&str]) -> Answer {
    let blocks: Vec<String> = calls.iter().map(|id| message::tool_call_block(id, "t", "{}")).collect();
    Answer::new(message::assistant("a-calls", "p", "m", &blocks))
}

/// One whole turn with a plain answer; gives its request.
pub fn turn(conversation: &mut Conversation, id: &str, plan: Plan) -> Request {
    let attempt = ask(conversation, id, plan);
    let request = attempt.request().clone();
    attempt.settle(says("answer")).unwrap().end().unwrap().end("completed").unwrap();
    request
}

pub fn step(conversation: &mut Conversation) -> Step<'_> {
    match conversation.at().unwrap() {
        At::Step(step) => step,
        other => panic!("the conversation stands at {other:?}"),
    }
}

/// The surface's seqs.
pub fn surface(conversation: &Conversation) -> Vec<u64> {
    conversation.fold().unwrap().surface().seqs().iter().map(|seq| seq.value()).collect()
}

/// The reasons of all headers of a log, with `+series` where one starts as well.
pub fn reasons(conversation: &Conversation) -> Vec<String> {
    events(conversation, "request/header")
        .iter()
        .map(|data| {
            let series = if data.contains("\"startsSeries\":true") { "+series" } else { "" };
            let reason = data.split("\"reason\":\"").nth(1).unwrap().split('"').next().unwrap();
            format!("{reason}{series}")
        })
        .collect()
}

/// The data of all events of one type.
pub fn events(conversation: &Conversation, kind: &str) -> Vec<String> {
    let reader = conversation.reader().unwrap();
    let all = rederive_engine::Seq::FIRST..reader.fold().next_seq();
    let events = reader.events(all).unwrap().map(Result::unwrap);
    events.filter(|event| event.kind().to_string() == kind).map(|event| event.data().to_owned()).collect()
}

/// The whole log is what its dispatches say, and explains every request.
pub fn audited(conversation: &Conversation) -> Audit {
    let reader = conversation.reader().unwrap();
    let verified = verify(&reader).unwrap();
    assert_eq!(verified.mismatches, []);
    assert!(verified.compared > 0);
    audit(&reader).unwrap()
}

pub fn extends(later: &Request, earlier: &Request) -> bool {
    let (later, earlier) = (later.to_vec(), earlier.to_vec());
    later.starts_with(&earlier[..earlier.len() - 2])
}

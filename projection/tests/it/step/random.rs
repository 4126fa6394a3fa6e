//! Random hosts: every operation of the protocol, with restarts and losses of power between them.
//!
//! After each run: every request that was handed out is in the log with its digest, each extends the
//! one before unless an operation in between says otherwise, and no message is lost or sent twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use rederive_disk::sim::SimDisk;
use rederive_engine::{
    NewSession, NodeKind, Replay, Seq, Store, StoreOptions, Target, message_id, object_member, string_text,
};
use rederive_projection::audit::{Cause, audit};
use rederive_projection::step::{
    At, Attempt, CallConfig, Conversation, FailedAttempt, Plan, ToolResult, message,
};
use rederive_projection::upkeep::{Summary, SummaryCall};
use rederive_projection::{Request, RequestRef, canonical_bytes, digest_of, reconstruct, verify};

use super::{asks_for, extends, says, session};

#[derive(Clone, Copy, Debug)]
enum Operation {
    Insert(bool),
    Remove,
    Turn { calls: usize, fails: bool },
    Prompt(usize),
    ReadsUpdates(bool),
    Model(usize),
    Tools(usize),
    Series,
    Compact { share: u64, commit: bool },
    Prune(usize),
    Restart,
    PowerLoss,
    LeaveOpen(bool),
    Fork,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => any::<bool>().prop_map(Operation::Insert),
        1 => Just(Operation::Remove),
        8 => (0_usize..4, prop::bool::weighted(0.2)).prop_map(|(calls, fails)| Operation::Turn { calls, fails }),
        1 => (0_usize..3).prop_map(Operation::Prompt),
        1 => any::<bool>().prop_map(Operation::ReadsUpdates),
        1 => (0_usize..2).prop_map(Operation::Model),
        1 => (0_usize..TOOLS.len()).prop_map(Operation::Tools),
        1 => Just(Operation::Series),
        1 => (1_u64..=4, prop::bool::weighted(0.8))
            .prop_map(|(share, commit)| Operation::Compact { share, commit }),
        1 => any::<usize>().prop_map(Operation::Prune),
        1 => Just(Operation::Restart),
        1 => Just(Operation::PowerLoss),
        1 => any::<bool>().prop_map(Operation::LeaveOpen),
        1 => Just(Operation::Fork),
    ]
}

const PROMPTS: [&str; 3] = ["Be brief.", "Be exact.", ""];
const MODELS: [&str; 2] = ["m", "n"];
const TOOLS: [&[&str]; 4] = [&[], &["a"], &["a", "b"], &["b", "a"]];

/// What a host sends beside the conversation, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    model: usize,
    tools: usize,
}

struct Host {
    disk: SimDisk,
    store: Store,
    conversation: Option<Conversation>,
    id: String,
    ids: usize,
    prompt: usize,
    reads_updates: bool,
    now: Sent,
    series: bool,
    last_sent: Option<Sent>,
    /// Every request that was handed out in this session's line, oldest first.
    handed_out: Vec<Request>,
    /// What broke the prefix since, and whether a loss of power may have undone some of it.
    broken: BTreeSet<&'static str>,
    uncertain: bool,
    /// The causes that each request may have, and must have.
    expected: Vec<(BTreeSet<&'static str>, bool)>,
    inserted: BTreeMap<String, bool>,
}

impl Host {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        let store = Store::create_on(Arc::new(disk.clone()), "/store", StoreOptions::default()).unwrap();
        let conversation = Conversation::new(store.create_session(NewSession::new("s0")).unwrap());
        Self {
            disk,
            store,
            conversation: Some(conversation),
            id: "s0".into(),
            ids: 0,
            prompt: 0,
            reads_updates: false,
            now: Sent { model: 0, tools: 0 },
            series: false,
            last_sent: None,
            handed_out: Vec::new(),
            broken: BTreeSet::new(),
            uncertain: false,
            expected: Vec::new(),
            inserted: BTreeMap::new(),
        }
    }

    fn conversation(&mut self) -> &mut Conversation {
        self.conversation.as_mut().unwrap()
    }

    fn next_id(&mut self, what: &str) -> String {
        self.ids += 1;
        format!("{what}{}", self.ids)
    }

    fn plan(&self) -> Plan {
        let tools = TOOLS[self.now.tools].iter().map(|name| format!("{{\"name\":\"{name}\"}}"));
        let plan = Plan::new(PROMPTS[self.prompt], CallConfig::new("p", MODELS[self.now.model])).tools(tools);
        if self.reads_updates { plan.reads_system_updates() } else { plan }
    }

    fn run(&mut self, operation: Operation) {
        match operation {
            Operation::Insert(step) => {
                let id = self.next_id("q");
                let target = if step { Target::NextStep } else { Target::NextTurn };
                self.conversation().inbox().insert(target, &message::user(&id, &id)).unwrap();
                self.inserted.insert(id, true);
            }
            Operation::Remove => {
                let inbox = self.conversation().inbox();
                let pending = inbox.pending(Target::NextTurn).unwrap();
                if let Some(id) = pending.first().and_then(|text| message_id(text)) {
                    inbox.remove(&id).unwrap();
                    self.inserted.remove(&*id);
                }
            }
            Operation::Turn { calls, fails } => self.turn(calls, fails),
            Operation::Prompt(prompt) => self.prompt = prompt,
            Operation::ReadsUpdates(reads) => self.reads_updates = reads,
            Operation::Model(model) => self.now.model = model,
            Operation::Tools(tools) => self.now.tools = tools,
            Operation::Series => self.series = true,
            Operation::Compact { share, commit } => self.compact(share, commit),
            Operation::Prune(which) => self.prune(which),
            Operation::Restart => {
                self.conversation.take().unwrap().close().unwrap();
                self.open();
            }
            Operation::PowerLoss => self.lose_power(),
            Operation::LeaveOpen(answered) => self.leave_open(answered),
            Operation::Fork => self.fork(),
        }
    }

    fn open(&mut self) {
        let opened = self.store.open_session(&session(&self.id)).unwrap();
        self.conversation = Some(Conversation::new(opened));
        assert!(matches!(self.conversation().at().unwrap(), At::Idle(_)), "closers end an open turn");
    }

    fn lose_power(&mut self) {
        self.disk = self.disk.after_power_loss();
        drop(self.conversation.take());
        self.store = Store::open_on(Arc::new(self.disk.clone()), "/store", StoreOptions::default()).unwrap();
        self.uncertain = true;
        self.open();
    }

    fn turn(&mut self, calls: usize, fails: bool) {
        let id = self.next_id("q");
        let (plan, series) = (self.plan(), self.series);
        let conversation = self.conversation.as_mut().unwrap();
        conversation.inbox().insert(Target::NextTurn, &message::user(&id, &id)).unwrap();
        self.inserted.insert(id, true);
        let planned = conversation.begin_turn().unwrap().claim().unwrap().plan(plan.clone()).unwrap();
        let planned = if series { planned.starting_series() } else { planned };
        let mut requests = Vec::new();
        let mut attempt: Attempt<'_> = planned.enter().unwrap();
        requests.push(attempt.request().clone());
        if fails {
            let failed = attempt.fail(FailedAttempt::new("SERVER", "down")).unwrap();
            attempt = failed.retry(&plan).unwrap();
            requests.push(attempt.request().clone());
        }
        let names: Vec<String> = (0..calls).map(|call| format!("c{call}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if !names.is_empty() {
            let mut step = attempt.settle(asks_for(&names)).unwrap();
            let (refused, started) = names.split_first().unwrap();
            let permits = step.begin_tools(started).unwrap();
            step.refuse_tool(refused, ToolResult::text("not allowed").error("Denied", "DENIED")).unwrap();
            for permit in permits.into_iter().rev() {
                step.finish_tool(permit, ToolResult::text(&"output ".repeat(30))).unwrap();
            }
            let turn = step.end().unwrap();
            attempt = turn.claim().unwrap().plan(plan).unwrap().enter().unwrap();
            requests.push(attempt.request().clone());
        }
        attempt.settle(says("answer")).unwrap().end().unwrap().end("completed").unwrap();
        for request in requests {
            self.note(request);
        }
    }

    /// Notes a request that was handed out, with what broke its prefix.
    fn note(&mut self, request: Request) {
        let fold = self.conversation().reader().unwrap().fold_at(request.at()).unwrap();
        assert_eq!(request.digest(), digest_of(&canonical_bytes(&fold).unwrap()));
        let broken = std::mem::take(&mut self.broken);
        // A header stands in front of everything: its change is where the prefix ends.
        let header = self.header_causes();
        let causes = if header.is_empty() { broken } else { header };
        self.expected.push((causes, std::mem::take(&mut self.uncertain)));
        self.last_sent = Some(self.now);
        self.series = false;
        self.handed_out.push(request);
    }

    fn compact(&mut self, share: u64, commit: bool) {
        let conversation = self.conversation.as_mut().unwrap();
        let bytes: usize = conversation.fold().unwrap().surface().nodes().map(|node| node.text().len()).sum();
        let mut upkeep = conversation.upkeep();
        let Some(range) = upkeep.oldest_exchanges(bytes as u64 * share / 4, &[]).unwrap() else { return };
        let call = SummaryCall::new(CallConfig::new("p", "small"), "Summarise.");
        let compaction = upkeep.begin_compaction(range, call).unwrap();
        if commit {
            upkeep.commit_compaction(compaction, Summary::text("sum")).unwrap();
            self.broken.insert("compaction");
        }
    }

    fn prune(&mut self, which: usize) {
        let fold = self.conversation().fold().unwrap();
        let results: Vec<Seq> = fold
            .surface()
            .nodes()
            .filter(|node| node.kind() == NodeKind::ToolResult)
            .map(|node| node.seq())
            .collect();
        if !results.is_empty() {
            let seq = results[which % results.len()];
            self.conversation().upkeep().prune(seq, "[pruned]").unwrap();
            self.broken.insert("pruning");
        }
    }

    /// The process ends under a request, or under a tool that runs.
    fn leave_open(&mut self, answered: bool) {
        let id = self.next_id("q");
        let plan = self.plan();
        let series = self.series;
        let conversation = self.conversation.as_mut().unwrap();
        conversation.inbox().insert(Target::NextTurn, &message::user(&id, &id)).unwrap();
        let planned = conversation.begin_turn().unwrap().claim().unwrap().plan(plan).unwrap();
        let planned = if series { planned.starting_series() } else { planned };
        let attempt = planned.enter().unwrap();
        let request = attempt.request().clone();
        if answered {
            let mut step = attempt.settle(asks_for(&["c0", "c1"])).unwrap();
            drop(step.begin_tool("c1").unwrap());
        }
        self.inserted.insert(id, true);
        self.note(request);
        self.conversation.take().unwrap().close().unwrap();
        self.open();
    }

    fn fork(&mut self) {
        let fold = self.conversation().fold().unwrap();
        let Some(cut) = fold.next_seq().previous() else { return };
        let child = self.next_id("s");
        let forked =
            self.store.fork_session(&session(&self.id), cut, NewSession::new(child.as_str())).unwrap();
        self.conversation.take().unwrap().close().unwrap();
        self.conversation = Some(Conversation::new(forked));
        self.id = child;
    }

    /// What a change of model or tools since the last request breaks.
    fn header_causes(&self) -> BTreeSet<&'static str> {
        let mut causes = BTreeSet::new();
        let Some(last) = self.last_sent.filter(|last| *last != self.now) else { return causes };
        if last.model != self.now.model {
            causes.insert("config changed");
        }
        let (old, new) = (TOOLS[last.tools], TOOLS[self.now.tools]);
        if old.iter().any(|name| !new.contains(name)) {
            causes.insert("tool removed");
        }
        if new.iter().any(|name| !old.contains(name)) {
            causes.insert("tool added");
        }
        if old.len() == 2 && new.len() == 2 && old != new {
            causes.insert("tools reordered");
        }
        causes
    }

    /// Everything that was promised.
    fn check(mut self) {
        let reader = self.conversation().reader().unwrap();
        let verified = verify(&reader).unwrap();
        assert_eq!(verified.mismatches, []);
        assert_eq!(verified.compared, self.handed_out.len() as u64);
        let audit = audit(&reader).unwrap();
        assert_eq!(audit.problems, []);
        assert_eq!(audit.requests.len(), self.handed_out.len());
        for (index, (audited, sent)) in audit.requests.iter().zip(&self.handed_out).enumerate() {
            assert_eq!(audited.blake3, sent.digest().to_string(), "request {index}");
            let rebuilt = reconstruct(&reader, RequestRef::Seq(Seq::new(audited.seq))).unwrap();
            assert_eq!(rebuilt.to_vec(), sent.to_vec());
            let causes: BTreeSet<&str> = audited.causes.iter().map(Cause::name).collect();
            let Some(earlier) = index.checked_sub(1).and_then(|index| self.handed_out.get(index)) else {
                continue;
            };
            assert_eq!(audited.extends, extends(sent, earlier), "request {index}");
            let same =
                sent.generation() == earlier.generation() && sent.header().text() == earlier.header().text();
            if same {
                assert!(audited.extends && causes.is_empty(), "request {index}: {causes:?}");
                continue;
            }
            let (expected, uncertain) = &self.expected[index];
            let but_prompt: BTreeSet<&str> =
                causes.iter().copied().filter(|cause| *cause != "system prompt").collect();
            assert!(but_prompt.is_subset(expected), "request {index}: {causes:?}, due {expected:?}");
            if !audited.extends && !uncertain {
                assert_eq!(&but_prompt, expected, "request {index}");
                assert!(!causes.is_empty(), "request {index}");
            }
        }
        self.check_messages(&reader);
        // The lines alone give the same: another fold, which has never seen the store.
        let mut replay = Replay::new(reader.types().clone());
        for event in reader.events(Seq::FIRST..reader.fold().next_seq()).unwrap() {
            let event = event.unwrap();
            if event.kind().to_string() == "request/dispatch" {
                let due = event.data_at(&["digest"]).and_then(string_text).unwrap().into_owned();
                let digest = digest_of(&canonical_bytes(replay.fold()).unwrap());
                assert_eq!(due, format!("blake3:{digest}"));
            }
            replay.push_line(&event.to_line()).unwrap();
        }
    }

    /// Each message that was put in is waiting, or was sent exactly once.
    fn check_messages(&self, reader: &rederive_engine::Reader) {
        let mut sent: BTreeMap<String, usize> = BTreeMap::new();
        for event in reader.events(Seq::FIRST..reader.fold().next_seq()).unwrap() {
            let event = event.unwrap();
            let compacted =
                object_member(event.data(), "source").is_some_and(|source| source.contains("compaction"));
            if event.kind().to_string() == "user/message" && !compacted {
                *sent.entry(message_id(event.data()).unwrap().into_owned()).or_default() += 1;
            }
        }
        let state = reader.fold().step_state();
        let waiting: BTreeSet<String> = [Target::NextStep, Target::NextTurn]
            .into_iter()
            .flat_map(|target| state.pending(target))
            .map(|text| message_id(text).unwrap().into_owned())
            .collect();
        for id in self.inserted.keys() {
            let times = sent.get(id).copied().unwrap_or(0);
            assert_eq!(times + usize::from(waiting.contains(id)), 1, "message {id}: sent {times} times");
        }
        assert_eq!(sent.len() + waiting.len(), self.inserted.len());
    }
}

fn cases() -> u32 {
    std::env::var("REDERIVE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_host_does_the_log_explains_every_request(
        seed in any::<u64>(),
        operations in prop::collection::vec(operation(), 1..40),
    ) {
        let mut host = Host::new(seed);
        for operation in operations {
            host.run(operation);
        }
        host.turn(0, false);
        host.check();
    }
}

//! A whole agent host in one file, over a model that is scripted: no network, no key.
//!
//! ```text
//! cargo run --release -p rederive-projection --example host -- OUT.jsonl
//! ```
//!
//! It talks, calls tools, is refused one, fails and tries again, changes its prompt and tools, prunes,
//! compacts, crashes in the middle of a tool, resumes, and forks. At the end every request that was
//! sent is rebuilt from the log alone, and the log is written to OUT.jsonl.

#![expect(clippy::print_stdout, reason = "an example says what it does")]

use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use rederive_engine::{NewSession, Reader, Seq, SessionId, Store, Target};
use rederive_projection::audit::{Cause, audit};
use rederive_projection::step::{
    Answer, At, Attempt, Call, CallConfig, Conversation, FailedAttempt, Plan, Planned, Returned, Step,
    ToolResult, message,
};
use rederive_projection::upkeep::{Summary, SummaryCall, summary_input};
use rederive_projection::{OneShot, Request, RequestRef, reconstruct, verify};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const READ: &str = r#"{"name":"read","description":"Read a file.","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}"#;
const RUN: &str = r#"{"name":"run","description":"Run a command.","parameters":{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}}"#;

/// What a model may answer. A real host would send the request's bytes, or its provider body.
enum Scripted {
    Says(&'static str),
    Calls(&'static [(&'static str, &'static str, &'static str)]),
    Fails(&'static str),
}

/// The model: it sees requests and nothing else.
#[derive(Default)]
struct Model {
    answers: Vec<Scripted>,
    sent: u64,
    last: Option<Request>,
}

impl Model {
    fn script(&mut self, answers: impl IntoIterator<Item = Scripted, IntoIter: DoubleEndedIterator>) {
        self.answers = answers.into_iter().rev().collect();
    }

    /// Sends `request`; gives the answer and the token counts that a provider would report.
    fn send(&mut self, request: &Request) -> (Scripted, String) {
        self.sent += 1;
        let cached = self.last.replace(request.clone()).map_or(0, |last| kept(&last, request));
        let usage = format!(
            r#"{{"inputTokens":{},"outputTokens":12,"cacheReadTokens":{}}}"#,
            request.bytes() / 4,
            cached / 4
        );
        (self.answers.pop().unwrap_or(Scripted::Says("Done.")), usage)
    }

    /// A one-shot call is not the conversation's, and has a type of its own.
    fn summarise(&mut self, call: &OneShot) -> Summary {
        self.sent += 1;
        Summary::text(&format!(
            "{} messages about a failing test; it is mended now.",
            call.message_count() - 1
        ))
        .usage(format!(r#"{{"inputTokens":{},"outputTokens":14}}"#, call.bytes() / 4))
    }
}

/// How many leading bytes of `last` a provider's cache could give back.
fn kept(last: &Request, request: &Request) -> u64 {
    let (last, now) = (last.to_vec(), request.to_vec());
    last.iter().zip(&now).take_while(|(a, b)| a == b).count() as u64
}

/// One answer's text or calls as an assistant message.
fn answer(number: u64, said: &Scripted, usage: String) -> Answer {
    let blocks: Vec<String> = match said {
        Scripted::Says(text) => vec![message::text_block(text)],
        Scripted::Calls(calls) => {
            calls.iter().map(|(id, name, input)| message::tool_call_block(id, name, input)).collect()
        }
        Scripted::Fails(_) => Vec::new(),
    };
    let message = message::assistant(&format!("a{number}"), "scripted", "model-1", &blocks);
    Answer::new(message).usage(usage).stream(r#"[{"type":"finish"}]"#)
}

/// What the host sends beside the conversation. It passes the whole plan in every step; the log gets
/// what changed.
fn plan(day: &str, tools: &[&str]) -> Plan {
    let config = CallConfig::new("scripted", "model-1").set("temperature", "0.2");
    Plan::new(format!("You mend code. Today is {day}."), config)
        .tools(tools.iter().copied())
        .adapter_default("maxTokens", "8192")
        .reads_system_updates()
}

/// Runs a tool. A real one may take minutes; its start is on disk before it begins.
fn run_tool(call: &Call) -> ToolResult {
    match call.name() {
        "read" => ToolResult::text(&"fn total(prices: &[u32]) -> u32 { prices.iter().sum() }\n".repeat(40)),
        "run" => ToolResult::text("test result: ok. 12 passed").meta(r#"{"exitCode":0}"#),
        other => ToolResult::text(&format!("there is no tool {other}")).error("UnknownTool", "UNKNOWN_TOOL"),
    }
}

/// Sends a step's request until it is answered.
fn converse<'c>(model: &mut Model, plan: &Plan, mut attempt: Attempt<'c>) -> Result<Step<'c>> {
    loop {
        let (said, usage) = model.send(attempt.request());
        if let Scripted::Fails(code) = said {
            println!("  attempt failed: {code}, trying again");
            attempt = attempt.fail(FailedAttempt::new(code, "scripted").usage(usage))?.retry(plan)?;
            continue;
        }
        return Ok(attempt.settle(answer(model.sent, &said, usage))?);
    }
}

/// One turn: steps until the model asks for no more tools.
fn turn(conversation: &mut Conversation, model: &mut Model, plan: &Plan) -> Result<()> {
    let mut turn = conversation.begin_turn()?;
    loop {
        // Everything that waits goes into this request; what comes from here on, into a later one.
        let planned: Planned<'_> = turn.claim()?.plan(plan.clone())?;
        let attempt = planned.enter()?; // durable, frozen
        println!(
            "  request of {} messages, {} bytes",
            attempt.request().message_count(),
            attempt.request().bytes()
        );
        let mut step = converse(model, plan, attempt)?;
        let calls = step.calls()?;
        for call in &calls {
            if call.name() == "delete" {
                let refused = ToolResult::text("The user did not allow it.").error("Denied", "DENIED");
                step.refuse_tool(call.id(), refused)?;
                continue;
            }
            let permit = step.begin_tool(call.id())?; // durable: now the tool may run
            let result = run_tool(permit.call());
            step.finish_tool(permit, result)?;
        }
        turn = step.end()?;
        if calls.is_empty() && !turn.has_input()? {
            return Ok(turn.end("completed")?);
        }
    }
}

fn work_then_crash(store: &Store, model: &mut Model) -> Result<()> {
    println!("a session is created");
    let mut conversation = Conversation::new(store.create_session(NewSession::new("host").cwd("/project"))?);
    let inbox = conversation.inbox();
    let monday = plan("Monday", &[READ, RUN]);

    inbox.insert(Target::NextTurn, &message::user("q1", "The total is wrong. Mend it."))?;
    inbox.insert(Target::NextTurn, &message::user("q2", "And remove the old fil"))?;
    inbox.insert(Target::NextTurn, &message::user("q3", "never mind this one"))?;
    inbox.edit("q2", &message::user("q2", "And remove the old file."))?; // not sent yet: still ours
    inbox.remove("q3")?;
    model.script([
        Scripted::Fails("RATE_LIMIT"),
        Scripted::Calls(&[
            ("c1", "read", r#"{"path":"total.rs"}"#),
            ("c2", "run", r#"{"command":"cargo test"}"#),
        ]),
        Scripted::Says("The sum overflowed; it is mended."),
    ]);
    turn(&mut conversation, model, &monday)?;

    model.script([
        Scripted::Calls(&[("c3", "delete", r#"{"path":"old.rs"}"#)]),
        Scripted::Says("I may not delete it."),
    ]);
    turn(&mut conversation, model, &monday)?;

    println!("the host rejects a step: its message waits again, then it is dropped");
    inbox.insert(Target::NextTurn, &message::user("q4", "Spend all of the budget."))?;
    let open = conversation.begin_turn()?.claim()?.plan(monday.clone())?.reject(Returned::ToInbox)?;
    open.claim()?.plan(monday.clone())?.reject(Returned::Dropped)?.end("cancelled")?;

    println!("a tool result is pruned, and the prompt changes overnight");
    let result = first_tool_result(&conversation)?;
    conversation.upkeep().prune(result, "[2 KB of total.rs, pruned]")?;
    inbox.insert(Target::NextStep, &message::user("n1", "Note: the file is total.rs."))?;
    inbox.insert(Target::NextTurn, &message::user("q5", "Run the tests again."))?;
    model.script([
        Scripted::Calls(&[("c4", "run", r#"{"command":"cargo test"}"#)]),
        Scripted::Says("All of them pass."),
    ]);
    turn(&mut conversation, model, &plan("Tuesday", &[READ, RUN]))?;

    println!("the process dies while a tool runs");
    inbox.insert(Target::NextTurn, &message::user("q6", "Publish it."))?;
    let attempt = conversation.begin_turn()?.claim()?.plan(plan("Tuesday", &[READ, RUN]))?.enter()?;
    let calls = Scripted::Calls(&[
        ("c5", "run", r#"{"command":"cargo publish"}"#),
        ("c6", "read", r#"{"path":"log"}"#),
    ]);
    let (_, usage) = model.send(attempt.request());
    let mut step = attempt.settle(answer(model.sent, &calls, usage))?;
    let _running = step.begin_tool("c5")?;
    conversation.flush()?;
    Ok(()) // and the conversation is gone: nothing ended its turn
}

fn first_tool_result(conversation: &Conversation) -> Result<Seq> {
    let fold = conversation.fold()?;
    let result = fold.surface().nodes().find(|node| node.kind() == rederive_engine::NodeKind::ToolResult);
    Ok(result.ok_or("the log has no tool result")?.seq())
}

fn resume(store: &Store, model: &mut Model, id: &SessionId) -> Result<()> {
    println!("a new process resumes: the calls that were cut off have got their closers");
    let mut conversation = Conversation::new(store.open_session(id)?);
    match conversation.at()? {
        At::Idle(_) => {}
        other => return Err(format!("the conversation should be idle, and is {other:?}").into()),
    }
    // What the host set is the seed; what the adapter brought is the adapter's again.
    let seed = conversation.config_seed()?.ok_or("the session has a header")?;
    let tuesday = Plan::new("You mend code. Today is Tuesday.", seed)
        .tools([READ, RUN])
        .adapter_default("maxTokens", "8192")
        .reads_system_updates();
    conversation.inbox().insert(Target::NextTurn, &message::user("q7", "Was it published?"))?;
    model.script([Scripted::Says("I cannot know: the command was cut off.")]);
    turn(&mut conversation, model, &tuesday)?;

    println!("the oldest exchanges are compacted; what is typed meanwhile stays");
    let small = CallConfig::new("scripted", "model-small").set("maxTokens", "256");
    let mut upkeep = conversation.upkeep();
    let range = upkeep.oldest_exchanges(6_000, &[])?.ok_or("nothing to compact")?;
    let compaction =
        upkeep.begin_compaction(range, SummaryCall::new(small.clone(), "Summarise the work."))?;
    conversation.inbox().insert(Target::NextTurn, &message::user("q8", "Which test failed?"))?;
    let summary = model.summarise(compaction.input());
    conversation.upkeep().commit_compaction(compaction, summary)?;
    let mut upkeep = conversation.upkeep();
    if let Some(range) = upkeep.oldest_exchanges(u64::MAX, &[])? {
        // Given up: a start without an end means nothing.
        drop(upkeep.begin_compaction(range, SummaryCall::new(small, "Summarise again."))?);
    }
    turn(&mut conversation, model, &tuesday)?;

    println!("a tool less, and a series that the host declares");
    conversation.inbox().insert(Target::NextTurn, &message::user("q9", "Only read from now on."))?;
    let planned = conversation.begin_turn()?.claim()?.plan(plan("Tuesday", &[READ]))?.starting_series();
    let step = converse(model, &plan("Tuesday", &[READ]), planned.enter()?)?;
    step.end()?.end("completed")?;
    Ok(conversation.close()?)
}

fn fork(store: &Store, model: &mut Model, id: &SessionId) -> Result<Reader> {
    println!("the session is forked, and goes another way");
    let cut = store.read_session(id)?.fold().next_seq().previous().ok_or("the session is empty")?;
    let child = store.fork_session(id, cut, NewSession::new("host-fork").cwd("/project"))?;
    let mut conversation = Conversation::new(child);
    conversation.inbox().insert(Target::NextTurn, &message::user("f1", "Try it without a loop."))?;
    model.script([Scripted::Says("Then recursion it is.")]);
    turn(&mut conversation, model, &plan("Tuesday", &[READ]))?;
    conversation.close()?;
    Ok(store.read_session(&SessionId::new("host-fork").ok_or("a name")?)?)
}

/// Every request again, from the log alone.
fn prove(reader: &Reader) -> Result<()> {
    let verified = verify(reader)?;
    if let Some(mismatch) = verified.mismatches.first() {
        return Err(mismatch.to_string().into());
    }
    let audit = audit(reader)?;
    println!(
        "{}: {} events, {} requests, all as they were recorded",
        reader.id(),
        verified.events,
        verified.compared
    );
    for request in &audit.requests {
        let rebuilt = reconstruct(reader, RequestRef::Seq(Seq::new(request.seq)))?;
        assert_eq!(rebuilt.digest().to_string(), request.blake3, "reconstruction is exact");
        let causes: Vec<&str> = request.causes.iter().map(Cause::name).collect();
        let how = if request.extends { "extends".to_owned() } else { causes.join(", ") };
        println!("  {:>4}  {:>6} bytes, {:>6} kept  {how}", request.seq, request.bytes, request.kept_bytes);
    }
    for event in reader.events(Seq::FIRST..reader.fold().next_seq())? {
        let event = event?;
        if event.kind().to_string() == "compaction/start" {
            println!(
                "  summarising call at {}: {}",
                event.seq(),
                summary_input(reader, event.seq())?.digest()
            );
        }
    }
    Ok(())
}

/// Writes the log's lines, byte for byte as they were admitted.
fn export(reader: &Reader, path: &Path) -> Result<()> {
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    writeln!(out, "{}", reader.header_line().as_str())?;
    for event in reader.events(Seq::FIRST..reader.fold().next_seq())? {
        writeln!(out, "{}", event?.to_line())?;
    }
    Ok(out.flush()?)
}

fn main() -> Result<()> {
    let out = std::env::args_os().nth(1).ok_or("name the file that the log is written to")?;
    run(&PathBuf::from(out))
}

/// The whole story; writes the last session's log to `out`.
pub fn run(out: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("store");
    let mut model = Model::default();
    let id = SessionId::new("host").ok_or("a name")?;

    let store = Store::create(&path)?;
    work_then_crash(&store, &mut model)?;
    store.close()?;

    let store = Store::open(&path)?;
    resume(&store, &mut model, &id)?;
    let parent = store.read_session(&id)?;
    prove(&parent)?;
    let child = fork(&store, &mut model, &id)?;
    prove(&child)?;
    export(&child, out)?;
    println!(
        "{} requests were sent; the fork's log, which holds them all, is in {}",
        model.sent,
        out.display()
    );
    Ok(())
}

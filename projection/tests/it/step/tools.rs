//! Tool calls: permission before effect, one result each, and what a crash leaves.

use rederive_engine::{AppendError, Seq};
use rederive_projection::step::{At, Step, StepError, ToolResult, message};
use rederive_projection::verify;

use super::{Home, ask, asks_for, audited, events, plan, says, session, step, surface};

#[test]
fn tools_start_by_permission_and_are_answered_once() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let mut step = ask(&mut conversation, "1", plan()).settle(asks_for(&["c1", "c2", "c3"])).unwrap();
    let ids: Vec<String> = step.calls().unwrap().iter().map(|call| call.id().to_owned()).collect();
    assert_eq!(ids, ["c1", "c2", "c3"]);
    let mut permits = step.begin_tools(&["c1", "c2"]).unwrap();
    assert!(matches!(step.begin_tool("c1"), Err(StepError::Started { .. })));
    assert!(matches!(step.begin_tools(&["c3", "c3"]), Err(StepError::Started { .. })));
    assert!(matches!(step.begin_tool("c9"), Err(StepError::NotPending { .. })));
    let refused = step.refuse_tool("c1", ToolResult::text("no"));
    assert!(matches!(refused, Err(StepError::Started { .. })));
    step.refuse_tool("c3", ToolResult::text("not allowed").error("Denied", "PERMISSION_DENIED")).unwrap();
    step.finish_tool(permits.pop().unwrap(), ToolResult::text("two").meta("{\"ms\":3}")).unwrap();
    let StepError::Unanswered { calls } = step.end().unwrap_err() else { panic!("a call is open") };
    assert_eq!(calls, ["c1"]);
    let At::Step(mut step) = conversation.at().unwrap() else { panic!("the step is open") };
    step.finish_tool(permits.pop().unwrap(), ToolResult::text("one")).unwrap();
    let turn = step.end().unwrap();
    let attempt = turn.claim().unwrap().plan(plan()).unwrap().enter().unwrap();
    assert_eq!(attempt.request().message_count(), 6);
    attempt.settle(says("done")).unwrap().end().unwrap().end("completed").unwrap();
    assert_eq!(events(&conversation, "tool/call").len(), 2);
    assert_eq!(audited(&conversation).problems, []);
}

#[test]
fn a_result_that_comes_after_the_closers_is_refused() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let mut step = ask(&mut conversation, "1", plan()).settle(asks_for(&["c1", "c2"])).unwrap();
    let late = step.begin_tool("c1").unwrap();
    let recorded = late.recorded();
    conversation.close().unwrap(); // the process ends; the tool goes on in the background
    let mut conversation = home.open("s");
    let results = events(&conversation, "tool/result");
    assert_eq!(results.len(), 2);
    assert!(results[0].contains("TOOL_OUTCOME_UNKNOWN") && results[1].contains("TOOL_NOT_STARTED"));
    let unknown = conversation.reader().unwrap();
    let unknown = unknown.event(recorded.plus(1)).unwrap().unwrap();
    assert_eq!(unknown.source_event_seqs(), [recorded]);
    // The same id is asked for again, so the call is pending: the old permission is still no one's.
    let mut step = ask(&mut conversation, "2", plan()).settle(asks_for(&["c1"])).unwrap();
    let refused = step.finish_tool(late, ToolResult::text("late"));
    assert!(matches!(refused, Err(StepError::NotPending { call }) if call == "c1"));
    let permit = step.begin_tool("c1").unwrap();
    step.finish_tool(permit, ToolResult::text("now")).unwrap();
    step.end().unwrap().end("completed").unwrap();
    assert_eq!(audited(&conversation).problems, []);
    conversation.close().unwrap();
    // Opened again: nothing more is closed.
    let conversation = home.open("s");
    assert_eq!(events(&conversation, "tool/result").len(), 3);
}

#[test]
fn a_permission_of_another_session_is_worth_nothing_here() {
    let home = Home::new();
    let (mut one, mut other) = (home.create("one"), home.create("other"));
    let permit = ask(&mut one, "1", plan()).settle(asks_for(&["c1"])).unwrap().begin_tool("c1").unwrap();
    let mut step = ask(&mut other, "1", plan()).settle(asks_for(&["c1"])).unwrap();
    drop(step.begin_tool("c1").unwrap());
    assert!(matches!(step.finish_tool(permit, ToolResult::text("x")), Err(StepError::NotPending { .. })));
    assert_eq!(events(&other, "tool/result").len(), 0);
}

#[test]
fn answers_whose_calls_cannot_be_told_apart_are_refused() {
    let home = Home::new();
    let mut conversation = home.create("s");
    for calls in [&["c1", "c1"][..], &[""]] {
        let attempt = match conversation.at().unwrap() {
            At::Attempt(attempt) => attempt,
            At::Idle(conversation) => ask(conversation, "1", plan()),
            other => panic!("{other:?}"),
        };
        assert!(matches!(attempt.settle(asks_for(calls)), Err(StepError::Message(_))), "{calls:?}");
    }
    let At::Attempt(attempt) = conversation.at().unwrap() else { panic!("the attempt is open") };
    let wrong = message::user("x", "no answer");
    assert!(attempt.settle(rederive_projection::step::Answer::new(wrong)).is_err());
    // A rule of admission refuses it: the session is as it was.
    let At::Attempt(attempt) = conversation.at().unwrap() else { panic!("the attempt is open") };
    let nobody = r#"{"id":"a","role":"assistant","content":[]}"#;
    let refused = attempt.settle(rederive_projection::step::Answer::new(nobody));
    assert!(matches!(refused, Err(StepError::Append(AppendError::Refused(_)))));
    let before = surface(&conversation);
    let At::Attempt(attempt) = conversation.at().unwrap() else { panic!("the attempt is open") };
    let _: Step<'_> = attempt.settle(asks_for(&["c1"])).unwrap();
    assert_eq!(surface(&conversation).len(), before.len() + 1);
    assert_eq!(step(&mut conversation).calls().unwrap().len(), 1);
}

/// Field case 8: the log that a crash left, opened for writing, and read before that.
#[test]
fn a_call_without_a_result_is_closed_once() {
    let lines = concat!(
        r#"{"type":"turn/start","seq":0,"time":1700000000001,"data":{"turn":1}}"#,
        "\n",
        r#"{"type":"step/start","seq":1,"time":1700000000002,"data":{"turn":1,"step":1}}"#,
        "\n",
        r#"{"type":"system/message","seq":2,"time":1700000000003,"data":{"message":{"id":"s0","role":"system","content":[{"type":"text","text":"S"}]}},"surfaceOp":"append"}"#,
        "\n",
        r#"{"type":"user/message","seq":3,"time":1700000000004,"data":{"id":"u0","role":"user","content":[{"type":"text","text":"U"}]},"surfaceOp":"append"}"#,
        "\n",
        r#"{"type":"request/header","seq":4,"time":1700000000005,"data":{"header":{"config":{"provider":"p","model":"m"},"tools":[{"name":"t","parameters":{"type":"object"}}]},"reason":"initial"}}"#,
        "\n",
        r#"{"type":"assistant/message","seq":5,"time":1700000000006,"data":{"message":{"id":"a5","role":"assistant","source":{"kind":"model","provider":"p","model":"m"},"content":[{"type":"tool-call","id":"c1","name":"t","arguments":"{}"},{"type":"tool-call","id":"c2","name":"t","arguments":"{}"}]}},"surfaceOp":"append"}"#,
        "\n",
        r#"{"type":"tool/call","seq":6,"time":1700000000007,"data":{"turn":1,"step":1,"callId":"c1","name":"t","arguments":"{}"}}"#,
        "\n",
    );
    let home = Home::new();
    let header = "{\"type\":\"session\",\"version\":3,\"id\":\"p\",\"createdAt\":1700000000000,\"cwd\":\"/project\",\"isSeeded\":false}\n";
    home.store.import(format!("{header}{lines}").as_bytes()).unwrap();
    let shown = home.reader("p").with_closers();
    let conversation = home.open("p");
    assert_eq!(surface(&conversation), [2, 3, 5, 7, 8]);
    let shown_lines: Vec<String> =
        shown.events(Seq::FIRST..Seq::new(99)).unwrap().map(|event| event.unwrap().to_line()).collect();
    let reader = conversation.reader().unwrap();
    let closed: Vec<String> =
        reader.events(Seq::FIRST..Seq::new(99)).unwrap().map(|event| event.unwrap().to_line()).collect();
    assert_eq!(shown_lines[..], closed[..11], "a reader sees what the writer writes");
    assert_eq!(closed.len(), 12, "and the marker");
    conversation.close().unwrap();
    let mut conversation = home.open("p");
    assert_eq!(conversation.fold().unwrap().next_seq().value(), 12);
    ask(&mut conversation, "2", plan()).settle(says("ok")).unwrap().end().unwrap().end("completed").unwrap();
    assert_eq!(audited(&conversation).problems, []);
    conversation.close().unwrap();
    let reader = home.store.read_session(&session("p")).unwrap();
    assert_eq!(verify(&reader).unwrap().mismatches, []);
}

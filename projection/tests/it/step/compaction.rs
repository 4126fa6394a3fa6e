//! Compaction: a range that may go, a summary in its place, and everything else untouched.

use rederive_engine::{Seq, Target};
use rederive_projection::audit::Cause;
use rederive_projection::step::{At, CallConfig, Conversation, FailedAttempt, ToolResult, message};
use rederive_projection::upkeep::{RangeError, Summary, SummaryCall, UpkeepError, summary_input};

use super::{Home, ask, asks_for, audited, events, plan, reasons, says, surface, turn};

fn call() -> SummaryCall {
    SummaryCall::new(CallConfig::new("p", "small").set("maxTokens", "256"), "Summarise what was said.")
}

/// A turn whose answer asks for `calls` tools at once, and the answer after them.
fn turn_of_tools(conversation: &mut Conversation, id: &str, calls: usize) {
    let names: Vec<String> = (0..calls).map(|call| format!("{id}-c{call}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut step = ask(conversation, id, plan()).settle(asks_for(&names)).unwrap();
    for permit in step.begin_tools(&names).unwrap() {
        step.finish_tool(permit, ToolResult::text("result")).unwrap();
    }
    let turn = step.end().unwrap();
    let attempt = turn.claim().unwrap().plan(plan()).unwrap().enter().unwrap();
    attempt.settle(says("done")).unwrap().end().unwrap().end("completed").unwrap();
}

#[test]
fn a_compaction_is_one_replace_and_starts_a_series() {
    let home = Home::new();
    let mut conversation = home.create("s");
    turn(&mut conversation, "1", plan());
    turn(&mut conversation, "2", plan());
    let before = surface(&conversation);
    let mut upkeep = conversation.upkeep();
    let range = upkeep.oldest_exchanges(u64::MAX, &[]).unwrap().unwrap();
    assert_eq!((range.start().value(), range.end().value()), (before[1], before[4]));
    let compaction = upkeep.begin_compaction(range, call()).unwrap();
    assert_eq!(compaction.input().message_count(), 5, "four messages and the instruction");
    let input = compaction.input().clone();
    let node =
        upkeep.commit_compaction(compaction, Summary::text("sum").usage("{\"inputTokens\":9}")).unwrap();
    assert_eq!(surface(&conversation), [before[0], node.value()]);
    turn(&mut conversation, "3", plan());
    assert_eq!(reasons(&conversation), ["initial", "series"]);
    let audit = audited(&conversation);
    assert_eq!(audit.requests[2].causes, [Cause::Compaction { seq: node.value() }]);
    // The summarising call is rebuilt from the log alone.
    let reader = conversation.reader().unwrap();
    let all = reader.events(Seq::FIRST..reader.fold().next_seq()).unwrap().map(Result::unwrap);
    let start = all.into_iter().find(|event| event.kind().to_string() == "compaction/start").unwrap();
    assert_eq!(summary_input(&reader, start.seq()).unwrap().to_vec(), input.to_vec());
    assert!(start.data().contains(&input.digest().to_string()));
    assert!(matches!(summary_input(&reader, Seq::FIRST), Err(UpkeepError::NoStart { .. })));
}

/// Field case 9: a batch of parallel calls is never cut.
#[test]
fn a_range_never_parts_a_call_from_its_result() {
    for calls in [1, 2, 3, 17] {
        let home = Home::new();
        let mut conversation = home.create("s");
        for id in ["1", "2", "3"] {
            turn_of_tools(&mut conversation, id, calls);
        }
        let fold = conversation.fold().unwrap();
        let nodes: Vec<_> = fold.surface().nodes().cloned().collect();
        let upkeep = conversation.upkeep();
        let mut found = 0;
        for budget in (0..40_000).step_by(97) {
            let Some(range) = upkeep.oldest_exchanges(budget, &[]).unwrap() else { continue };
            found += 1;
            assert!(upkeep.check_range(range.start(), range.end(), &[]).is_ok(), "budget {budget}");
            let bytes: usize = nodes
                .iter()
                .filter(|node| range.start() <= node.seq() && node.seq() <= range.end())
                .map(|node| node.text().len())
                .sum();
            assert!(bytes as u64 <= budget);
        }
        assert!(found > 0);
        // Behind the prompt stand the question, the calls, their results, the answer.
        let (question, first_result, last_result) = (nodes[1].seq(), nodes[3].seq(), nodes[2 + calls].seq());
        let parted = upkeep.check_range(question, nodes[2].seq(), &[]);
        let Err(UpkeepError::Range(RangeError::PartsCall { call, node, widened })) = parted else {
            panic!("{parted:?}")
        };
        assert_eq!((call.as_str(), node), ("1-c0", first_result));
        assert_eq!(widened, Some((question, last_result)));
        assert!(upkeep.check_range(question, last_result, &[]).is_ok());
        let parted = upkeep.check_range(last_result, nodes[3 + calls].seq(), &[]);
        assert!(matches!(parted, Err(UpkeepError::Range(RangeError::PartsCall { .. }))));
    }
}

/// Field case 10 (d): the prompt and what the host names stay, round after round.
#[test]
fn the_prompt_and_named_nodes_outlive_every_compaction() {
    let home = Home::new();
    let mut conversation = home.create("s");
    turn(&mut conversation, "instructions", plan());
    let first = conversation.fold().unwrap();
    let (head, instructions) =
        (first.surface().at(0).unwrap().clone(), first.surface().at(1).unwrap().clone());
    let whole = conversation.upkeep().check_range(head.seq(), instructions.seq(), &[]);
    assert!(matches!(whole, Err(UpkeepError::Range(RangeError::SystemHead { seq })) if seq == head.seq()));
    let keep = [instructions.seq()];
    let named = conversation.upkeep().check_range(instructions.seq(), instructions.seq(), &keep);
    assert!(matches!(named, Err(UpkeepError::Range(RangeError::Kept { seq })) if seq == keep[0]));
    for round in 0..5 {
        turn(&mut conversation, &format!("q{round}"), plan());
        let mut upkeep = conversation.upkeep();
        let range = upkeep.oldest_exchanges(u64::MAX, &keep).unwrap().unwrap();
        assert!(range.start() > instructions.seq());
        let compaction = upkeep.begin_compaction(range, call()).unwrap();
        upkeep.commit_compaction(compaction, Summary::text("sum")).unwrap();
        let fold = conversation.fold().unwrap();
        assert_eq!(fold.surface().at(0).unwrap().text(), head.text());
        assert_eq!(fold.surface().at(1).unwrap().text(), instructions.text());
        assert_eq!(fold.surface().len(), 3);
    }
    assert_eq!(audited(&conversation).problems, []);
}

/// Field case 10 (a) and (b): what comes meanwhile stays, and what changed meanwhile refuses the end.
#[test]
fn what_happens_during_a_compaction_is_not_lost() {
    let home = Home::new();
    let mut conversation = home.create("s");
    turn(&mut conversation, "1", plan());
    let mut upkeep = conversation.upkeep();
    let range = upkeep.oldest_exchanges(u64::MAX, &[]).unwrap().unwrap();
    let compaction = upkeep.begin_compaction(range, call()).unwrap();
    turn(&mut conversation, "typed-while-summarising", plan());
    let node = conversation.upkeep().commit_compaction(compaction, Summary::text("sum")).unwrap();
    let nodes = surface(&conversation);
    assert_eq!((nodes.len(), nodes[1]), (4, node.value()), "the later turn stands behind the summary");

    let mut conversation = home.create("t");
    turn_of_tools(&mut conversation, "1", 1);
    let mut upkeep = conversation.upkeep();
    let range = upkeep.oldest_exchanges(u64::MAX, &[]).unwrap().unwrap();
    let compaction = upkeep.begin_compaction(range, call()).unwrap();
    let result = surface(&conversation)[3];
    conversation.upkeep().prune(Seq::new(result), "[pruned]").unwrap();
    let before = surface(&conversation);
    let refused = conversation.upkeep().commit_compaction(compaction, Summary::text("sum"));
    assert!(matches!(refused, Err(UpkeepError::Changed { .. })));
    assert_eq!(surface(&conversation), before);
    // Given up: the unmatched start means nothing, now and in the next lifetime.
    conversation.close().unwrap();
    let mut conversation = home.open("t");
    assert_eq!(surface(&conversation), before);
    turn(&mut conversation, "2", plan());
    assert_eq!(events(&conversation, "compaction/end").len(), 0);
    audited(&conversation);
}

#[test]
fn a_compaction_in_the_middle_of_a_step_lets_the_step_go_on() {
    let home = Home::new();
    let mut conversation = home.create("s");
    turn_of_tools(&mut conversation, "1", 2);
    let attempt = ask(&mut conversation, "2", plan());
    let mut failed = attempt.fail(FailedAttempt::new("CONTEXT_WINDOW_EXCEEDED", "too long")).unwrap();
    let mut upkeep = failed.upkeep();
    let range = upkeep.oldest_exchanges(u64::MAX, &[]).unwrap().unwrap();
    let compaction = upkeep.begin_compaction(range, call()).unwrap();
    upkeep.commit_compaction(compaction, Summary::text("sum")).unwrap();
    let attempt = failed.retry(&plan()).unwrap();
    assert_eq!(attempt.request().message_count(), 3, "prompt, summary, question");
    attempt.settle(says("ok")).unwrap().end().unwrap().end("completed").unwrap();
    assert_eq!(reasons(&conversation), ["initial", "series"]);
    assert_eq!(events(&conversation, "step/start").len(), 3);
    assert_eq!(audited(&conversation).problems, []);
}

#[test]
fn pending_calls_and_blank_summaries_are_refused() {
    let home = Home::new();
    let mut conversation = home.create("s");
    turn(&mut conversation, "1", plan());
    let mut step = ask(&mut conversation, "2", plan()).settle(asks_for(&["c1"])).unwrap();
    let permit = step.begin_tool("c1").unwrap();
    let nodes: Vec<Seq> = surface(&conversation).into_iter().map(Seq::new).collect();
    let pending = conversation.upkeep().check_range(nodes[1], nodes[4], &[]);
    assert!(matches!(pending, Err(UpkeepError::Range(RangeError::Pending { .. }))), "{pending:?}");
    let backwards = conversation.upkeep().check_range(nodes[3], nodes[1], &[]);
    assert!(matches!(backwards, Err(UpkeepError::Range(RangeError::NoRange { .. }))));
    let mut upkeep = conversation.upkeep();
    let range = upkeep.oldest_exchanges(u64::MAX, &[]).unwrap().unwrap();
    assert_eq!(range.end(), nodes[2], "what is complete");
    let compaction = upkeep.begin_compaction(range, call()).unwrap();
    let blank = upkeep.commit_compaction(compaction, Summary::text(" "));
    assert!(matches!(blank, Err(UpkeepError::BlankSummary)));
    let mut other = home.create("other");
    turn(&mut other, "1", plan());
    let compaction = conversation.upkeep().begin_compaction(range, call()).unwrap();
    let refused = other.upkeep().commit_compaction(compaction, Summary::text("sum"));
    assert!(matches!(refused, Err(UpkeepError::OtherSession { session }) if session == "s"));
    let At::Step(mut step) = conversation.at().unwrap() else { panic!("the step is open") };
    step.finish_tool(permit, ToolResult::text("one")).unwrap();
    step.end().unwrap().end("completed").unwrap();
    conversation.inbox().insert(Target::NextTurn, &message::user("3", "go on")).unwrap();
    audited(&conversation);
}

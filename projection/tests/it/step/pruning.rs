//! Pruning: one tool result is trimmed, the audit says what that cost.

use rederive_engine::Seq;
use rederive_projection::audit::Cause;
use rederive_projection::step::{Conversation, ToolResult};
use rederive_projection::upkeep::UpkeepError;

use super::{Home, ask, asks_for, audited, events, plan, reasons, says, surface, turn};

/// A turn whose answer asks for `count` tools at once; gives the seqs of their results.
fn turn_of_tools(conversation: &mut Conversation, count: usize) -> Vec<Seq> {
    let calls: Vec<String> = (0..count).map(|call| format!("c{call}")).collect();
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    let mut step = ask(conversation, "0", plan()).settle(asks_for(&calls)).unwrap();
    for permit in step.begin_tools(&calls).unwrap() {
        step.finish_tool(permit, ToolResult::text(&"long output ".repeat(20)).meta("{\"kept\":1.0}"))
            .unwrap();
    }
    let turn = step.end().unwrap();
    let attempt = turn.claim().unwrap().plan(plan()).unwrap().enter().unwrap();
    attempt.settle(says("seen")).unwrap().end().unwrap().end("completed").unwrap();
    // Behind the prompt, the question and the calls.
    surface(conversation)[3..3 + count].iter().copied().map(Seq::new).collect()
}

/// Field case 14, through the protocol.
#[test]
fn one_prune_is_one_break_and_then_requests_extend_again() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let result = turn_of_tools(&mut conversation, 1)[0];
    let node = conversation.upkeep().prune(result, "[pruned]").unwrap();
    for id in 2..22 {
        turn(&mut conversation, &id.to_string(), plan());
    }
    let audit = audited(&conversation);
    assert_eq!(audit.summary.breaks, 1);
    let broken = &audit.requests[2];
    assert_eq!(broken.causes, [Cause::Pruning { seq: node.value() }]);
    assert!(broken.kept_bytes > 0 && !broken.extends);
    assert!(audit.requests[3..].iter().all(|request| request.extends));
    assert_eq!(reasons(&conversation), ["initial", "series"]);
    assert_eq!(events(&conversation, "compaction/prune").len(), 1);
    // Everything but the content is as it was.
    let rewritten = events(&conversation, "tool/result").pop().unwrap();
    assert!(rewritten.contains("[pruned]") && rewritten.contains("\"kept\":1.0"));
}

#[test]
fn a_habit_of_pruning_is_shown_with_what_it_costs() {
    let home = Home::new();
    let mut conversation = home.create("s");
    for (index, result) in turn_of_tools(&mut conversation, 20).into_iter().enumerate() {
        conversation.upkeep().prune(result, "[pruned]").unwrap();
        turn(&mut conversation, &format!("q{index}"), plan());
    }
    let audit = audited(&conversation);
    assert_eq!(audit.summary.breaks, 20);
    let causes: Vec<_> = audit.summary.by_cause.iter().map(|sum| (sum.cause, sum.breaks)).collect();
    assert_eq!(causes, [("pruning", 20)]);
    assert_eq!(audit.summary.habits.len(), 1, "{:?}", audit.summary.habits);
    assert!(audit.summary.lost_bytes > 0);
}

#[test]
fn only_a_tool_result_of_the_surface_is_pruned() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let result = turn_of_tools(&mut conversation, 1)[0];
    let nodes = surface(&conversation);
    for seq in [nodes[0], nodes[1], nodes[2], 0, 999] {
        let refused = conversation.upkeep().prune(Seq::new(seq), "x");
        assert!(matches!(refused, Err(UpkeepError::NoToolResult { .. })), "{seq}");
    }
    conversation.upkeep().prune(result, "[pruned]").unwrap();
    let again = conversation.upkeep().prune(result, "[pruned]");
    assert!(matches!(again, Err(UpkeepError::NoToolResult { .. })), "it has left the surface");
}

/// The inbox belongs to other threads, which append between any two looks at the log.
#[test]
fn a_prune_names_its_node_while_messages_come_in() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let results = turn_of_tools(&mut conversation, 40);
    let inbox = conversation.inbox();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for nth in 0.. {
                let message = rederive_projection::step::message::user(&format!("n{nth}"), "note");
                inbox.insert(rederive_engine::Target::NextStep, &message).unwrap();
                inbox.remove(&format!("n{nth}")).unwrap();
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
            }
        });
        let mut lost = Vec::new();
        for result in results {
            let node = conversation.upkeep().prune(result, "[pruned]").unwrap();
            if conversation.fold().unwrap().surface().get(node).is_none() {
                lost.push(node);
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(lost, [], "nodes that are not on the surface");
    });
}

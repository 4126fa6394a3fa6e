//! Header reasons, series, and equality by value.

use rederive_projection::audit::Cause;
use rederive_projection::step::{At, CallConfig, Failed, FailedAttempt, Plan, StepError, Turn};

use super::{Home, ask, audited, events, extends, plan, reasons, says, turn};

#[test]
fn a_header_is_written_when_it_is_owed_and_says_why() {
    let home = Home::new();
    let mut conversation = home.create("s");
    turn(&mut conversation, "1", plan());
    turn(&mut conversation, "2", plan());
    assert_eq!(reasons(&conversation), ["initial"]);
    let tool = r#"{"name":"t","parameters":{"type":"object"}}"#;
    turn(&mut conversation, "3", plan().tools([tool]));
    let other = Plan::new("Be brief.", CallConfig::new("p", "m2")).tools([tool]);
    turn(&mut conversation, "4", other.clone());
    assert_eq!(reasons(&conversation), ["initial", "change", "change"]);
    conversation.close().unwrap();
    let mut conversation = home.open("s");
    let resumed = turn(&mut conversation, "5", other.clone());
    turn(&mut conversation, "6", other.clone());
    assert_eq!(reasons(&conversation)[3..], ["resume"]);
    assert!(resumed.header().text().contains("m2"));
    let audit = audited(&conversation);
    let causes: Vec<Vec<Cause>> = audit.requests.iter().map(|request| request.causes.clone()).collect();
    assert_eq!(causes[2], [Cause::ToolAdded { tool: "t".into() }]);
    assert_eq!(causes[3], [Cause::ConfigChanged { field: "config.model".into() }]);
    assert!(audit.requests[4].extends && audit.requests[4].process_boundary);
    assert!(audit.requests[5].extends);
    assert_eq!(events(&conversation, "request/context").len(), 2);
}

#[test]
fn a_declared_series_and_a_rewritten_surface_are_said() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let inbox = conversation.inbox();
    turn(&mut conversation, "1", plan());
    let declare = |conversation: &mut rederive_projection::step::Conversation, id: &str, plan: Plan| {
        let message = rederive_projection::step::message::user(id, "again");
        conversation.inbox().insert(rederive_engine::Target::NextTurn, &message).unwrap();
        let planned = conversation.begin_turn().unwrap().claim().unwrap().plan(plan).unwrap();
        let attempt = planned.starting_series().enter().unwrap();
        attempt.settle(says("ok")).unwrap().end().unwrap().end("completed").unwrap();
    };
    declare(&mut conversation, "2", plan());
    let changed = plan().tools([r#"{"name":"t"}"#]);
    declare(&mut conversation, "3", changed.clone());
    assert_eq!(reasons(&conversation), ["initial", "series", "change+series"]);
    // A prompt rewritten at the head starts a series as well.
    let rewritten = Plan::new("Be long.", CallConfig::new("p", "m")).tools([r#"{"name":"t"}"#]);
    turn(&mut conversation, "4", rewritten.clone());
    assert_eq!(reasons(&conversation)[3..], ["series"]);
    conversation.close().unwrap();
    let mut conversation = home.open("s");
    declare(&mut conversation, "5", rewritten);
    assert_eq!(reasons(&conversation)[4..], ["resume+series"]);
    assert!(matches!(inbox.remove("1"), Err(StepError::Closed)));
}

/// A permutation of `items` that depends on `seed` alone.
fn shuffled<T: Clone>(items: &[T], seed: u64) -> Vec<T> {
    let mut items = items.to_vec();
    let mut state = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    for index in (1..items.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        items.swap(index, (state >> 33) as usize % (index + 1));
    }
    items
}

fn object(members: &[String], seed: u64) -> String {
    format!("{{{}}}", shuffled(members, seed).join(","))
}

/// Twelve tools of six properties, with the keys of every object in an order of `seed`.
fn tools(seed: u64) -> Vec<String> {
    (0..12)
        .map(|tool| {
            let properties: Vec<String> = (0..6)
                .map(|property| {
                    let members = [r#""type":"string""#.to_owned(), format!("\"maxLength\":{property}")];
                    format!("\"property{property}\":{}", object(&members, seed + property))
                })
                .collect();
            let parameters =
                [r#""type":"object""#.to_owned(), format!("\"properties\":{}", object(&properties, seed))];
            let members = [
                format!("\"name\":\"tool{tool}\""),
                format!("\"parameters\":{}", object(&parameters, seed + 1)),
            ];
            object(&members, seed + tool)
        })
        .collect()
}

#[test]
fn keys_in_another_order_never_reach_the_bytes() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let mut earlier = turn(&mut conversation, "0", plan().tools(tools(0)));
    for seed in 1..40 {
        assert_ne!(tools(seed), tools(0));
        let request = turn(&mut conversation, &seed.to_string(), plan().tools(tools(seed)));
        assert!(extends(&request, &earlier), "step {seed}");
        earlier = request;
    }
    assert_eq!(reasons(&conversation), ["initial"]);
    let audit = audited(&conversation);
    assert_eq!((audit.requests.len(), audit.summary.breaks), (40, 0));
}

#[test]
fn numbers_are_equal_by_value_and_the_order_of_tools_counts() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let (a, b) = (r#"{"name":"a","limit":1}"#, r#"{"name":"b"}"#);
    turn(&mut conversation, "1", plan().tools([a, b]));
    turn(&mut conversation, "2", plan().tools([r#"{"name":"a","limit":1.0}"#, b]));
    assert_eq!(reasons(&conversation), ["initial"], "1 and 1.0 are one value");
    turn(&mut conversation, "3", plan().tools([b, a]));
    assert_eq!(reasons(&conversation), ["initial", "change"]);
    let audit = audited(&conversation);
    assert_eq!(audit.requests[2].causes, [Cause::ToolsReordered]);
    assert_eq!(audit.summary.breaks, 1);
    for bad in
        [vec!["[]"], vec![r#"{"description":"no name"}"#], vec![a, a], vec![r#"{"name":"c"},{"name":"c"}"#]]
    {
        let turn = conversation.begin_turn().unwrap();
        let refused = turn.claim().unwrap().plan(plan().tools(bad)).map(|_| ());
        assert!(matches!(refused, Err(StepError::Tool { .. })));
        let At::Turn(turn) = conversation.at().unwrap() else { panic!("the turn is open") };
        turn.end("cancelled").unwrap();
    }
}

#[test]
fn what_an_adapter_brought_is_no_setting_of_the_host() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let config = CallConfig::new("p", "m").set("temperature", "0.20");
    let first = Plan::new("S", config.clone()).adapter_default("maxTokens", "8192");
    assert_eq!(conversation.config_seed().unwrap(), None);
    let request = turn(&mut conversation, "1", first);
    assert_eq!(
        request.header().text(),
        r#"{"config":{"provider":"p","model":"m","temperature":0.20,"maxTokens":8192},"adapterDefaults":{"maxTokens":true}}"#
    );
    conversation.close().unwrap();
    let mut conversation = home.open("s");
    let seed = conversation.config_seed().unwrap().unwrap();
    assert_eq!(seed, config);
    // The adapter's next release brings another default: a change that is the adapter's.
    let next = Plan::new("S", seed.clone()).adapter_default("maxTokens", "16384");
    assert!(turn(&mut conversation, "2", next).header().text().contains("16384"));
    // The host sets it itself: no default any more.
    let own = Plan::new("S", seed.set("maxTokens", "4096")).adapter_default("maxTokens", "16384");
    let request = turn(&mut conversation, "3", own);
    assert!(request.header().text().contains("4096") && !request.header().text().contains("adapterDefaults"));
    assert_eq!(reasons(&conversation), ["initial", "resume", "change"]);
    assert!(conversation.config_seed().unwrap().unwrap().get("maxTokens").is_some());
}

#[test]
fn a_retry_stays_in_its_step_and_is_dispatched_again() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let attempt = ask(&mut conversation, "1", plan());
    let first = attempt.request().clone();
    let failed = attempt.fail(FailedAttempt::new("RATE_LIMIT", "later")).unwrap();
    let second = failed.retry(&plan()).unwrap();
    assert_eq!(second.request(), &first);
    let failed = second.fail(FailedAttempt::new("SERVER", "down").usage(r#"{"inputTokens":3}"#)).unwrap();
    let third = failed.retry(&Plan::new("Be brief.", CallConfig::new("p", "fallback"))).unwrap();
    assert_ne!(third.request(), &first);
    third.settle(says("ok")).unwrap().end().unwrap().end("completed").unwrap();
    assert_eq!(events(&conversation, "step/start").len(), 1);
    assert_eq!(events(&conversation, "request/dispatch").len(), 3);
    assert_eq!(reasons(&conversation), ["initial", "change"]);
    let reader = conversation.reader().unwrap();
    let by_step = |attempt| {
        let name = format!("1.1.{attempt}").parse().unwrap();
        rederive_projection::reconstruct(&reader, name).unwrap().digest()
    };
    assert_eq!((by_step(1), by_step(2)), (first.digest(), first.digest()));
    assert_ne!(by_step(3), first.digest());
    let audit = audited(&conversation);
    assert_eq!(audit.requests.len(), 3);
}

#[test]
fn a_state_is_found_again_after_it_was_dropped() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let digest = ask(&mut conversation, "1", plan()).request().digest();
    let At::Attempt(attempt) = conversation.at().unwrap() else { panic!("an attempt is open") };
    assert_eq!(attempt.request().digest(), digest);
    assert!(matches!(conversation.begin_turn(), Err(StepError::TurnOpen { turn: 1 })));
    let At::Attempt(attempt) = conversation.at().unwrap() else { panic!("an attempt is open") };
    let _: Failed<'_> = attempt.fail(FailedAttempt::new("SERVER", "down")).unwrap();
    let At::Failed(failed) = conversation.at().unwrap() else { panic!("the attempt failed") };
    let _: Turn<'_> = failed.give_up().unwrap();
    let At::Turn(turn) = conversation.at().unwrap() else { panic!("the turn is open") };
    turn.end("failed").unwrap();
    assert!(matches!(conversation.at().unwrap(), At::Idle(_)));
}

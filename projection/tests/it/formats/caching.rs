//! Cache plans: the next request reaches what this one wrote, and each miss has its reason.

use proptest::prelude::*;
use rederive_projection::formats::cache::{Context, Footprint, check_reach, expected_cached};
use rederive_projection::formats::{BodyOptions, Format, body};

use super::sample::{Objects, Sample, Step, conversation, header, lay_out, route};

fn footprint(sample: &Sample, format: Format) -> Footprint {
    Footprint::of(sample, &BodyOptions::new(format), &Objects).unwrap()
}

fn check_plan(steps: &[Step], format: Format) {
    let (sample, cuts) = lay_out(steps, format);
    let requests: Vec<Footprint> = cuts.iter().map(|cut| footprint(&sample.first(*cut), format)).collect();
    check_reach(&requests).unwrap();
    for (request, cut) in requests.iter().zip(&cuts) {
        let body = body(&sample.first(*cut), &BodyOptions::new(format), &Objects).unwrap();
        assert_eq!(body.breakpoints(), request.breakpoints().len());
        assert!((1..=4).contains(&body.breakpoints()));
        let tools = request.segments().iter().filter(|segment| segment.seq.is_none()).count();
        assert!(
            request.breakpoints().iter().all(|point| tools <= *point && *point <= request.segments().len())
        );
    }
    for pair in requests.windows(2) {
        let expected = expected_cached(Some(&pair[0]), &pair[1], Context::default());
        assert!(*pair[0].breakpoints().last().unwrap() <= expected.segments);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_next_request_reaches_what_this_one_wrote(steps in conversation()) {
        check_plan(&steps, Format::Anthropic);
        check_plan(&steps, Format::OpenAiChat);
        check_plan(&steps, Format::OpenAiResponses);
    }
}

fn text(role: &str, text: &str) -> String {
    format!(r#"{{"role":"{role}","content":[{{"type":"text","text":"{text}"}}]}}"#)
}

/// A turn of `calls` parallel calls with their results.
fn turn(name: &str, calls: usize) -> Vec<String> {
    let blocks: Vec<String> = (0..calls)
        .map(|n| format!(r#"{{"type":"tool-call","id":"{name}{n}","name":"t","arguments":"{{}}"}}"#))
        .collect();
    let mut turn = vec![format!(
        r#"{{"role":"assistant","source":{{"kind":"model","provider":"p","model":"m"}},"content":[{}]}}"#,
        blocks.join(",")
    )];
    turn.extend((0..calls).map(|n| {
        format!(r#"{{"role":"user","content":[{{"type":"tool-result","toolCallId":"{name}{n}","content":[{{"type":"text","text":"r"}}]}}]}}"#)
    }));
    turn
}

fn base(format: Format) -> Sample {
    let system = text("system", &"Be brief. ".repeat(1_600));
    Sample::new(&header(format), &[&system, &text("user", "hello")])
}

fn grown(mut sample: Sample, messages: Vec<String>) -> Sample {
    for message in messages {
        sample.messages.push((sample.messages.last().unwrap().0 + 1, message));
    }
    sample
}

#[test]
fn a_turn_of_forty_calls_is_reached() {
    let first = base(Format::Anthropic);
    let second = grown(first.clone(), turn("a", 40));
    let third = grown(second.clone(), turn("b", 40));
    let requests = [&first, &second, &third].map(|request| footprint(request, Format::Anthropic));
    check_reach(&requests).unwrap();
    for pair in requests.windows(2) {
        let expected = expected_cached(Some(&pair[0]), &pair[1], Context::default());
        assert_eq!((expected.segments, expected.miss), (pair[0].segments().len(), None));
    }
}

#[track_caller]
fn check_miss(
    format: Format,
    before: &Sample,
    after: &Sample,
    context: Context,
    name: &str,
    segments: usize,
) {
    let (before, after) = (footprint(before, format), footprint(after, format));
    let expected = expected_cached(Some(&before), &after, context);
    let miss = expected.miss.as_ref().map_or("none", |miss| miss.name());
    assert_eq!((miss, expected.segments), (name, segments), "{expected:?}");
}

#[test]
fn each_miss_has_its_reason() {
    let format = Format::Anthropic;
    let first = grown(base(format), vec![text("assistant", "a"), text("user", "b")]);
    let next = grown(first.clone(), vec![text("assistant", "c"), text("user", "d")]);
    let none = Context::default();
    let with = |from: &str, to: &str| {
        let mut changed = next.clone();
        changed.header = changed.header.replace(from, to);
        assert_ne!(changed.header, next.header);
        changed
    };
    check_miss(format, &first, &next, none, "none", 5);
    check_miss(format, &first, &with(route(format).1, "claude-opus-4-7"), none, "model_changed", 0);
    check_miss(format, &first, &with("does it", "does that"), none, "tools_changed", 0);
    check_miss(
        format,
        &first,
        &with("\"maxTokens\"", "\"reasoningEffort\":\"high\",\"maxTokens\""),
        none,
        "tier_parameter_changed",
        2,
    );

    let mut other_system = next.clone();
    other_system.messages[0].1 = other_system.messages[0].1.replacen("brief", "kind", 1);
    check_miss(format, &first, &other_system, none, "system_changed", 0);
    let mut other_text = next.clone();
    other_text.messages[2].1 = text("assistant", "A");
    check_miss(format, &first, &other_text, none, "messages_changed", 3);
    check_miss(format, &first, &other_text, Context { replaced: true, ..none }, "surface_replace", 3);
    check_miss(format, &first, &other_text, Context { reopened: true, ..none }, "restart_drift", 3);
    check_miss(format, &first, &next, Context { gap_ms: Some(300_001), ..none }, "expired", 0);
    check_miss(format, &first, &next, Context { gap_ms: Some(300_001), hour: true, ..none }, "none", 5);
    check_miss(format, &first, &next, Context { parallel: true, ..none }, "cold_parallel", 0);

    let far = [turn("a", 40), turn("b", 40), turn("c", 40)].concat();
    check_miss(format, &first, &grown(first.clone(), far), none, "lookback_exceeded", 2);
    let short = Sample::new(&header(format), &[&text("user", "hello")]);
    check_miss(
        format,
        &short,
        &grown(short.clone(), vec![text("assistant", "a"), text("user", "b")]),
        none,
        "below_minimum",
        0,
    );
    let expected = expected_cached(None, &footprint(&first, format), none);
    assert_eq!(expected.miss.unwrap().name(), "previous_not_found");
}

#[test]
fn another_image_and_an_unexplained_miss_have_their_names() {
    let format = Format::Anthropic;
    let image = r#"{"role":"user","content":[{"type":"image","attachment":{"mediaType":"image/png"}}]}"#;
    let first = grown(base(format), vec![text("assistant", "a"), image.to_owned()]);
    let mut next = first.clone();
    next.messages[3].1 = image.replace("image/png", "image/webp");
    check_miss(format, &first, &next, Context::default(), "image_variant_changed", 3);

    let (first, next) =
        (footprint(&first, format), footprint(&grown(first, vec![text("user", "b")]), format));
    let expected = expected_cached(Some(&first), &next, Context::default());
    assert_eq!(expected.judge(expected.tokens / 2), None);
    assert_eq!(expected.judge(0).unwrap().name(), "unexplained");
}

#[test]
fn implicit_caches_have_their_own_reasons() {
    let none = Context::default();
    let format = Format::OpenAiChat;
    let first = base(format);
    let next = grown(first.clone(), vec![text("assistant", "c"), text("user", "d")]);
    let moved = Sample { tree: "tree-2".to_owned(), ..next.clone() };
    check_miss(format, &first, &moved, none, "routing", 0);

    let deepseek = r#"{"config":{"provider":"deepseek-official","model":"deepseek-v4"}}"#;
    let first = Sample { header: deepseek.to_owned(), ..first };
    let next = Sample { header: deepseek.to_owned(), ..next };
    check_miss(format, &first, &next, none, "none", 2);
    // `A+B`, then `A+C`: the common part is no unit.
    let mut branch = first.clone();
    branch.messages[1].1 = text("user", "other");
    check_miss(format, &first, &branch, none, "unit_not_aligned", 0);
    let unknown = Sample { header: deepseek.replace("deepseek", "x"), ..first.clone() };
    check_miss(Format::Canonical, &unknown, &unknown, none, "unavailable", 0);
}

#[test]
fn breakpoints_stay_off_where_the_prefix_is_surely_too_short_or_nobody_wants_them() {
    let format = Format::Anthropic;
    let short = Sample::new(&header(format), &[&text("user", "hello")]);
    let options = BodyOptions::new(format);
    assert_eq!(body(&short, &options, &Objects).unwrap().breakpoints(), 0);
    let long = base(format);
    assert_eq!(body(&long, &options, &Objects).unwrap().breakpoints(), 2);
    assert_eq!(body(&long, &options.clone().breakpoints(false), &Objects).unwrap().breakpoints(), 0);
    let ignored = Sample { header: long.header.replace("\"anthropic\"", "\"deepseek-messages\""), ..long };
    assert_eq!(body(&ignored, &options, &Objects).unwrap().breakpoints(), 0);
}

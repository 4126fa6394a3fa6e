//! What a provider's cache should have given, and bodies that are made again from their record.

use rederive_engine::{Reader, Store};
use rederive_projection::audit::{Audit, ProviderView, audit_with};
use rederive_projection::formats::{BodyOptions, Format, NoObjects};
use rederive_projection::step::{Answer, CallConfig, Conversation, Plan, message};
use rederive_projection::{Mismatch, verify, verify_with_bodies};

use crate::step::{Home, turn};

/// A prompt over every provider's minimum.
fn plan(provider: &str, model: &str) -> Plan {
    Plan::new("You mend code. ".repeat(3_000), CallConfig::new(provider, model)).tools([
        r#"{"name":"a","parameters":{"type":"object"}}"#,
        r#"{"name":"b","parameters":{"type":"object"}}"#,
    ])
}

fn reader(conversation: &Conversation) -> Reader {
    conversation.reader().unwrap()
}

fn audit(conversation: &Conversation, format: Format) -> Audit {
    let prices = serde_json::from_str(
        r#"{"date":"2026-12-01","prices":[{"model":"*","input":3000000,"cache_read":300000,"cache_write":3750000,"output":15000000}]}"#,
    );
    let view = ProviderView::new(BodyOptions::new(format), "s", &NoObjects).prices(prices.unwrap());
    audit_with(&reader(conversation), &view).unwrap()
}

fn reasons(audit: &Audit) -> Vec<Option<&'static str>> {
    audit.requests.iter().map(|request| request.cache.as_ref().unwrap().miss).collect()
}

/// A turn whose provider reports `input` tokens, `read` of them from its cache.
fn reported(conversation: &mut Conversation, id: &str, plan: Plan, input: u64, read: u64) {
    let attempt = crate::step::ask(conversation, id, plan);
    let usage = format!(r#"{{"inputTokens":{input},"outputTokens":10,"cacheReadTokens":{read}}}"#);
    let said = message::assistant("a", "p", "m", &[message::text_block("answer")]);
    attempt.settle(Answer::new(said).usage(usage)).unwrap().end().unwrap().end("completed").unwrap();
}

#[test]
fn each_request_says_what_the_cache_should_have_given_and_why_not() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let (provider, model) = ("anthropic", "claude-sonnet-4-5");
    reported(&mut conversation, "1", plan(provider, model), 12_000, 0);
    reported(&mut conversation, "2", plan(provider, model), 12_100, 12_000);
    let swapped = plan(provider, model).tools([
        r#"{"name":"b","parameters":{"type":"object"}}"#,
        r#"{"name":"a","parameters":{"type":"object"}}"#,
    ]);
    reported(&mut conversation, "3", swapped.clone(), 12_200, 0);
    reported(&mut conversation, "4", swapped.clone(), 12_300, 5);
    let audit = audit(&conversation, Format::Anthropic);
    assert_eq!(
        reasons(&audit),
        [Some("previous_not_found"), None, Some("tools_changed"), Some("unexplained")]
    );
    let caches: Vec<_> = audit.requests.iter().map(|request| request.cache.clone().unwrap()).collect();
    assert_eq!((caches[0].expected_tokens, caches[2].expected_tokens), (0, 0));
    assert!(caches[1].expected_tokens > 10_000);
    assert_eq!(caches[1].segments, caches[0].segments + 2, "an answer and a question more");
    assert_eq!(caches[1].expected_segments, caches[0].segments);
    // 100 fresh tokens, 12,000 read, 10 written by the model.
    assert_eq!(
        caches[1].cost_micros,
        Some((100 * 3_000_000 + 12_000 * 300_000 + 10 * 15_000_000) / 1_000_000)
    );
}

#[test]
fn a_request_without_a_body_says_so() {
    let home = Home::new();
    let mut conversation = home.create("s");
    turn(&mut conversation, "1", plan("openai", "gpt-5"));
    let odd = r#"{"id":"odd","role":"user","content":[{"type":"hologram"}]}"#;
    conversation.inbox().insert(rederive_engine::Target::NextStep, odd).unwrap();
    turn(&mut conversation, "2", plan("openai", "gpt-5"));
    let audit = audit(&conversation, Format::OpenAiChat);
    let caches: Vec<_> = audit.requests.iter().map(|request| request.cache.clone().unwrap()).collect();
    assert_eq!((caches.len(), &caches[0].error), (2, &None));
    assert!(caches[1].error.as_ref().unwrap().contains("hologram"), "{caches:?}");
}

#[test]
fn bodies_are_made_again_from_their_record() {
    for format in [Format::Anthropic, Format::OpenAiChat, Format::OpenAiResponses, Format::Gemini] {
        let home = Home::new();
        let mut conversation = home.create("s");
        for id in ["1", "2", "3"] {
            turn(&mut conversation, id, plan("p", "m").wire(BodyOptions::new(format)));
        }
        turn(&mut conversation, "4", plan("p", "m"));
        let verified = verify_with_bodies(&reader(&conversation), "s", &NoObjects).unwrap();
        assert_eq!((verified.compared, verified.bodies), (4, 3), "{format}");
        assert_eq!(verified.mismatches, [], "{format}");
        // Another tree has another cache key, where the format sends one.
        let other = verify_with_bodies(&reader(&conversation), "t", &NoObjects).unwrap();
        let sends_key = other.mismatches.len() == 3;
        assert!(sends_key || other.mismatches.is_empty(), "{format}: {:?}", other.mismatches);
    }
}

#[test]
fn a_wrong_record_is_found_at_its_dispatch() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(folder.path().join("store")).unwrap();
    let mut conversation =
        Conversation::new(store.create_session(rederive_engine::NewSession::new("s")).unwrap());
    turn(&mut conversation, "1", plan("p", "m").wire(BodyOptions::new(Format::OpenAiChat)));
    conversation.close().unwrap();
    let right = store.read_session(&crate::step::session("s")).unwrap();
    let text: Vec<String> = right
        .events(rederive_engine::Seq::FIRST..right.fold().next_seq())
        .unwrap()
        .map(|event| event.unwrap().to_line())
        .collect();
    let header = right.header_line().as_str().replace("\"s\"", "\"t\"");
    let at = text.iter().position(|line| line.contains("request/dispatch")).unwrap();
    for (old, new, bodies) in [
        ("\"wire\":{\"format\":\"openai-chat\"", "\"wire\":{\"format\":\"gemini\"", 1),
        (
            "\"wire\":{\"format\":\"openai-chat\",\"version\":1",
            "\"wire\":{\"format\":\"openai-chat\",\"version\":9",
            1,
        ),
        ("\"wire\":{\"format\"", "\"wire\":{\"shape\"", 1),
    ] {
        let mut lines = text.clone();
        lines[at] = lines[at].replace(old, new);
        assert_ne!(lines[at], text[at]);
        let log = format!("{header}\n{}\n", lines.join("\n"));
        let imported = store.import(log.as_bytes()).unwrap();
        let wrong = store.read_session(imported.id()).unwrap();
        assert_eq!(verify(&wrong).unwrap().mismatches, [], "the canonical digest is right");
        let verified = verify_with_bodies(&wrong, "s", &NoObjects).unwrap();
        assert_eq!(verified.bodies, bodies);
        assert!(matches!(verified.mismatches[..], [Mismatch::Body { seq, .. }] if seq.value() == at as u64));
        store.delete_session(imported.id()).unwrap();
    }
}

/// The summarising call's digest is held as well.
#[test]
fn a_wrong_summary_input_is_found() {
    use rederive_projection::upkeep::{Summary, SummaryCall};
    let home = Home::new();
    let mut conversation = home.create("s");
    turn(&mut conversation, "1", plan("p", "m"));
    let mut upkeep = conversation.upkeep();
    let range = upkeep.oldest_exchanges(u64::MAX, &[]).unwrap().unwrap();
    let call = SummaryCall::new(CallConfig::new("p", "small"), "Summarise.");
    let compaction = upkeep.begin_compaction(range, call).unwrap();
    upkeep.commit_compaction(compaction, Summary::text("sum")).unwrap();
    let right = reader(&conversation);
    assert_eq!(verify(&right).unwrap().mismatches, []);
    let lines: Vec<String> = right
        .events(rederive_engine::Seq::FIRST..right.fold().next_seq())
        .unwrap()
        .map(|event| event.unwrap().to_line().replace("\"Summarise.\"", "\"Summarise!\""))
        .collect();
    let header = right.header_line().as_str().replace("\"s\"", "\"t\"");
    let imported = home.store.import(format!("{header}\n{}\n", lines.join("\n")).as_bytes()).unwrap();
    let wrong = verify(&home.store.read_session(imported.id()).unwrap()).unwrap();
    assert!(matches!(wrong.mismatches[..], [Mismatch::Summary { .. }]), "{:?}", wrong.mismatches);
}

/// A fork of a fork belongs to the tree of its root: its bodies carry the root's cache key, and are made
/// again when an ancestor is gone.
#[test]
fn a_fork_of_a_fork_keeps_the_cache_key_of_its_root() {
    let home = Home::new();
    let wired = || plan("p", "m").wire(BodyOptions::new(Format::OpenAiResponses));
    let mut root = home.create("root");
    turn(&mut root, "1", wired());
    root.close().unwrap();
    for (parent, child) in [("root", "child"), ("child", "grandchild")] {
        let cut = home.reader(parent).fold().next_seq().previous().unwrap();
        let new = rederive_engine::NewSession::new(child);
        let forked = home.store.fork_session(&crate::step::session(parent), cut, new).unwrap();
        let mut conversation = Conversation::new(forked);
        let attempt = crate::step::ask(&mut conversation, child, wired());
        let body = String::from_utf8(attempt.body().unwrap().to_vec()).unwrap();
        assert!(body.contains(r#""prompt_cache_key":"root""#), "{child}: {}", &body[..300]);
        attempt.settle(crate::step::says("ok")).unwrap().end().unwrap().end("completed").unwrap();
        conversation.close().unwrap();
    }
    let verified = verify_with_bodies(&home.reader("grandchild"), "root", &NoObjects).unwrap();
    assert_eq!((verified.bodies, &verified.mismatches[..]), (3, &[][..]));
    home.store.delete_session(&crate::step::session("child")).unwrap();
    // What the command can find out now is another name.
    let verified = verify_with_bodies(&home.reader("grandchild"), "child", &NoObjects).unwrap();
    assert_eq!((verified.bodies, &verified.mismatches[..]), (3, &[][..]));
}

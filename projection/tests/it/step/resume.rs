//! Resume and fork: a restart is invisible in the bytes, and drift is said.

use rederive_engine::{ForkError, NewSession, Target};
use rederive_projection::audit::Cause;
use rederive_projection::formats::{BodyOptions, Format};
use rederive_projection::step::{Answer, CallConfig, Conversation, Plan, StepError, message};

use super::{Home, ask, audited, events, extends, plan, reasons, says, session, surface, turn};

/// Field case 11: odd spellings and trailing newlines come through a restart unchanged.
#[test]
fn a_resumed_session_sends_the_same_bytes() {
    let odd = r#"{"role":"user","content":[{"text":"run the tests \n","type":"text","cache":{"ttl":"1h"}},{"type":"text","text":"<reminder>be brief</reminder>"}],"id":"u0"}"#;
    let home = Home::new();
    let mut conversation = home.create("s");
    conversation.inbox().insert(Target::NextTurn, odd).unwrap();
    let attempt = conversation.begin_turn().unwrap().claim().unwrap().plan(plan()).unwrap().enter().unwrap();
    let first = attempt.request().clone();
    assert_eq!(first.message(1).unwrap().text(), odd);
    let said = message::assistant("a5", "p", "m", &[message::text_block("ok\n\n")]);
    attempt.settle(Answer::new(said)).unwrap().end().unwrap().end("completed").unwrap();
    conversation.close().unwrap();
    let before = home.reader("s").fold().next_seq();
    let mut conversation = home.open("s");
    assert_eq!(conversation.fold().unwrap().next_seq(), before.next(), "the marker alone");
    let second = turn(&mut conversation, "u1", plan());
    assert!(extends(&second, &first));
    assert_eq!(second.header().text(), first.header().text());
    assert_eq!(reasons(&conversation), ["initial", "resume"]);
}

#[test]
fn a_fork_shares_its_past_and_says_how_it_drifts() {
    let home = Home::new();
    let mut parent = home.create("parent");
    turn(&mut parent, "1", plan());
    let cut = parent.fold().unwrap().next_seq().previous().unwrap();
    let last = turn(&mut parent, "2", plan());
    drop(ask(&mut parent, "3", plan()));
    let inside = parent.fold().unwrap().next_seq().previous().unwrap();
    let refused = home.store.fork_session(&session("parent"), inside, NewSession::new("no"));
    assert!(matches!(refused, Err(ForkError::OpenTurn { turn: 3, .. })));

    let fork = |id: &str| {
        let child = home.store.fork_session(&session("parent"), cut, NewSession::new(id)).unwrap();
        Conversation::new(child)
    };
    let mut child = fork("child");
    assert_eq!(surface(&child).len(), 3);
    let same = turn(&mut child, "2", plan());
    assert_eq!(same.to_vec(), last.to_vec(), "the same words after the same past are the same request");
    assert_eq!(reasons(&child), ["initial", "resume"]);
    let audit = audited(&child);
    assert!(audit.requests[1].extends && audit.requests[1].process_boundary);

    let mut drifted = fork("drifted");
    turn(&mut drifted, "2", Plan::new("Be brief.", CallConfig::new("p", "other")));
    let audit = audited(&drifted);
    assert_eq!(audit.requests[1].causes, [Cause::ConfigChanged { field: "config.model".into() }]);
    assert!(audit.requests[1].process_boundary);
    assert_eq!(events(&drifted, "session/end-seed"), ["{\"inherited\":true}"]);
}

#[test]
fn a_wire_record_is_written_with_the_dispatch_and_refused_before_it() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let wired = || plan().wire(BodyOptions::new(Format::OpenAiChat));
    let attempt = ask(&mut conversation, "1", wired());
    let body = attempt.body().unwrap().to_vec();
    assert!(body.starts_with(b"{"));
    attempt.settle(says("ok")).unwrap().end().unwrap().end("completed").unwrap();
    let dispatched = events(&conversation, "request/dispatch");
    assert!(dispatched[0].contains("\"wire\":{\"format\":\"openai-chat\""), "{dispatched:?}");
    let digest = blake3::hash(&body).to_hex();
    assert!(dispatched[0].contains(digest.as_str()));
    // A block that no format knows: refused before anything was logged.
    let odd = r#"{"id":"odd","role":"user","content":[{"type":"hologram"}]}"#;
    conversation.inbox().insert(Target::NextTurn, odd).unwrap();
    let before = {
        let turn = conversation.begin_turn().unwrap();
        let planned = turn.claim().unwrap().plan(wired()).unwrap();
        assert!(matches!(planned.enter(), Err(StepError::Format(_))));
        conversation.fold().unwrap().next_seq()
    };
    assert_eq!(events(&conversation, "request/dispatch").len(), 1);
    assert_eq!(conversation.inbox().pending(Target::NextTurn).unwrap().len(), 1);
    conversation.inbox().edit("odd", &message::user("odd", "plain")).unwrap();
    let rederive_projection::step::At::Turn(turn) = conversation.at().unwrap() else { panic!("turn") };
    let attempt = turn.claim().unwrap().plan(wired()).unwrap().enter().unwrap();
    let again = attempt.body().unwrap().to_vec();
    attempt.settle(says("ok")).unwrap().end().unwrap().end("completed").unwrap();
    assert!(conversation.fold().unwrap().next_seq() > before);
    assert!(String::from_utf8(again).unwrap().contains("plain"));
    audited(&conversation);
}

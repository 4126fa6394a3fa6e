//! The inbox: durable, claimed whole, and nothing is lost or sent twice.

use rederive_engine::Target;
use rederive_projection::step::{At, InboxError, Returned, StepError, message};

use super::{Home, events, plan, says, session, turn};

#[test]
fn what_is_inserted_after_the_claim_joins_a_later_request() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let inbox = conversation.inbox();
    inbox.insert(Target::NextTurn, &message::user("q1", "first")).unwrap();
    inbox.insert(Target::NextTurn, &message::user("q2", "second")).unwrap();
    inbox.insert(Target::NextStep, &message::user("n1", "note")).unwrap();
    let claim = conversation.begin_turn().unwrap().claim().unwrap();
    assert_eq!(claim.messages(), [message::user("n1", "note"), message::user("q1", "first")]);
    inbox.insert(Target::NextStep, &message::user("late", "late")).unwrap();
    let attempt = claim.plan(plan()).unwrap().enter().unwrap();
    assert_eq!(attempt.request().message_count(), 3);
    assert_eq!(inbox.pending(Target::NextStep).unwrap(), [message::user("late", "late")]);
    let turn = attempt.settle(says("ok")).unwrap().end().unwrap();
    // Within a turn no further prompt is taken, input is.
    let claim = turn.claim().unwrap();
    assert_eq!(claim.messages(), [message::user("late", "late")]);
    let attempt = claim.plan(plan()).unwrap().enter().unwrap();
    attempt.settle(says("ok")).unwrap().end().unwrap().end("completed").unwrap();
    assert_eq!(inbox.pending(Target::NextTurn).unwrap(), [message::user("q2", "second")]);
}

#[test]
fn a_claimed_message_cannot_be_touched_and_a_rejected_one_waits_again() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let inbox = conversation.inbox();
    inbox.insert(Target::NextTurn, &message::user("q1", "first")).unwrap();
    inbox.insert(Target::NextTurn, &message::user("q2", "second")).unwrap();
    let planned = conversation.begin_turn().unwrap().claim().unwrap().plan(plan()).unwrap();
    let claimed = |result: Result<(), StepError>| matches!(result, Err(StepError::Inbox(InboxError::Claimed { id })) if id == "q1");
    assert!(claimed(inbox.edit("q1", &message::user("q1", "other"))));
    assert!(claimed(inbox.remove("q1")));
    inbox.edit("q2", &message::user("q2", "changed")).unwrap();
    inbox.insert_at(Target::NextTurn, 0, &message::user("q3", "before it")).unwrap();
    let turn = planned.reject(Returned::ToInbox).unwrap();
    let ids = |inbox: &rederive_projection::step::Inbox| -> Vec<String> {
        let id = |text: &String| rederive_engine::message_id(text).unwrap().into_owned();
        inbox.pending(Target::NextTurn).unwrap().iter().map(id).collect()
    };
    assert_eq!(ids(&inbox), ["q1", "q3", "q2"]);
    let turn = turn.claim().unwrap().plan(plan()).unwrap().reject(Returned::Dropped).unwrap();
    assert_eq!(ids(&inbox), ["q3", "q2"]);
    turn.end("cancelled").unwrap();
    assert_eq!(events(&conversation, "step/start").len(), 0);
}

#[test]
fn a_crash_between_claim_and_enter_loses_no_message() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let inbox = conversation.inbox();
    inbox.insert(Target::NextTurn, &message::user("q1", "first")).unwrap();
    let planned = conversation.begin_turn().unwrap().claim().unwrap().plan(plan()).unwrap();
    drop(planned); // the process ends here
    conversation.close().unwrap();
    let mut conversation = home.open("s");
    assert!(matches!(conversation.at().unwrap(), At::Idle(_)));
    assert_eq!(conversation.inbox().pending(Target::NextTurn).unwrap(), [message::user("q1", "first")]);
    let claim = conversation.begin_turn().unwrap().claim().unwrap();
    assert_eq!(claim.messages().len(), 1);
    drop(claim.plan(plan()).unwrap().enter().unwrap());
    conversation.close().unwrap();
    // Entered: it is in the request, and never again in the inbox.
    let conversation = home.open("s");
    assert_eq!(conversation.inbox().pending(Target::NextTurn).unwrap().len(), 0);
    assert_eq!(events(&conversation, "user/message"), [message::user("q1", "first")]);
}

#[test]
fn bad_messages_are_refused_and_change_nothing() {
    let home = Home::new();
    let conversation = home.create("s");
    let inbox = conversation.inbox();
    inbox.insert(Target::NextTurn, &message::user("q1", "first")).unwrap();
    for bad in [
        "no json",
        r#"{"id":"x","role":"user"}"#,
        r#"{"id":"x","role":"assistant","content":[{"type":"text","text":"a"}]}"#,
        r#"{"id":"x","role":"user","content":[]}"#,
        r#"{"id":"x","role":"user","content":[{"type":"text","text":" \n"}]}"#,
        r#"{"role":"user","content":[{"type":"text","text":"a"}]}"#,
        // Two in one: the second would stand in the inbox unchecked, and could not even be removed.
        r#"{"id":"x","role":"user","content":[{"type":"text","text":"a"}]},{"role":"user"}"#,
        r#"{"id":"x","role":"user","content":[{"type":"text","text":"a"}]}]"#,
    ] {
        assert!(matches!(inbox.insert(Target::NextTurn, bad), Err(StepError::Message(_))), "{bad}");
        assert!(matches!(inbox.edit("q1", bad), Err(StepError::Message(_))), "{bad}");
    }
    let again = inbox.insert(Target::NextStep, &message::user("q1", "again"));
    assert!(matches!(again, Err(StepError::Inbox(InboxError::Present { .. }))));
    assert!(matches!(inbox.remove("q9"), Err(StepError::Inbox(InboxError::Absent { .. }))));
    assert_eq!(inbox.pending(Target::NextTurn).unwrap().len(), 1);
    conversation.close().unwrap();
    assert!(matches!(inbox.remove("q1"), Err(StepError::Closed)));
}

#[test]
fn an_inbox_is_used_from_other_threads_while_steps_go_on() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let inbox = conversation.inbox();
    let writer = std::thread::spawn(move || {
        for index in 0..40 {
            let message = message::user(&format!("n{index}"), &format!("note {index}"));
            inbox.insert(Target::NextStep, &message).unwrap();
        }
    });
    for index in 0..10 {
        turn(&mut conversation, &format!("q{index}"), plan());
    }
    writer.join().unwrap();
    turn(&mut conversation, "last", plan());
    let said = events(&conversation, "user/message");
    for index in 0..40 {
        let message = message::user(&format!("n{index}"), &format!("note {index}"));
        assert_eq!(said.iter().filter(|other| **other == message).count(), 1, "{message}");
    }
    conversation.close().unwrap();
    assert!(
        home.store
            .read_session(&session("s"))
            .unwrap()
            .fold()
            .step_state()
            .pending(Target::NextStep)
            .is_empty()
    );
}

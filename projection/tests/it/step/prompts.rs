//! System prompts: operations of the log, and what each costs.

use rederive_projection::audit::Cause;
use rederive_projection::step::{CallConfig, Plan};

use super::{Home, audited, events, extends, surface, turn};

fn head(prompt: &str) -> Plan {
    Plan::new(prompt, CallConfig::new("p", "m"))
}

fn in_history(prompt: &str) -> Plan {
    head(prompt).reads_system_updates()
}

#[test]
fn a_route_that_reads_updates_keeps_the_prefix() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let monday = turn(&mut conversation, "1", in_history("Today is Monday."));
    for id in ["2", "3", "4"] {
        turn(&mut conversation, id, in_history("Today is Monday."));
    }
    assert_eq!(events(&conversation, "system/message").len(), 1, "equal text writes nothing");
    let tuesday = turn(&mut conversation, "5", in_history("Today is Tuesday."));
    assert!(extends(&tuesday, &monday));
    assert_eq!(events(&conversation, "system/message").len(), 2);
    let audit = audited(&conversation);
    assert_eq!(audit.summary.breaks, 0);
    // Back again: it is appended again, since the model reads the last one.
    turn(&mut conversation, "6", in_history("Today is Monday."));
    assert_eq!(events(&conversation, "system/message").len(), 3);
    assert_eq!(audited(&conversation).summary.breaks, 0);
}

#[test]
fn any_other_route_pays_exactly_once() {
    let home = Home::new();
    let mut conversation = home.create("s");
    turn(&mut conversation, "1", head("Today is Monday."));
    turn(&mut conversation, "2", head("Today is Tuesday."));
    for id in 3..53 {
        turn(&mut conversation, &id.to_string(), head("Today is Tuesday."));
    }
    let audit = audited(&conversation);
    assert_eq!(audit.summary.breaks, 1);
    assert!(matches!(audit.requests[1].causes[..], [Cause::SystemPrompt { .. }]));
    assert!(audit.requests[2..].iter().all(|request| request.extends));
}

#[test]
fn updates_in_the_history_are_consolidated_where_the_route_cannot_read_them() {
    let home = Home::new();
    let mut conversation = home.create("s");
    turn(&mut conversation, "1", in_history("A"));
    turn(&mut conversation, "2", in_history("B"));
    turn(&mut conversation, "3", in_history("C"));
    let request = turn(&mut conversation, "4", head("C"));
    let systems: Vec<String> = request
        .messages()
        .map(|message| message.text().to_owned())
        .filter(|text| text.contains("\"system\""))
        .collect();
    assert_eq!(systems.len(), 1, "one prompt, at the head");
    assert!(systems[0].contains("\"C\"") && request.message(0).unwrap().text() == systems[0]);
    let head_seq = surface(&conversation)[0];
    let nodes = conversation.fold().unwrap();
    assert_eq!(nodes.surface().system_nodes().count(), 3, "emptied nodes keep their place");
    assert_eq!(nodes.surface().first().unwrap().seq().value(), head_seq);
    // A new series consolidates on a reading route as well.
    turn(&mut conversation, "5", in_history("D"));
    assert_eq!(audited(&conversation).requests[4].causes, []);
}

#[test]
fn an_empty_prompt_reserves_its_place_and_comes_back() {
    let home = Home::new();
    let mut conversation = home.create("s");
    let none = turn(&mut conversation, "1", head(""));
    assert_eq!(none.message_count(), 1);
    assert_eq!(conversation.fold().unwrap().surface().system_nodes().count(), 1);
    let some = turn(&mut conversation, "2", head("S"));
    assert!(some.message(0).unwrap().text().contains("\"S\""));
    let cleared = turn(&mut conversation, "3", head(""));
    assert!(!cleared.message(0).unwrap().text().contains("system"));
    turn(&mut conversation, "4", head(""));
    let back = turn(&mut conversation, "5", head("S"));
    assert!(back.message(0).unwrap().text().contains("\"S\""));
    assert_eq!(events(&conversation, "system/message").len(), 4);
    assert_eq!(audited(&conversation).summary.breaks, 3);
    // On a reading route every node is emptied, and the next prompt comes at the end.
    let mut conversation = home.create("t");
    turn(&mut conversation, "1", in_history("A"));
    turn(&mut conversation, "2", in_history("B"));
    let cleared = turn(&mut conversation, "3", in_history(""));
    assert!(cleared.messages().all(|message| !message.text().contains("system")));
    turn(&mut conversation, "4", in_history(""));
    let back = turn(&mut conversation, "5", in_history("C"));
    let systems = back.messages().filter(|message| message.text().contains("\"system\"")).count();
    assert_eq!(systems, 1);
}

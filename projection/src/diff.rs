//! Two requests side by side: header fields and messages.

use rederive_engine::{equal_by_value, members, object_member};
use serde::Serialize;

use crate::relation::Relation;
use crate::request::Request;

/// How two requests differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diff {
    /// Length of the common prefix of the canonical bytes.
    pub common_bytes: u64,
    /// Whether the second extends the first.
    pub extends: bool,
    /// Header fields that differ by value, with their verbatim texts.
    pub header: Vec<FieldDiff>,
    /// Messages that only one of the two has, in order; what both share is counted.
    pub messages: Vec<MessageDiff>,
    /// Leading messages that both share.
    pub shared_before: usize,
    /// Trailing messages that both share.
    pub shared_behind: usize,
}

/// A header field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldDiff {
    /// The field, as `config.model`.
    pub field: String,
    /// Its text in the first request.
    pub old: Option<String>,
    /// Its text in the second.
    pub new: Option<String>,
}

/// A message that only one of the two has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageDiff {
    /// `-` for the first request, `+` for the second.
    pub side: char,
    /// Its place among that request's messages.
    pub index: usize,
    /// Its node.
    pub seq: u64,
    /// Its verbatim text.
    pub text: String,
}

/// Compares two requests of one log, `a` being the earlier one.
///
/// # Cost
///
/// Compares the messages of both.
pub fn diff(a: &Request, b: &Request) -> Diff {
    let relation = Relation::of(a, b);
    let (old, new): (Vec<_>, Vec<_>) = (a.messages().collect(), b.messages().collect());
    let same = |x: &crate::FrozenMessage, y: &crate::FrozenMessage| x.is(y) || x.text() == y.text();
    let before = old.iter().zip(&new).take_while(|(x, y)| same(x, y)).count();
    let left = old.len().min(new.len()) - before;
    let behind = old.iter().rev().zip(new.iter().rev()).take(left).take_while(|(x, y)| same(x, y)).count();
    let mut messages = Vec::new();
    for (side, list) in [('-', &old), ('+', &new)] {
        for (index, message) in list.iter().enumerate().take(list.len() - behind).skip(before) {
            let (seq, text) = (message.seq().value(), message.text().to_owned());
            messages.push(MessageDiff { side, index, seq, text });
        }
    }
    Diff {
        common_bytes: relation.kept_bytes(a),
        extends: relation.extends(),
        header: header(a.header().text(), b.header().text()),
        messages,
        shared_before: before,
        shared_behind: behind,
    }
}

fn header(old: &str, new: &str) -> Vec<FieldDiff> {
    let mut fields = Vec::new();
    compare("", old, new, &mut fields);
    fields
}

fn compare(path: &str, old: &str, new: &str, fields: &mut Vec<FieldDiff>) {
    let mut keys: Vec<String> = members(old).into_iter().chain(members(new)).map(|(key, _)| key).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let (a, b) = (object_member(old, &key), object_member(new, &key));
        if let (Some(a), Some(b)) = (a, b) {
            if equal_by_value(a, b) {
                continue;
            }
            if key == "config" {
                compare("config.", a, b, fields);
                continue;
            }
        }
        fields.push(FieldDiff {
            field: format!("{path}{key}"),
            old: a.map(Into::into),
            new: b.map(Into::into),
        });
    }
}

//! Sums over an audit: what was sent again, why, and what it cost.

use std::collections::BTreeMap;

use serde::Serialize;

use super::AuditedRequest;

/// Breaks that the summary names.
const DEAREST: usize = 5;
/// From so many requests in a row on, one cause is a habit.
const HABIT_REQUESTS: usize = 3;

/// Sums over an audit.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Requests.
    pub requests: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that were a prefix of the request before.
    pub kept_bytes: u64,
    /// Bytes of requests before that had to be sent again behind a break.
    pub lost_bytes: u64,
    /// Requests that do not extend the one before.
    pub breaks: usize,
    /// Breaks by cause, the dearest first.
    pub by_cause: Vec<CauseSum>,
    /// The dearest breaks.
    pub dearest: Vec<Break>,
    /// Causes that broke the prefix in request after request.
    pub habits: Vec<Habit>,
    /// Input tokens that the provider reported, where it did.
    pub input_tokens: u64,
    /// Cache-read tokens that the provider reported.
    pub cache_read_tokens: u64,
}

/// The breaks of one cause. A break with several causes counts for each of them.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CauseSum {
    /// The cause's name.
    pub cause: &'static str,
    /// How many breaks.
    pub breaks: usize,
    /// The bytes that they lost.
    pub lost_bytes: u64,
}

/// One break.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Break {
    /// The request's boundary.
    pub seq: u64,
    /// Its causes' names.
    pub causes: Vec<&'static str>,
    /// The bytes that it lost.
    pub lost_bytes: u64,
}

/// One cause in request after request.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Habit {
    /// The cause's name.
    pub cause: &'static str,
    /// The first request's boundary.
    pub from: u64,
    /// The last one's.
    pub to: u64,
    /// How many requests in a row.
    pub requests: usize,
    /// The bytes that they lost.
    pub lost_bytes: u64,
}

impl Summary {
    pub(super) fn of(requests: &[AuditedRequest]) -> Self {
        let mut summary = Self { requests: requests.len(), ..Self::default() };
        let mut causes: BTreeMap<&'static str, CauseSum> = BTreeMap::new();
        let mut open: Vec<Habit> = Vec::new();
        for request in requests {
            summary.bytes += request.bytes;
            summary.kept_bytes += request.kept_bytes;
            summary.input_tokens += request.input_tokens.unwrap_or(0);
            summary.cache_read_tokens += request.cache_read_tokens.unwrap_or(0);
            let names = names(request);
            if !request.extends {
                summary.breaks += 1;
                summary.lost_bytes += request.lost_bytes();
                summary.dearest.push(Break {
                    seq: request.seq,
                    causes: names.clone(),
                    lost_bytes: request.lost_bytes(),
                });
            }
            for name in &names {
                let sum = causes.entry(name).or_insert(CauseSum { cause: name, breaks: 0, lost_bytes: 0 });
                sum.breaks += 1;
                sum.lost_bytes += request.lost_bytes();
            }
            let (going_on, ended): (Vec<Habit>, Vec<Habit>) =
                open.into_iter().partition(|habit| names.contains(&habit.cause));
            summary.habits.extend(ended);
            open = going_on;
            for name in names {
                match open.iter_mut().find(|habit| habit.cause == name) {
                    Some(habit) => {
                        habit.to = request.seq;
                        habit.requests += 1;
                        habit.lost_bytes += request.lost_bytes();
                    }
                    None => open.push(Habit {
                        cause: name,
                        from: request.seq,
                        to: request.seq,
                        requests: 1,
                        lost_bytes: request.lost_bytes(),
                    }),
                }
            }
        }
        summary.habits.extend(open);
        summary.habits.retain(|habit| habit.requests >= HABIT_REQUESTS);
        summary.dearest.sort_by_key(|dear| std::cmp::Reverse(dear.lost_bytes));
        summary.dearest.truncate(DEAREST);
        summary.by_cause = causes.into_values().collect();
        summary.by_cause.sort_by_key(|sum| std::cmp::Reverse((sum.lost_bytes, sum.breaks)));
        summary
    }
}

/// The names of a request's causes, each once.
fn names(request: &AuditedRequest) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = request.causes.iter().map(super::Cause::name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

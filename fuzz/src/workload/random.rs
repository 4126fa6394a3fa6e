//! Random valid logs: everything that the format allows, in any order that it allows.
//!
//! Whole kinds of operation are left out by seed (swarm testing: Groce and others, 2012), because
//! what is always there hides what only fails in its absence.

use std::collections::BTreeSet;

use super::Lines;
use super::text::{self, Rng};
use super::write::{Kind, Place, Writer};

/// A kind of operation that a random log may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// A system prompt at the head.
    Prompt,
    /// System prompts appended in history, and emptied again.
    PromptAppend,
    /// The system prompt rewritten at the head.
    PromptHead,
    /// More than one call in an answer.
    ParallelCalls,
    /// Tool results replaced by shorter ones.
    Prune,
    /// Summaries in the place of whole turns.
    Compaction,
    /// Replaces of any range, which may part a call from its result.
    AnyRange,
    /// Replaces of the tail alone.
    TailReplace,
    /// Attempts that showed nothing, and retries.
    Attempt,
    /// Headers after the first, for every reason.
    Header,
    /// Foreign events that say `ignorable`.
    Foreign,
    /// Titles, to-do lists, inbox changes, contexts, markers, dispatches.
    Sideline,
    /// Assistant messages without content.
    EmptyAnswer,
    /// An end in the middle of a turn.
    Crash,
    /// Keys in another order.
    OddKeys,
    /// Numbers that no double holds.
    OddNumbers,
    /// Escapes, lone surrogates, odd scalars.
    OddText,
}

impl Operation {
    /// Every kind.
    pub const ALL: [Self; 17] = [
        Self::Prompt,
        Self::PromptAppend,
        Self::PromptHead,
        Self::ParallelCalls,
        Self::Prune,
        Self::Compaction,
        Self::AnyRange,
        Self::TailReplace,
        Self::Attempt,
        Self::Header,
        Self::Foreign,
        Self::Sideline,
        Self::EmptyAnswer,
        Self::Crash,
        Self::OddKeys,
        Self::OddNumbers,
        Self::OddText,
    ];
    /// The kinds that only concern spelling.
    pub const ODD: [Self; 3] = [Self::OddKeys, Self::OddNumbers, Self::OddText];
}

/// What a random log holds.
#[derive(Clone, Debug)]
pub struct Options {
    turns: u64,
    without: BTreeSet<Operation>,
}

impl Options {
    /// Twelve turns that may hold everything.
    pub fn everything() -> Self {
        Self { turns: 12, without: BTreeSet::new() }
    }

    /// One to twenty-four turns, each kind of operation left out by one seed in three.
    pub fn swarm(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5741_524d);
        let without = Operation::ALL.into_iter().filter(|_| rng.one_in(3)).collect();
        Self { turns: rng.between(1, 24), without }
    }

    /// The same with another number of turns.
    #[must_use]
    pub fn turns(mut self, turns: u64) -> Self {
        self.turns = turns;
        self
    }

    /// The same without a kind of operation. A log without [`Operation::AnyRange`],
    /// [`Operation::TailReplace`] and [`Operation::Crash`] answers each call right after it.
    #[must_use]
    pub fn without(mut self, operation: Operation) -> Self {
        self.without.insert(operation);
        self
    }
}

/// A valid log made of `seed`.
pub fn random(seed: u64, options: &Options) -> Lines {
    let mut writer = Writer::new(seed, "random");
    writer.without.clone_from(&options.without);
    let turns = options.turns;
    let mut done = 0;
    Lines::new(writer, move |log| {
        if turns <= done {
            return false;
        }
        done += 1;
        turn(log, turns == done)
    })
}

fn turn(log: &mut Writer, last: bool) -> bool {
    let steps = log.rng.between(0, 3);
    let crash_at = if last && log.has(Operation::Crash) { log.rng.between(0, steps) } else { u64::MAX };
    log.turn_start();
    sideline(log);
    if !log.surface.is_empty() && log.rng.one_in(2) {
        log.user(120);
    }
    for step in 0..steps {
        if !one_step(log, step == crash_at) {
            return false;
        }
        rewrite(log);
    }
    if crash_at == steps {
        return false;
    }
    let reason = log.rng.pick(&["completed", "completed", "aborted", "error"]);
    log.turn_end(reason);
    if log.lucky(Operation::Compaction, 4) {
        compact_turns(log);
    }
    true
}

fn one_step(log: &mut Writer, crashes: bool) -> bool {
    if log.surface.is_empty() && !log.has(Operation::Prompt) {
        log.user(90); // a first node that is no system prompt
    }
    log.step_start();
    prompt(log);
    if log.rng.one_in(2) {
        let bytes = log.rng.between(1, 400);
        log.user(bytes);
    }
    log.header_once();
    if log.lucky(Operation::Header, 3) {
        let reason = log.rng.pick(&["resume", "change", "series", "initial"]);
        let variant = log.rng.between(0, 200);
        log.header(reason, variant);
    }
    if log.lucky(Operation::Attempt, 5) {
        log.attempt();
    }
    foreign(log);
    if log.lucky(Operation::EmptyAnswer, 8) {
        log.assistant("", "");
    } else if !answer(log, crashes) {
        return false;
    }
    log.step_end();
    true
}

fn answer(log: &mut Writer, crashes: bool) -> bool {
    let most = if log.has(Operation::ParallelCalls) { 4 } else { 1 };
    let (bytes, calls, deltas) = (log.rng.between(1, 700), log.rng.between(0, most), log.rng.between(0, 5));
    if crashes && log.rng.one_in(4) {
        return false;
    }
    let calls = log.answer(bytes, calls, deltas);
    let answered = if crashes { log.rng.index(calls.len() + 1) } else { calls.len() };
    for (place, call) in calls.iter().enumerate() {
        if place < answered {
            foreign(log);
            let started = (!log.rng.one_in(6)).then(|| log.call_started(call));
            let bytes = log.rng.between(1, 1500);
            log.result(call, started, bytes);
        } else if log.rng.one_in(2) {
            log.call_started(call);
        }
    }
    !crashes
}

fn prompt(log: &mut Writer) {
    let head = matches!(log.surface.first().map(|node| &node.kind), Some(Kind::System { .. }));
    if head && log.lucky(Operation::PromptHead, 6) {
        let bytes = if log.rng.one_in(6) { 0 } else { 600 };
        log.system_at(Some(0), bytes);
    }
    if !log.has(Operation::PromptAppend) {
        return;
    }
    if log.rng.one_in(8) {
        let bytes = if log.rng.one_in(6) { 0 } else { 200 };
        log.system_at(None, bytes);
    }
    let later = |node: &super::write::Node| matches!(node.kind, Kind::System { empty: false });
    let found = log.surface.iter().skip(1).position(later);
    if let Some(index) = found
        && log.rng.one_in(5)
    {
        log.system_at(Some(index + 1), 0);
    }
}

/// Replaces of every kind but the compaction of whole turns.
fn rewrite(log: &mut Writer) {
    let len = log.surface.len();
    let first_free =
        usize::from(matches!(log.surface.first().map(|node| &node.kind), Some(Kind::System { .. })));
    if log.lucky(Operation::Prune, 3) {
        let tools: Vec<usize> = (0..len)
            .filter(|index| matches!(log.surface.get(*index).map(|node| &node.kind), Some(Kind::Tool { .. })))
            .collect();
        let chosen = log.rng.index(tools.len());
        if let Some(index) = tools.get(chosen) {
            log.prune(*index);
        }
    }
    if len <= first_free {
        return;
    }
    if log.lucky(Operation::AnyRange, 8) {
        let first = first_free + log.rng.index(len - first_free);
        let last = first + log.rng.index((len - first).min(9));
        replace(log, first, last);
    }
    let len = log.surface.len();
    if log.lucky(Operation::TailReplace, 10) && first_free < len {
        let first = len - 1 - log.rng.index((len - first_free).min(3));
        replace(log, first, len - 1);
    }
}

fn replace(log: &mut Writer, first: usize, last: usize) {
    let also = if log.rng.one_in(3) { vec![0] } else { Vec::new() };
    let data = log.user_data(150);
    log.event("user/message", &data, &Place::Replace(Kind::User, first, last, also));
}

/// Summarises from one user message to right before another, so that no call loses its result.
fn compact_turns(log: &mut Writer) {
    let starts: Vec<usize> = (1..log.surface.len())
        .filter(|index| matches!(log.surface.get(*index).map(|node| &node.kind), Some(Kind::User)))
        .collect();
    let (one, two) = (log.rng.index(starts.len()), log.rng.index(starts.len()));
    if let (Some(first), Some(after)) = (starts.get(one.min(two)), starts.get(one.max(two)))
        && first < after
    {
        log.compact(*first, after - 1);
    }
}

fn foreign(log: &mut Writer) {
    if !log.lucky(Operation::Foreign, 3) {
        return;
    }
    let kind = log.rng.pick(&["x-host/progress", "x-host/delta", "permission/asked"]);
    let number = log.rng.pick(&text::ODD_NUMBERS);
    let data = if log.has(Operation::OddNumbers) {
        format!("{{\"pct\":{number}}}")
    } else {
        "{\"pct\":4}".to_owned()
    };
    log.event(kind, &data, &Place::Foreign);
}

fn sideline(log: &mut Writer) {
    if !log.lucky(Operation::Sideline, 3) {
        return;
    }
    let prose = log.prose(30);
    let (kind, data) = match log.rng.between(0, 5) {
        0 => ("session/title", format!("{{\"title\":\"{prose}\"}}")),
        1 => ("todo/write", format!("{{\"items\":[{{\"text\":\"{prose}\",\"done\":false}}]}}")),
        2 => ("request/context", "{\"contextWindow\":200000}".to_owned()),
        3 => ("session/end-seed", "{}".to_owned()),
        4 => {
            let message = log.user_data(40);
            (
                "agent/inbox/spliced",
                format!("{{\"target\":\"next-step\",\"start\":0,\"inserted\":[{message}]}}"),
            )
        }
        _ => ("compaction/start", "{\"compactionId\":\"abandoned\"}".to_owned()),
    };
    log.event(kind, &data, &Place::Log);
}

//! Seeded logs in the V3 line format, the same for the same seed everywhere and for ever.
//!
//! Each generator streams: its first line is the session header, then one event a line, none with a
//! line end. Sizes are natural, content is made up, nothing comes from outside. Owns what a valid
//! log may look like; the model, not this module, says that it is valid.

mod broken; // reading order, not the alphabet
mod random;
mod text;
mod write;

pub use broken::{BREAKS, Broken, broken, broken_by};
pub use random::{Operation, Options, random};

use write::{Place, Writer};

/// The lines of a log, made while they are read.
pub struct Lines {
    writer: Writer,
    /// Writes the next part of the log; false when there is none.
    more: Box<dyn FnMut(&mut Writer) -> bool + Send>,
}

impl Lines {
    fn new(writer: Writer, more: impl FnMut(&mut Writer) -> bool + Send + 'static) -> Self {
        Self { writer, more: Box::new(more) }
    }
}

impl Iterator for Lines {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        loop {
            if let Some(line) = self.writer.lines.pop_front() {
                return Some(line);
            }
            if !(self.more)(&mut self.writer) {
                // What the last call wrote, if anything.
                return self.writer.lines.pop_front();
            }
        }
    }
}

/// `count` steps, ten a turn: an answer of 600 bytes with its 40 stream deltas, a tool result of
/// 2.5 KB. With 2,000 steps about 20 MB.
pub fn steps(seed: u64, count: u64) -> Lines {
    let mut done = 0;
    Lines::new(Writer::new(seed, "steps"), move |log| {
        if count <= done {
            return false;
        }
        log.turn_start();
        for step in 0..10.min(count - done) {
            log.step_start();
            if step == 0 {
                log.user(200);
                log.header_once();
            }
            let calls = log.answer(600, 1, 40);
            log.results(&calls, 2500);
            log.step_end();
            done += 1;
        }
        log.turn_end("completed");
        true
    })
}

/// About 1.3 million events and 120 MB, most of them foreign deltas that the model never sees;
/// compactions leave exactly 2,000 nodes live at the end.
pub fn long(seed: u64) -> Lines {
    long_of(seed, 12_300, 100, 2_000)
}

/// [`long`] in another size: turns, deltas a turn, and nodes that are live at the end.
pub fn long_of(seed: u64, turns: u64, deltas: u64, live: usize) -> Lines {
    let mut done = 0;
    Lines::new(Writer::new(seed, "long"), move |log| {
        if turns <= done {
            return false;
        }
        done += 1;
        log.turn_start();
        log.step_start();
        log.user(60);
        log.header_once();
        for _ in 0..deltas {
            let word = text::word(&mut log.rng);
            log.event("x/d", &format!("{{\"d\":\"{word}\"}}"), &Place::Foreign);
        }
        log.answer(120, 0, 0);
        log.step_end();
        log.turn_end("completed");
        if 2 * live <= log.surface.len() || (turns == done && live < log.surface.len()) {
            let last = log.surface.len() - live + 1;
            log.compact(1, last);
        }
        true
    })
}

/// 800 turns: a question, four parallel tool calls with their results, an answer.
pub fn requests(seed: u64) -> Lines {
    requests_of(seed, 800)
}

/// [`requests`] with another number of turns.
pub fn requests_of(seed: u64, turns: u64) -> Lines {
    let mut done = 0;
    Lines::new(Writer::new(seed, "requests"), move |log| {
        if turns <= done {
            return false;
        }
        done += 1;
        log.plain_turn(4, 400);
        true
    })
}

/// 400 turns that show images: a question with one, a call whose result is a screenshot, an answer.
pub fn images(seed: u64) -> Lines {
    images_of(seed, 400)
}

/// [`images`] with another number of turns.
pub fn images_of(seed: u64, turns: u64) -> Lines {
    let mut done = 0;
    Lines::new(Writer::new(seed, "images"), move |log| {
        if turns <= done {
            return false;
        }
        done += 1;
        log.image_turn();
        true
    })
}

/// Exactly 90,000 events of a long-lived session: turns of one to four calls, prunes, compactions.
pub fn rebuild(seed: u64) -> Lines {
    rebuild_of(seed, 90_000)
}

/// [`rebuild`] with another number of events.
pub fn rebuild_of(seed: u64, events: u64) -> Lines {
    Lines::new(Writer::new(seed, "rebuild"), move |log| {
        let left = events.saturating_sub(log.seq);
        if left == 0 {
            return false;
        }
        if left < 64 {
            for _ in 0..left {
                log.event("x-host/progress", "{\"pct\":1}", &Place::Foreign);
            }
            return true;
        }
        let calls = log.rng.between(1, 4);
        log.plain_turn(calls, 900);
        if log.rng.one_in(5) {
            log.prune_oldest();
        }
        if 400 < log.surface.len() {
            let last = log.surface.len() - 40;
            log.compact(1, last);
        }
        true
    })
}

/// `sessions` small logs of `events` events of about 1 KB, to be appended at once.
pub fn fanout(seed: u64, sessions: u64, events: u64) -> impl Iterator<Item = Lines> {
    (0..sessions).map(move |session| {
        let mut writer = Writer::new(seed ^ (session << 32), &format!("fanout-{session}"));
        writer.turn_start();
        writer.step_start();
        writer.header_once();
        Lines::new(writer, move |log| {
            if events <= log.seq {
                return false;
            }
            log.user(850);
            true
        })
    })
}

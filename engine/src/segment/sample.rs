//! Seeded logs for tests: a coding agent's steps, with replaces, foreign types and odd lines.

use std::fmt::Write;

use bytes::Bytes;

use crate::event::Event;
use crate::fold::Fold;
use crate::{Replay, TypeRegistry};

/// A small generator of numbers, so that a seed gives one log.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// About `bytes` bytes of prose-like text without characters that JSON escapes.
    pub(crate) fn prose(&mut self, bytes: usize) -> String {
        const WORDS: [&str; 24] = [
            "the",
            "store",
            "segment",
            "reads",
            "a",
            "checkpoint",
            "of",
            "error",
            "while",
            "compiling",
            "module",
            "fn",
            "returns",
            "Größe",
            "and",
            "keeps",
            "index",
            "line",
            "is",
            "not",
            "found",
            "in",
            "src/lib.rs:",
            "warning:",
        ];
        let mut out = String::with_capacity(bytes + 16);
        while out.len() < bytes {
            out.push_str(WORDS[self.below(24) as usize]);
            if self.below(6) == 0 {
                let _ = write!(out, "{:x}", self.next() & 0xff_ffff);
            }
            out.push(' ');
        }
        out
    }
}

/// A log that is being made.
pub(crate) struct Sample {
    pub(crate) replay: Replay,
    pub(crate) events: Vec<Event>,
    pub(crate) rng: Rng,
    time_ms: u64,
}

impl Sample {
    pub(crate) fn new(seed: u64) -> Self {
        let replay = Replay::new(TypeRegistry::harness());
        Self { replay, events: Vec::new(), rng: Rng(seed), time_ms: 1_700_000_000_000 }
    }

    pub(crate) fn fold(&self) -> &Fold {
        self.replay.fold()
    }

    pub(crate) fn push(&mut self, kind: &str, data: &str, more: &str) {
        self.time_ms += self.rng.below(2000);
        let seq = self.events.len();
        let line = format!(r#"{{"type":"{kind}","seq":{seq},"time":{},"data":{data}{more}}}"#, self.time_ms);
        self.push_line(&line);
    }

    pub(crate) fn push_line(&mut self, line: &str) {
        self.events.push(self.replay.push_bytes(&Bytes::copy_from_slice(line.as_bytes())).unwrap());
    }

    pub(crate) fn user(&mut self, text: &str) {
        let data = format!(
            r#"{{"id":"u{}","role":"user","content":[{{"type":"text","text":"{text}"}}]}}"#,
            self.events.len()
        );
        self.push("user/message", &data, r#","surfaceOp":"append""#);
    }

    /// One step: a settlement with `deltas` stream deltas and a tool result of `result` bytes.
    pub(crate) fn step(&mut self, step: u64, deltas: u64, answer: usize, result: usize) {
        self.push("step/start", &format!(r#"{{"turn":1,"step":{step}}}"#), "");
        let text = self.rng.prose(answer);
        let id = format!("call_{:016x}", self.rng.next());
        let mut stream = String::new();
        for delta in 0..deltas {
            let piece = self.rng.prose(14);
            let comma = if delta == 0 { "" } else { "," };
            let at = self.time_ms + delta * 31;
            let _ = write!(stream, r#"{comma}{{"type":"text-delta","index":0,"at":{at},"text":"{piece}"}}"#);
        }
        let data = format!(
            r#"{{"turn":1,"step":{step},"message":{{"role":"assistant","content":[{{"type":"text","text":"{text}"}},{{"type":"tool-call","id":"{id}","name":"bash","input":{{"command":"cat {step}"}}}}],"source":{{"provider":"p","model":"m"}}}},"usage":{{"input":{step},"output":{}}},"stream":[{stream}]}}"#,
            self.rng.below(900)
        );
        self.push("assistant/message", &data, r#","surfaceOp":"append""#);
        self.push("tool/call", &format!(r#"{{"turn":1,"step":{step},"callId":"{id}","name":"bash"}}"#), "");
        let text = self.rng.prose(result);
        let data = format!(
            r#"{{"turn":1,"step":{step},"callId":"{id}","message":{{"role":"tool","content":[{{"type":"tool-result","toolCallId":"{id}","content":[{{"type":"text","text":"{text}"}}]}}]}}}}"#
        );
        self.push("tool/result", &data, r#","surfaceOp":"append""#);
        self.push("step/end", &format!(r#"{{"turn":1,"step":{step}}}"#), "");
    }

    pub(crate) fn header(&mut self, reason: &str) {
        let data = format!(
            r#"{{"reason":"{reason}","startsSeries":true,"header":{{"config":{{"provider":"p","model":"m"}},"tools":[{{"name":"bash"}}]}}}}"#
        );
        self.push("request/header", &data, "");
    }

    /// Replaces the nodes from index `start` to index `end`, inclusive, by a user message.
    pub(crate) fn compact(&mut self, start: usize, end: usize, text: &str) {
        let seqs = self.fold().surface().seqs();
        let cited: Vec<String> = seqs[start..=end].iter().map(ToString::to_string).collect();
        let data = format!(r#"{{"role":"user","content":[{{"type":"text","text":"{text}"}}]}}"#);
        let more = format!(
            r#","surfaceOp":{{"op":"replace","startSeq":{},"endSeq":{}}},"sourceEventSeqs":[{}]"#,
            seqs[start],
            seqs[end],
            cited.join(",")
        );
        self.push("user/message", &data, &more);
    }

    /// A log with everything that a segment must keep: about `steps * 5` events.
    pub(crate) fn rich(seed: u64, steps: u64) -> Self {
        let mut log = Self::new(seed);
        let data = r#"{"message":{"role":"system","content":[{"type":"text","text":"be brief"}]}}"#;
        log.push("system/message", data, r#","surfaceOp":"append""#);
        log.push("turn/start", r#"{"turn":1}"#, "");
        log.user("please mend it");
        log.header("initial");
        log.push("session/title", r#"{"title":"mending \u00fc"}"#, "");
        for step in 1..=steps {
            log.step(step, 6, 80, 300);
            match log.rng.below(7) {
                0 => {
                    let seq = log.events.len();
                    log.push_line(&format!(
                        r#"{{ "type": "todo/write", "time": 1.7e12, "seq": {seq}, "data": {{"a": [-0, 1e999]}} }}"#
                    ));
                }
                1 => log.push("hook/invoked", r#"{"name":"x","lone":"\ud83d"}"#, ""),
                2 => log.push("my/own", r#"{"n":18446744073709551616}"#, r#","ignorable":true"#),
                3 => {
                    let digest = format!("{:064x}", log.rng.next());
                    log.user(&format!("see blake3:{digest}"));
                }
                4 => log.push(
                    "request/dispatch",
                    r#"{"turn":1,"step":1,"digest":"blake3:00","bytes":3,"messages":1}"#,
                    r#","ignorable":true"#,
                ),
                5 => {
                    let last = log.fold().surface().len() - 1;
                    let start = 1 + log.rng.below(last as u64) as usize;
                    let end = start + log.rng.below((last - start + 1) as u64) as usize;
                    log.compact(start, end, "in short");
                }
                _ => {}
            }
        }
        log
    }
}

//! Logs whose last line, and only that, breaks one named rule.
//!
//! Owns a list of breakages, one for each clause of the admission table that a file can break.
//! `reserved` and `too-large` are not among them: the first guards the public append, the second
//! depends on a setting.

use super::text::Rng;
use super::write::{Kind, Place, Writer};

/// A log and the rule that its last line breaks.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The header line, valid events, and the line to be refused.
    pub lines: Vec<String>,
    /// The rule's name in the admission table.
    pub rule: &'static str,
    /// Which clause of the rule.
    pub what: &'static str,
}

/// What is on the surface before the last line, as seqs.
struct Stage {
    seq: u64,
    time: u64,
    /// A system prompt.
    head: u64,
    /// The node after it.
    second: u64,
    /// A tool result without error, and its data around the content.
    result: u64,
    result_data: (String, String),
    /// A node that stands before one with a smaller seq.
    high: u64,
    /// The node with the smaller seq, right after it.
    low: u64,
}

/// A message that is nothing but valid.
const USER: &str = r#"{"id":"z","role":"user","content":[{"type":"text","text":"z"}]}"#;
const ASSISTANT: &str = r#"{"message":{"id":"z","role":"assistant","source":{"kind":"model","provider":"p","model":"m"},"content":[]}}"#;

impl Stage {
    fn line(&self, kind: &str, data: &str, rest: &str) -> String {
        format!("{{\"type\":\"{kind}\",\"seq\":{},\"time\":{},\"data\":{data}{rest}}}", self.seq, self.time)
    }

    fn user(&self, rest: &str) -> String {
        self.line("user/message", USER, rest)
    }

    fn log_only(&self, data: &str) -> String {
        self.line("todo/write", data, "")
    }

    fn replace(&self, kind: &str, data: &str, start: u64, end: u64, sources: &[u64]) -> String {
        let sources: Vec<String> = sources.iter().map(u64::to_string).collect();
        let rest = format!(
            ",\"surfaceOp\":{{\"op\":\"replace\",\"startSeq\":{start},\"endSeq\":{end}}},\"sourceEventSeqs\":[{}]",
            sources.join(",")
        );
        self.line(kind, data, &rest)
    }

    fn header(&self, header: &str, rest: &str) -> String {
        self.line("request/header", &format!("{{\"header\":{header}{rest}}}"), "")
    }

    /// The tool result replaced by one with this around its content.
    fn rewrite(&self, before: &str, after: &str) -> String {
        let data = format!("{before}[{{\"type\":\"text\",\"text\":\"short\"}}]{after}");
        self.replace("tool/result", &data, self.result, self.result, &[self.result])
    }
}

type Break = fn(&Stage) -> String;

const APPEND: &str = ",\"surfaceOp\":\"append\"";
const PLAIN: &str = r#"{"config":{"provider":"p","model":"m"}}"#;
const INITIAL: &str = ",\"reason\":\"initial\"";

/// Every breakage: the rule, the clause, and the line.
const TABLE: &[(&str, &str, Break)] = &[
    ("json", "a-word", |_| "turn/start".to_owned()),
    ("json", "truncated", |at| at.user(APPEND).trim_end_matches("\"}").to_owned()),
    ("json", "two-values", |at| at.user(APPEND) + "{}"),
    ("json", "array", |at| format!("[{}]", at.user(APPEND))),
    ("json", "bare-nan", |at| at.log_only(r#"{"n":NaN}"#)),
    ("json", "leading-zero", |at| at.log_only(r#"{"n":01}"#)),
    ("json", "control-character", |at| at.log_only("{\"n\":\"a\u{1}b\"}")),
    ("json", "trailing-comma", |at| at.log_only(r#"{"n":1,}"#)),
    ("json", "half-escape", |at| at.log_only(r#"{"n":"\ud8"}"#)),
    ("json", "zeroes", |_| "\0".repeat(512)),
    ("json-depth", "arrays", |at| at.log_only(&format!("{{\"n\":{}{}}}", "[".repeat(127), "]".repeat(127)))),
    ("json-depth", "objects", |at| {
        at.log_only(&format!("{{\"n\":{}1{}}}", "{\"n\":".repeat(127), "}".repeat(127)))
    }),
    ("json-duplicate-key", "envelope", |at| at.user(",\"surfaceOp\":\"append\",\"surfaceOp\":\"append\"")),
    ("json-duplicate-key", "nested", |at| at.log_only(r#"{"n":[{"a":1,"b":2,"a":1}]}"#)),
    ("json-duplicate-key", "escaped", |at| at.log_only(r#"{"a":1,"\u0061":2}"#)),
    ("envelope", "unknown-key", |at| at.user(",\"surfaceOp\":\"append\",\"extra\":1")),
    ("envelope", "no-type", |at| format!("{{\"seq\":{},\"time\":{},\"data\":{{}}}}", at.seq, at.time)),
    ("envelope", "no-seq", |at| format!("{{\"type\":\"turn/start\",\"time\":{},\"data\":{{}}}}", at.time)),
    ("envelope", "no-time", |at| format!("{{\"type\":\"turn/start\",\"seq\":{},\"data\":{{}}}}", at.seq)),
    ("envelope", "no-data", |at| {
        format!("{{\"type\":\"turn/start\",\"seq\":{},\"time\":{}}}", at.seq, at.time)
    }),
    ("envelope", "type-no-string", |at| at.log_only("{}").replace("\"todo/write\"", "7")),
    ("envelope", "time-negative", |at| at.log_only("{}").replace("\"time\":", "\"time\":-")),
    ("envelope", "time-fraction", |at| at.log_only("{}").replace(",\"data\"", ".5,\"data\"")),
    ("envelope", "time-not-safe", |at| {
        at.log_only("{}").replace(&format!("\"time\":{}", at.time), "\"time\":9007199254740992")
    }),
    ("envelope", "data-array", |at| at.log_only("[]")),
    ("envelope", "data-null", |at| at.log_only("null")),
    ("envelope", "ignorable-false", |at| at.line("x-host/progress", "{}", ",\"ignorable\":false")),
    ("seq", "gap", |at| at.log_only("{}").replace("\"seq\":", "\"seq\":9")),
    ("seq", "repeated", |at| {
        at.log_only("{}").replace(&format!("\"seq\":{}", at.seq), &format!("\"seq\":{}", at.seq - 1))
    }),
    ("seq", "fraction", |at| at.log_only("{}").replace(",\"time\"", ".5,\"time\"")),
    ("seq", "negative", |at| at.log_only("{}").replace("\"seq\":", "\"seq\":-")),
    ("unknown-type", "foreign", |at| at.line("x-host/progress", "{}", "")),
    ("unknown-type", "other-case", |at| at.line("Turn/start", "{}", "")),
    ("surface-metadata", "no-op", |at| at.user("")),
    ("surface-metadata", "op-on-log-only", |at| at.line("turn/start", "{}", APPEND)),
    ("surface-metadata", "null-op-on-log-only", |at| at.line("turn/start", "{}", ",\"surfaceOp\":null")),
    ("surface-metadata", "sources-on-log-only", |at| at.line("turn/start", "{}", ",\"sourceEventSeqs\":[0]")),
    ("surface-op", "null", |at| at.user(",\"surfaceOp\":null")),
    ("surface-op", "other-word", |at| at.user(",\"surfaceOp\":\"prepend\"")),
    ("surface-op", "append-as-object", |at| at.user(",\"surfaceOp\":{\"op\":\"append\"}")),
    ("surface-op", "old-spelling", |at| {
        at.replace("user/message", USER, at.second, at.second, &[at.second])
            .replace("startSeq", "start")
            .replace("endSeq", "end")
    }),
    ("surface-op", "extra-key", |at| {
        at.replace("user/message", USER, at.second, at.second, &[at.second])
            .replace("\"op\":\"replace\"", "\"op\":\"replace\",\"why\":1")
    }),
    ("surface-op", "missing-end", |at| {
        at.user(&format!(
            ",\"surfaceOp\":{{\"op\":\"replace\",\"startSeq\":{}}},\"sourceEventSeqs\":[{}]",
            at.second, at.second
        ))
    }),
    ("surface-op", "not-earlier", |at| at.replace("user/message", USER, at.second, at.seq, &[at.second])),
    ("surface-op", "not-on-surface", |at| at.replace("user/message", USER, 0, 0, &[0])),
    ("surface-op", "against-surface-order", |at| {
        at.replace("user/message", USER, at.low, at.high, &[at.low, at.high])
    }),
    ("source-seqs", "empty", |at| at.user(",\"surfaceOp\":\"append\",\"sourceEventSeqs\":[]")),
    ("source-seqs", "no-list", |at| at.user(",\"surfaceOp\":\"append\",\"sourceEventSeqs\":0")),
    ("source-seqs", "twice", |at| at.user(",\"surfaceOp\":\"append\",\"sourceEventSeqs\":[0,0]")),
    ("source-seqs", "itself", |at| at.user(&format!("{APPEND},\"sourceEventSeqs\":[{}]", at.seq))),
    ("source-seqs", "fraction", |at| at.user(",\"surfaceOp\":\"append\",\"sourceEventSeqs\":[0.5]")),
    ("source-seqs", "shadowed-not-cited", |at| at.replace("user/message", USER, at.high, at.low, &[at.high])),
    ("source-seqs", "replace-without", |at| {
        at.user(&format!(
            ",\"surfaceOp\":{{\"op\":\"replace\",\"startSeq\":{},\"endSeq\":{}}}",
            at.second, at.second
        ))
    }),
    ("source-seqs", "assistant-cites", |at| {
        at.line("assistant/message", ASSISTANT, ",\"surfaceOp\":\"append\",\"sourceEventSeqs\":[0]")
    }),
    ("system-head", "user-over-it", |at| at.replace("user/message", USER, at.head, at.head, &[at.head])),
    ("system-head", "user-over-more", |at| {
        at.replace("user/message", USER, at.head, at.second, &[at.head, at.second])
    }),
    ("system-head", "system-over-more", |at| {
        let data = r#"{"message":{"id":"z","role":"system","content":[]}}"#;
        at.replace("system/message", data, at.head, at.second, &[at.head, at.second])
    }),
    ("tool-rewrite", "no-tool-result", |at| {
        let (before, after) = &at.result_data;
        at.replace("tool/result", &format!("{before}[]{after}"), at.second, at.second, &[at.second])
    }),
    ("tool-rewrite", "two-nodes", |at| {
        let (before, after) = &at.result_data;
        at.replace("tool/result", &format!("{before}[]{after}"), at.high, at.low, &[at.high, at.low])
    }),
    ("tool-rewrite", "call", |at| {
        let (before, after) = &at.result_data;
        at.rewrite(&before.replace("\"callId\":\"", "\"callId\":\"x"), after)
    }),
    ("tool-rewrite", "block-call", |at| {
        let (before, after) = &at.result_data;
        at.rewrite(&before.replace("\"toolCallId\":\"", "\"toolCallId\":\"x"), after)
    }),
    ("tool-rewrite", "message-id", |at| {
        let (before, after) = &at.result_data;
        at.rewrite(&before.replace("\"message\":{\"id\":\"", "\"message\":{\"id\":\"x"), after)
    }),
    ("tool-rewrite", "meta", |at| {
        let (before, after) = &at.result_data;
        at.rewrite(before, &after.replace("\"meta\":{\"n\":1", "\"meta\":{\"n\":2"))
    }),
    ("tool-rewrite", "meta-dropped", |at| at.rewrite(&at.result_data.0, "}]}}")),
    ("tool-rewrite", "error-flag", |at| {
        let (before, after) = &at.result_data;
        at.rewrite(&before.replace("\"content\":[{", "\"content\":[{\"isError\":true,"), after)
    }),
    ("tool-error", "no-flag", |at| {
        let (before, _) = &at.result_data;
        at.line("tool/result", &format!("{before}[]}}]}},\"error\":{{\"code\":\"X\"}}}}"), APPEND)
    }),
    ("tool-error", "flag-false", |at| {
        let before = at.result_data.0.replace("\"content\":[{", "\"content\":[{\"isError\":false,");
        at.line("tool/result", &format!("{before}[]}}]}},\"error\":{{\"code\":\"X\"}}}}"), APPEND)
    }),
    ("header", "system", |at| {
        at.header(r#"{"config":{"provider":"p","model":"m"},"system":"You are brief."}"#, INITIAL)
    }),
    ("header", "system-empty", |at| {
        at.header(r#"{"config":{"provider":"p","model":"m"},"system":""}"#, INITIAL)
    }),
    ("header", "system-null", |at| {
        at.header(r#"{"config":{"provider":"p","model":"m"},"system":null}"#, INITIAL)
    }),
    ("header", "tools-empty", |at| {
        at.header(r#"{"config":{"provider":"p","model":"m"},"tools":[]}"#, INITIAL)
    }),
    ("header", "defaults-empty", |at| {
        at.header(r#"{"config":{"provider":"p","model":"m"},"adapterDefaults":{}}"#, INITIAL)
    }),
    ("header", "no-provider", |at| at.header(r#"{"config":{"model":"m"}}"#, INITIAL)),
    ("header", "no-model", |at| at.header(r#"{"config":{"provider":"p"}}"#, INITIAL)),
    ("header", "no-config", |at| at.header("{}", INITIAL)),
    ("header", "no-header", |at| at.line("request/header", r#"{"reason":"initial"}"#, "")),
    ("header", "no-reason", |at| at.header(PLAIN, "")),
    ("header", "other-reason", |at| at.header(PLAIN, ",\"reason\":\"retry\"")),
    ("header", "starts-false", |at| at.header(PLAIN, ",\"reason\":\"initial\",\"startsSeries\":false")),
    ("legacy", "header-delta", |at| at.line("request/header-delta", r#"{"delta":{}}"#, "")),
    ("legacy", "fallback", |at| at.header(PLAIN, ",\"reason\":\"fallback\"")),
    ("payload", "user-no-content", |at| at.line("user/message", r#"{"id":"z","role":"user"}"#, APPEND)),
    ("payload", "user-content-text", |at| {
        at.line("user/message", r#"{"id":"z","role":"user","content":"z"}"#, APPEND)
    }),
    ("payload", "system-no-message", |at| at.line("system/message", "{}", APPEND)),
    ("payload", "tool-no-content", |at| {
        at.line("tool/result", r#"{"message":{"id":"z","role":"user"}}"#, APPEND)
    }),
    ("payload", "assistant-no-content", |at| {
        at.line("assistant/message", &ASSISTANT.replace(",\"content\":[]", ""), APPEND)
    }),
    ("payload", "assistant-no-source", |at| {
        let data = r#"{"message":{"id":"z","role":"assistant","content":[]}}"#;
        at.line("assistant/message", data, APPEND)
    }),
    ("payload", "assistant-no-model", |at| {
        at.line("assistant/message", &ASSISTANT.replace(",\"model\":\"m\"", ""), APPEND)
    }),
    ("payload", "assistant-no-provider", |at| {
        at.line("assistant/message", &ASSISTANT.replace(",\"provider\":\"p\"", ""), APPEND)
    }),
];

/// How many breakages there are.
pub const BREAKS: usize = TABLE.len();

/// A valid log whose last line breaks a rule; the seed chooses both.
pub fn broken(seed: u64) -> Broken {
    broken_by((Rng::new(seed).next() % BREAKS as u64) as usize, seed)
}

/// A valid log made of `seed`, whose last line breaks rule `index % BREAKS`.
pub fn broken_by(index: usize, seed: u64) -> Broken {
    let mut log = Writer::new(seed, "broken");
    let stage = stage(&mut log);
    let mut lines: Vec<String> = log.lines.into_iter().collect();
    let fallback: (&str, &str, Break) = ("json", "a-word", |_| "turn/start".to_owned());
    let (rule, what, line) = TABLE.get(index % BREAKS).copied().unwrap_or(fallback);
    lines.push(line(&stage));
    Broken { lines, rule, what }
}

/// Writes a short conversation after which every breakage has what it needs.
fn stage(log: &mut Writer) -> Stage {
    let turns = log.rng.between(0, 2);
    log.turn_start();
    log.step_start();
    log.header_once();
    log.user(80);
    for _ in 0..turns {
        let calls = log.answer(60, 1, 2);
        log.results(&calls, 100);
        log.user(50);
    }
    let before = "{\"turn\":1,\"step\":1,\"message\":{\"id\":\"r\",\"role\":\"user\",\"source\":{\"kind\":\"tool\",\"callId\":\"last\"},\"content\":[{\"type\":\"tool-result\",\"toolCallId\":\"last\",\"content\":".to_owned();
    let after = "}]},\"meta\":{\"n\":1}}".to_owned();
    log.assistant("{\"type\":\"tool-call\",\"id\":\"last\",\"name\":\"shell\",\"arguments\":\"{}\"}", "");
    let kind = Kind::Tool { before: before.clone(), after: after.clone(), pruned: false };
    let result = log.event("tool/result", &format!("{before}[]{after}"), &Place::Append(kind, Vec::new()));
    log.user(60);
    log.user(70);
    // The third node from the end is the result; the second is replaced, so that a high seq stands
    // before a low one.
    let at = log.surface.len() - 2;
    log.compact(at, at);
    let seq_at = |index: usize| log.surface.get(index).map(|node| node.seq).unwrap_or_default();
    Stage {
        seq: log.seq,
        time: log.time,
        head: seq_at(0),
        second: seq_at(1),
        result,
        result_data: (before, after),
        high: seq_at(at),
        low: seq_at(at + 1),
    }
}

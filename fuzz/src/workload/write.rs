//! Writes events as lines and keeps what the next one must know: seq, time, surface.
//!
//! Owns the shapes of the events. Decides nothing by itself: the generators call it in order.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;

use super::random::Operation;
use super::text::{self, Rng};

/// What a node of the surface is, as far as a later replace must know.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    System {
        empty: bool,
    },
    User,
    Assistant,
    /// A tool result: its data before and after the content of its block.
    Tool {
        before: String,
        after: String,
        pruned: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) seq: u64,
    pub(super) kind: Kind,
}

/// Where an event goes.
pub(super) enum Place {
    Log,
    Foreign,
    Append(Kind, Vec<u64>),
    /// In the place of the nodes at these indexes of the surface, both inclusive.
    Replace(Kind, usize, usize, Vec<u64>),
}

/// A tool call that waits for its result.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: &'static str,
    pub(super) arguments: String,
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) rng: Rng,
    pub(super) lines: VecDeque<String>,
    pub(super) seq: u64,
    pub(super) time: u64,
    pub(super) surface: Vec<Node>,
    pub(super) turn: u64,
    pub(super) step: u64,
    pub(super) without: BTreeSet<Operation>,
    has_header: bool,
    ids: u64,
}

const TOOLS: [&str; 5] = ["shell", "read_file", "edit_file", "search", "list_files"];

impl Writer {
    /// A plain log: nothing odd in it.
    pub(super) fn new(seed: u64, name: &str) -> Self {
        let mut lines = VecDeque::new();
        let created = 1_760_000_000_000 + seed % 1_000_000;
        lines.push_back(format!(
            "{{\"type\":\"session\",\"version\":3,\"id\":\"{name}-{seed}\",\"createdAt\":{created},\"cwd\":\"/home/dev/project\",\"isSeeded\":false}}"
        ));
        Self {
            rng: Rng::new(seed),
            lines,
            seq: 0,
            time: created,
            surface: Vec::new(),
            turn: 0,
            step: 0,
            without: Operation::ODD.into_iter().collect(),
            has_header: false,
            ids: 0,
        }
    }

    pub(super) fn has(&self, operation: Operation) -> bool {
        !self.without.contains(&operation)
    }

    /// Whether an operation is in this log and its turn has come.
    pub(super) fn lucky(&mut self, operation: Operation, chances: u64) -> bool {
        self.has(operation) && self.rng.one_in(chances)
    }

    pub(super) fn event(&mut self, kind: &str, data: &str, place: &Place) -> u64 {
        let seq = self.seq;
        self.seq += 1;
        self.time += self.rng.between(0, 900);
        let mut members = vec![
            format!("\"type\":\"{kind}\""),
            format!("\"seq\":{seq}"),
            format!("\"time\":{}", self.time),
            format!("\"data\":{data}"),
        ];
        match place {
            Place::Log => {}
            Place::Foreign => members.push("\"ignorable\":true".to_owned()),
            Place::Append(node, sources) => {
                members.push("\"surfaceOp\":\"append\"".to_owned());
                members.extend(cited(sources));
                self.surface.push(Node { seq, kind: node.clone() });
            }
            Place::Replace(node, first, last, also) => {
                let covered = self.surface.splice(*first..=*last, [Node { seq, kind: node.clone() }]);
                let covered: Vec<u64> = covered.map(|node| node.seq).collect();
                let start = covered.first().copied().unwrap_or_default();
                let end = covered.last().copied().unwrap_or_default();
                members.push(format!(
                    "\"surfaceOp\":{{\"op\":\"replace\",\"startSeq\":{start},\"endSeq\":{end}}}"
                ));
                let mut sources = also.clone();
                sources.extend(covered.into_iter().filter(|seq| !also.contains(seq)));
                members.extend(cited(&sources));
            }
        }
        if self.lucky(Operation::OddKeys, 6) {
            self.rng.shuffle(&mut members);
        }
        self.lines.push_back(format!("{{{}}}", members.join(",")));
        seq
    }

    /// A fresh id.
    pub(super) fn id(&mut self, of: &str) -> String {
        self.ids += 1;
        format!("{of}-{:04}", self.ids)
    }

    /// An object's text, its members in another order where the log is odd.
    pub(super) fn object(&mut self, members: &[String]) -> String {
        let mut members = members.to_vec();
        if self.lucky(Operation::OddKeys, 4) {
            self.rng.shuffle(&mut members);
        }
        if self.lucky(Operation::OddNumbers, 8) {
            let number = self.rng.pick(&text::ODD_NUMBERS);
            members.push(format!("\"x-n\":[{number},{{\"n\":{number}}}]"));
        }
        format!("{{{}}}", members.join(","))
    }

    /// Prose with, in odd logs, an odd fragment.
    pub(super) fn prose(&mut self, bytes: u64) -> String {
        let mut prose = text::prose(&mut self.rng, bytes);
        if self.lucky(Operation::OddText, 4) {
            prose.push_str(self.rng.pick(&text::ODD_TEXT));
        }
        prose
    }

    pub(super) fn text_block(&mut self, text: &str) -> String {
        self.object(&["\"type\":\"text\"".to_owned(), format!("\"text\":\"{text}\"")])
    }

    pub(super) fn turn_start(&mut self) {
        self.turn += 1;
        self.step = 0;
        let data = format!("{{\"turn\":{}}}", self.turn);
        self.event("turn/start", &data, &Place::Log);
    }

    pub(super) fn turn_end(&mut self, reason: &str) {
        let data = format!("{{\"turn\":{},\"reason\":{{\"kind\":\"{reason}\"}}}}", self.turn);
        self.event("turn/end", &data, &Place::Log);
    }

    fn step_data(&self) -> String {
        format!("{{\"turn\":{},\"step\":{}}}", self.turn, self.step)
    }

    pub(super) fn step_start(&mut self) {
        self.step += 1;
        let data = self.step_data();
        self.event("step/start", &data, &Place::Log);
        if self.surface.is_empty() {
            self.system_at(None, 900);
        }
    }

    pub(super) fn step_end(&mut self) {
        let data = self.step_data();
        self.event("step/end", &data, &Place::Log);
    }

    /// A system prompt at the tail, or in the place of one node; none of its text where `bytes` is 0.
    pub(super) fn system_at(&mut self, at: Option<usize>, bytes: u64) {
        let content = if bytes == 0 {
            String::new()
        } else {
            let prose = self.prose(bytes);
            self.text_block(&prose)
        };
        let id = self.id("s");
        let message = self.object(&[
            format!("\"id\":\"{id}\""),
            "\"role\":\"system\"".to_owned(),
            format!("\"content\":[{content}]"),
        ]);
        let data = format!("{{\"turn\":{},\"step\":{},\"message\":{message}}}", self.turn, self.step);
        let kind = Kind::System { empty: bytes == 0 };
        let place = match at {
            None => Place::Append(kind, Vec::new()),
            Some(index) => Place::Replace(kind, index, index, Vec::new()),
        };
        self.event("system/message", &data, &place);
    }

    pub(super) fn user_data(&mut self, bytes: u64) -> String {
        let (id, prose) = (self.id("u"), self.prose(bytes));
        let block = self.text_block(&prose);
        self.object(&[
            format!("\"id\":\"{id}\""),
            "\"role\":\"user\"".to_owned(),
            format!("\"content\":[{block}]"),
            "\"source\":{\"kind\":\"user\"}".to_owned(),
        ])
    }

    pub(super) fn user(&mut self, bytes: u64) {
        let data = self.user_data(bytes);
        self.event("user/message", &data, &Place::Append(Kind::User, Vec::new()));
    }

    /// The first header, where none has been written.
    pub(super) fn header_once(&mut self) {
        if !self.has_header {
            self.header("initial", 0);
        }
    }

    /// A header; `variant` chooses its model, tools, options and defaults.
    pub(super) fn header(&mut self, reason: &str, variant: u64) {
        self.has_header = true;
        let model =
            ["orla-2", "orla-2-mini", "orla-3"].get((variant % 3) as usize).copied().unwrap_or("orla-2");
        let mut config = vec!["\"provider\":\"northwind\"".to_owned(), format!("\"model\":\"{model}\"")];
        if variant % 2 == 1 {
            config.push("\"maxTokens\":8192".to_owned());
            config.push("\"stop\":[]".to_owned());
        }
        let config = self.object(&config);
        let mut header = vec![format!("\"config\":{config}")];
        if variant % 5 != 4 {
            let mut names = TOOLS.to_vec();
            names.truncate(5 - (variant % 4) as usize);
            if variant % 7 == 3 {
                names.reverse();
            }
            let tools: Vec<String> = names.into_iter().map(|name| self.tool(name)).collect();
            header.push(format!("\"tools\":[{}]", tools.join(",")));
        }
        if variant % 3 == 1 {
            header.push("\"adapterDefaults\":{\"maxTokens\":true}".to_owned());
        }
        let header = self.object(&header);
        let mut data = vec![format!("\"header\":{header}"), format!("\"reason\":\"{reason}\"")];
        if reason == "series" || variant % 4 == 2 {
            data.push("\"startsSeries\":true".to_owned());
        }
        let data = self.object(&data);
        self.event("request/header", &data, &Place::Log);
    }

    fn tool(&mut self, name: &str) -> String {
        let parameters = self.object(&[
            "\"type\":\"object\"".to_owned(),
            "\"properties\":{\"path\":{\"type\":\"string\"},\"query\":{\"type\":\"string\"}}".to_owned(),
            "\"required\":[\"path\"]".to_owned(),
        ]);
        self.object(&[
            format!("\"name\":\"{name}\""),
            format!("\"description\":\"Runs {name} in the project and returns its output.\""),
            format!("\"parameters\":{parameters}"),
        ])
    }

    /// An answer of `bytes` bytes that asks for `calls` calls, with `deltas` deltas in its stream.
    pub(super) fn answer(&mut self, bytes: u64, calls: u64, deltas: u64) -> Vec<Call> {
        let prose = self.prose(bytes);
        let mut blocks = vec![self.text_block(&prose)];
        if self.rng.one_in(6) {
            let thought = self.prose(bytes / 2 + 1);
            blocks.insert(0, format!("{{\"type\":\"reasoning\",\"text\":\"{thought}\"}}"));
        }
        let calls: Vec<Call> = (0..calls).map(|_| self.call()).collect();
        for call in &calls {
            blocks.push(format!(
                "{{\"type\":\"tool-call\",\"id\":\"{}\",\"name\":\"{}\",\"arguments\":\"{}\"}}",
                call.id, call.name, call.arguments
            ));
        }
        let stream = self.stream(&prose, deltas);
        self.assistant(&blocks.join(","), &stream);
        calls
    }

    /// An assistant message with this content and these stream entries.
    pub(super) fn assistant(&mut self, content: &str, stream: &str) {
        let id = self.id("a");
        let message = self.object(&[
            format!("\"id\":\"{id}\""),
            "\"role\":\"assistant\"".to_owned(),
            format!("\"content\":[{content}]"),
            "\"source\":{\"kind\":\"model\",\"provider\":\"northwind\",\"model\":\"orla-2\"}".to_owned(),
        ]);
        let (read, written) = (self.rng.between(800, 90_000), self.rng.between(3, 900));
        let data = format!(
            "{{\"turn\":{},\"step\":{},\"message\":{message},\"stream\":[{stream}],\"usage\":{{\"inputTokens\":{},\"outputTokens\":{written},\"cacheReadTokens\":{}}}}}",
            self.turn,
            self.step,
            read,
            read - read / 9
        );
        self.event("assistant/message", &data, &Place::Append(Kind::Assistant, Vec::new()));
    }

    /// An attempt from which nothing became visible.
    pub(super) fn attempt(&mut self) {
        let data = format!(
            "{{\"turn\":{},\"step\":{},\"stream\":[{{\"type\":\"chunk\",\"time\":{},\"chunk\":{{\"type\":\"error\",\"message\":\"overloaded\"}}}}]}}",
            self.turn, self.step, self.time
        );
        self.event("assistant/attempt", &data, &Place::Log);
        if self.rng.one_in(2) {
            let data =
                format!("{{\"turn\":{},\"step\":{},\"retry\":1,\"delayMs\":500}}", self.turn, self.step);
            self.event("llm/retry", &data, &Place::Log);
        }
    }

    fn stream(&mut self, prose: &str, deltas: u64) -> String {
        let mut stream = String::new();
        let mut time = self.time;
        let words: Vec<&str> = prose.split(' ').collect();
        let share = words.len().div_ceil(deltas.max(1) as usize).max(1);
        for place in 0..deltas as usize {
            time += self.rng.between(4, 40);
            let logprob = self.rng.between(1, 9999);
            let text: Vec<&str> = words.iter().skip(place * share).take(share).copied().collect();
            let comma = if place == 0 { "" } else { "," };
            let _infallible = write!(
                stream,
                "{comma}{{\"type\":\"chunk\",\"time\":{time},\"chunk\":{{\"type\":\"text-delta\",\"index\":0,\"text\":\"{} \",\"tokens\":{},\"logprob\":-0.{logprob:04}}}}}",
                text.join(" "),
                text.len()
            );
        }
        stream
    }

    fn call(&mut self) -> Call {
        let name = self.rng.pick(&TOOLS);
        let id = self.id("call");
        let (folder, file) = (text::word(&mut self.rng), text::word(&mut self.rng));
        let name = TOOLS.into_iter().find(|known| *known == name).unwrap_or("shell");
        Call { id, name, arguments: format!("{{\\\"path\\\":\\\"{folder}/{file}.rs\\\"}}") }
    }

    /// `tool/call` and `tool/result` for each call, in order, each result of about `bytes` bytes.
    pub(super) fn results(&mut self, calls: &[Call], bytes: u64) {
        let started: Vec<u64> = calls.iter().map(|call| self.call_started(call)).collect();
        for (call, started) in calls.iter().zip(started) {
            self.result(call, Some(started), bytes);
        }
    }

    pub(super) fn call_started(&mut self, call: &Call) -> u64 {
        let data = format!(
            "{{\"turn\":{},\"step\":{},\"callId\":\"{}\",\"name\":\"{}\",\"arguments\":\"{}\"}}",
            self.turn, self.step, call.id, call.name, call.arguments
        );
        self.event("tool/call", &data, &Place::Log)
    }

    pub(super) fn result(&mut self, call: &Call, started: Option<u64>, bytes: u64) {
        let failed = self.rng.one_in(9);
        let id = self.id("r");
        let error = if failed { "\"isError\":true," } else { "" };
        let before = format!(
            "{{\"turn\":{},\"step\":{},\"message\":{{\"id\":\"{id}\",\"role\":\"user\",\"source\":{{\"kind\":\"tool\",\"callId\":\"{}\"}},\"content\":[{{\"type\":\"tool-result\",\"toolCallId\":\"{}\",{error}\"content\":",
            self.turn, self.step, call.id, call.id
        );
        let mut after = "}]}".to_owned();
        if failed {
            after.push_str(",\"error\":{\"name\":\"ToolError\",\"code\":\"EXIT_1\"}");
        }
        if self.rng.one_in(4) {
            let number =
                if self.has(Operation::OddNumbers) { self.rng.pick(&text::ODD_NUMBERS) } else { "17" };
            let _infallible = write!(after, ",\"meta\":{{\"ms\":{number},\"lines\":[1,{number}]}}");
        }
        after.push('}');
        let mut output = text::output(&mut self.rng, bytes);
        if self.lucky(Operation::OddText, 4) {
            output.push_str(self.rng.pick(&text::ODD_TEXT));
        }
        let block = self.text_block(&output);
        let data = format!("{before}[{block}]{after}");
        let kind = Kind::Tool { before, after, pruned: false };
        self.event("tool/result", &data, &Place::Append(kind, started.into_iter().collect()));
    }

    /// Replaces the tool result at this index by one that is shorter.
    pub(super) fn prune(&mut self, index: usize) {
        let Some(Node { kind: Kind::Tool { before, after, .. }, seq }) = self.surface.get(index).cloned()
        else {
            return;
        };
        if self.rng.one_in(2) {
            self.event("compaction/prune", &format!("{{\"seqs\":[{seq}]}}"), &Place::Log);
        }
        let data = format!("{before}[{{\"type\":\"text\",\"text\":\"[output removed]\"}}]{after}");
        let kind = Kind::Tool { before, after, pruned: true };
        self.event("tool/result", &data, &Place::Replace(kind, index, index, Vec::new()));
    }

    pub(super) fn prune_oldest(&mut self) {
        let fresh = |node: &Node| matches!(node.kind, Kind::Tool { pruned: false, .. });
        if let Some(index) = self.surface.iter().position(fresh) {
            self.prune(index);
        }
    }

    /// Summarises the nodes at these indexes, both inclusive.
    pub(super) fn compact(&mut self, first: usize, last: usize) {
        let id = self.id("k");
        self.event("compaction/start", &format!("{{\"compactionId\":\"{id}\"}}"), &Place::Log);
        let prose = self.prose(700);
        let summary = format!(
            "{{\"compactionId\":\"{id}\",\"provider\":\"northwind\",\"model\":\"orla-2-mini\",\"maxTokens\":4096,\"summary\":[{{\"type\":\"text\",\"text\":\"{prose}\"}}]}}"
        );
        let source = self.event("compaction/summary", &summary, &Place::Log);
        let message = self.id("u");
        let data = format!(
            "{{\"id\":\"{message}\",\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"<summary>{prose}</summary>\"}}],\"source\":{{\"kind\":\"plugin\",\"plugin\":\"compaction\"}}}}"
        );
        self.event("user/message", &data, &Place::Replace(Kind::User, first, last, vec![source]));
        self.event("compaction/end", &format!("{{\"compactionId\":\"{id}\"}}"), &Place::Log);
    }

    /// An image block: a made-up reference, as the object store would give it.
    fn image_block(&mut self) -> String {
        let mut digest = String::with_capacity(64);
        for _ in 0..4 {
            let _infallible = write!(digest, "{:016x}", self.rng.next());
        }
        let (bytes, width, height) =
            (self.rng.between(40_000, 900_000), self.rng.between(320, 1920), self.rng.between(240, 1200));
        format!(
            "{{\"type\":\"image\",\"attachment\":{{\"attachmentId\":\"blake3:{digest}\",\"mediaType\":\"image/png\",\"bytes\":{bytes},\"width\":{width},\"height\":{height}}}}}"
        )
    }

    /// A question with an image, a step whose call gives a screenshot, and a step that answers.
    pub(super) fn image_turn(&mut self) {
        self.turn_start();
        self.step_start();
        let (id, prose) = (self.id("u"), self.prose(120));
        let blocks = format!("{},{}", self.text_block(&prose), self.image_block());
        let data = format!(
            "{{\"id\":\"{id}\",\"role\":\"user\",\"content\":[{blocks}],\"source\":{{\"kind\":\"user\"}}}}"
        );
        self.event("user/message", &data, &Place::Append(Kind::User, Vec::new()));
        self.header_once();
        for call in self.answer(120, 1, 3) {
            let started = self.call_started(&call);
            let (id, image) = (self.id("r"), self.image_block());
            let data = format!(
                "{{\"turn\":{},\"step\":{},\"message\":{{\"id\":\"{id}\",\"role\":\"user\",\"source\":{{\"kind\":\"tool\",\"callId\":\"{}\"}},\"content\":[{{\"type\":\"tool-result\",\"toolCallId\":\"{}\",\"content\":[{image}]}}]}}}}",
                self.turn, self.step, call.id, call.id
            );
            // Marked as pruned: a result of an image alone has no text to remove.
            let kind = Kind::Tool { before: String::new(), after: String::new(), pruned: true };
            self.event("tool/result", &data, &Place::Append(kind, vec![started]));
        }
        self.step_end();
        self.step_start();
        self.answer(300, 0, 6);
        self.step_end();
        self.turn_end("completed");
    }

    /// A question, one step of `calls` parallel calls, and a step that answers.
    pub(super) fn plain_turn(&mut self, calls: u64, result_bytes: u64) {
        self.turn_start();
        self.step_start();
        self.user(160);
        self.header_once();
        let calls = self.answer(120, calls, 3);
        self.results(&calls, result_bytes);
        self.step_end();
        self.step_start();
        self.answer(500, 0, 6);
        self.step_end();
        self.turn_end("completed");
    }
}

fn cited(sources: &[u64]) -> Option<String> {
    let seqs: Vec<String> = sources.iter().map(u64::to_string).collect();
    (!seqs.is_empty()).then(|| format!("\"sourceEventSeqs\":[{}]", seqs.join(",")))
}

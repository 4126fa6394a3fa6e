//! The naive reference: a log folded from its start, line by line, with no cache.
//!
//! Owns the admission table, the surface, the header in force and the canonical request bytes, each
//! written down in the plainest way. Rules are tried in the table's order, except that `legacy`
//! stands before `unknown-type` and `header`, whose cases it takes, and `too-large` before reading.
//! Shares nothing with the product: where the two disagree, one of them is wrong.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::json::{Json, JsonError};

const SURFACE: [&str; 4] = ["system/message", "user/message", "assistant/message", "tool/result"];
const LOG_ONLY: [&str; 18] = [
    "turn/start",
    "turn/end",
    "step/start",
    "step/end",
    "assistant/attempt",
    "tool/call",
    "request/header",
    "request/context",
    "request/dispatch",
    "session/end-seed",
    "compaction/start",
    "compaction/summary",
    "compaction/end",
    "compaction/prune",
    "agent/inbox/spliced",
    "todo/write",
    "session/title",
    "llm/retry",
];
const REASONS: [&str; 4] = ["initial", "resume", "change", "series"];

/// Largest admitted event, in bytes of its line, where nothing else was asked for: 64 MiB.
const EVENT_BYTES_MAX: usize = 64 << 20;

/// A line that is not admitted; log, surface and header are as before. Correct the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seq {seq}: {rule}: {why}")]
pub struct Refusal {
    /// The seq that was next.
    pub seq: u64,
    /// The rule's name in the admission table.
    pub rule: &'static str,
    /// What is wrong, in words.
    pub why: String,
}

/// One request of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestExpected {
    /// The `assistant/message` or `assistant/attempt` that settled it.
    pub settled_by: u64,
    /// The `request/header` in force.
    pub header_seq: u64,
    /// How many messages it carries.
    pub messages: u64,
    /// Length of its canonical bytes.
    pub bytes: u64,
    /// How many replaces the surface had seen.
    pub generation: u64,
    /// Digest of its canonical bytes, in hex.
    pub blake3: String,
}

/// The request that would be sent at the end of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextExpected {
    /// The `request/header` in force.
    pub header_seq: u64,
    /// How many messages it carries.
    pub messages: u64,
    /// Length of its canonical bytes.
    pub bytes: u64,
    /// Digest of its canonical bytes, in hex.
    pub blake3: String,
}

/// What an admitted log gives: the form of `*.expected.json` beside valid logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// The session's id.
    pub session: String,
    /// How many events the log holds.
    pub events: u64,
    /// Always true.
    pub admitted: bool,
    /// The seqs of the live nodes, in the model's order.
    pub surface: Vec<u64>,
    /// How many replaces the surface has seen.
    pub generation: u64,
    /// Every request, in order.
    pub requests: Vec<RequestExpected>,
    /// The request that would come next; none before the first header.
    pub next: Option<NextExpected>,
}

/// What a refused log gives: the form of `*.expected.json` beside refused logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedExpected {
    /// The seq that was next.
    pub seq: u64,
    /// The rule's name in the admission table.
    pub rule: String,
    /// The surface, unchanged by the refusal.
    pub surface: Vec<u64>,
    /// The generation, unchanged by the refusal.
    pub generation: u64,
}

/// Folds a whole log, its header line first, until a line is refused.
///
/// An empty last line is no line. Cost: [`Model::push_line`] for each line.
pub fn fold(log: &[u8]) -> (Model, Result<(), Refusal>) {
    let log = log.strip_suffix(b"\n").unwrap_or(log);
    let mut lines = log.split(|byte| *byte == b'\n');
    let head = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let mut model = match Model::opened_by(&head) {
        Ok(model) => model,
        Err(refusal) => return (Model::new(), Err(refusal)),
    };
    let end = lines.try_for_each(|line| model.push_bytes(line));
    (model, end)
}

#[derive(Clone, Debug)]
struct Node {
    of_system: bool,
    of_tool: bool,
    data: String,
    /// The projected text; none where the node shows nothing.
    message: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Append,
    Replace { start_seq: u64, end_seq: u64 },
}

/// A session folded from its start.
#[derive(Clone, Debug, Default)]
pub struct Model {
    session: String,
    registered: BTreeSet<String>,
    event_bytes_max: Option<usize>,
    skips_requests: bool,
    next_seq: u64,
    nodes: BTreeMap<u64, Node>,
    ops: Vec<(u64, Op)>,
    surface: Vec<u64>,
    generation: u64,
    header: Option<(u64, String)>,
    requests: Vec<RequestExpected>,
}

/// An event that broke no rule, with what the fold needs of it.
struct Admitted {
    op: Option<Op>,
    node: Option<Node>,
    header: Option<String>,
    settles: bool,
}

type Broken = (&'static str, String);

fn broken<T>(rule: &'static str, why: impl Into<String>) -> Result<T, Broken> {
    Err((rule, why.into()))
}

impl Model {
    /// An empty session of no name.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty session named by the header line of its log.
    ///
    /// # Errors
    ///
    /// The line is no header of a version 3 log; the refusal's seq is 0 and its rule `envelope`,
    /// or one of the `json` rules.
    pub fn opened_by(line: &str) -> Result<Self, Refusal> {
        let refused = |(rule, why): Broken| Refusal { seq: 0, rule, why };
        let head = read(line).map_err(refused)?;
        let of = |key: &str| head.get(key);
        let named = of("id").filter(|id| id.is_string());
        let version = of("version").and_then(Json::safe_integer) == Some(3);
        let created = of("createdAt").and_then(Json::safe_integer).is_some();
        match named {
            Some(id) if of("type").is_some_and(|kind| kind.is_str("session")) && version && created => {
                let session = serde_json::from_str(id.raw).unwrap_or_else(|_| id.raw.to_owned());
                Ok(Self { session, ..Self::default() })
            }
            _ => Err(refused(("envelope", "no version 3 session header".to_owned()))),
        }
    }

    /// The same session, to which log-only types of these names are known.
    #[must_use]
    pub fn with_types(mut self, types: &[&str]) -> Self {
        self.registered.extend(types.iter().map(|name| (*name).to_owned()));
        self
    }

    /// The same session with another limit for one event, in bytes of its line.
    #[must_use]
    pub fn with_event_bytes_max(mut self, bytes: usize) -> Self {
        self.event_bytes_max = Some(bytes);
        self
    }

    /// The same session without a record of its requests, whose cost is quadratic.
    #[must_use]
    pub fn without_requests(mut self) -> Self {
        self.skips_requests = true;
        self
    }

    /// Admits the next line of an imported or recovered log.
    ///
    /// # Cost
    ///
    /// One tree of the line; where it settles a request, one copy of the whole request.
    ///
    /// # Errors
    ///
    /// A rule is broken, and nothing changed.
    pub fn push_line(&mut self, line: &str) -> Result<(), Refusal> {
        self.push(line, false)
    }

    /// Admits the next line as the public append does, which the `reserved` rule guards.
    ///
    /// # Errors
    ///
    /// A rule is broken, and nothing changed.
    pub fn push_public_line(&mut self, line: &str) -> Result<(), Refusal> {
        self.push(line, true)
    }

    /// Admits the next line, which may be no UTF-8.
    ///
    /// # Errors
    ///
    /// A rule is broken, and nothing changed.
    pub fn push_bytes(&mut self, line: &[u8]) -> Result<(), Refusal> {
        match std::str::from_utf8(line) {
            Ok(line) => self.push_line(line),
            Err(error) => Err(Refusal { seq: self.next_seq, rule: "json", why: error.to_string() }),
        }
    }

    /// The session's id.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// The seq of the event that comes next, and the count of those that came.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The seqs of the live nodes, in the model's order.
    pub fn surface(&self) -> Vec<u64> {
        self.surface.clone()
    }

    /// The surface before the event at `seq` came: all events with a smaller seq, folded anew.
    pub fn surface_at(&self, seq: u64) -> Vec<u64> {
        let mut surface = Vec::new();
        for (at, op) in self.ops.iter().filter(|(at, _)| *at < seq) {
            apply(&mut surface, *at, *op);
        }
        surface
    }

    /// How many replaces the surface has seen.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The seq of the header in force, and its verbatim text.
    pub fn header(&self) -> Option<(u64, &str)> {
        self.header.as_ref().map(|(seq, text)| (*seq, text.as_str()))
    }

    /// The verbatim messages that the surface shows now, each with its seq.
    pub fn messages(&self) -> Vec<(u64, &str)> {
        let shown = |seq: &u64| self.nodes.get(seq)?.message.as_deref().map(|text| (*seq, text));
        self.surface.iter().filter_map(shown).collect()
    }

    /// Canonical bytes of the request that would be sent now; none before the first header.
    pub fn next_request(&self) -> Option<Vec<u8>> {
        let (_, header) = self.header.as_ref()?;
        let messages: Vec<_> = self.messages().into_iter().map(|(_, text)| text).collect();
        Some(format!("{{\"header\":{header},\"messages\":[{}]}}", messages.join(",")).into_bytes())
    }

    /// Every request that was settled, in order.
    pub fn requests(&self) -> &[RequestExpected] {
        &self.requests
    }

    /// Everything that a test compares, of a log that was admitted whole.
    pub fn expected(&self) -> Expected {
        Expected {
            session: self.session.clone(),
            events: self.next_seq,
            admitted: true,
            surface: self.surface(),
            generation: self.generation,
            requests: self.requests.clone(),
            next: self.request(0).map(|request| NextExpected {
                header_seq: request.header_seq,
                messages: request.messages,
                bytes: request.bytes,
                blake3: request.blake3,
            }),
        }
    }

    /// Everything that a test compares, of a log whose last line was refused.
    pub fn expected_refused(&self, refusal: &Refusal) -> RefusedExpected {
        RefusedExpected {
            seq: refusal.seq,
            rule: refusal.rule.to_owned(),
            surface: self.surface(),
            generation: self.generation,
        }
    }

    fn request(&self, settled_by: u64) -> Option<RequestExpected> {
        let (header_seq, _) = self.header.as_ref()?;
        let bytes = self.next_request()?;
        Some(RequestExpected {
            settled_by,
            header_seq: *header_seq,
            messages: self.messages().len() as u64,
            bytes: bytes.len() as u64,
            generation: self.generation,
            blake3: blake3::hash(&bytes).to_hex().to_string(),
        })
    }

    fn push(&mut self, line: &str, public: bool) -> Result<(), Refusal> {
        let seq = self.next_seq;
        let admitted = self.admit(line, public).map_err(|(rule, why)| Refusal { seq, rule, why })?;
        if admitted.settles && !self.skips_requests {
            self.requests.extend(self.request(seq));
        }
        if let Some(header) = admitted.header {
            self.header = Some((seq, header));
        }
        if let Some(op) = admitted.op {
            apply(&mut self.surface, seq, op);
            self.generation += u64::from(matches!(op, Op::Replace { .. }));
            self.ops.push((seq, op));
        }
        if let Some(node) = admitted.node {
            self.nodes.insert(seq, node);
        }
        self.next_seq += 1;
        Ok(())
    }

    fn admit(&self, line: &str, public: bool) -> Result<Admitted, Broken> {
        if self.event_bytes_max.unwrap_or(EVENT_BYTES_MAX) < line.len() {
            return broken("too-large", format!("{} bytes", line.len()));
        }
        let event = read(line)?;
        let (kind, data) = self.envelope(&event)?;
        let kind = kind.as_str();
        let ignorable = event.get("ignorable").is_some();
        if kind == "request/header-delta" {
            return broken("legacy", "request/header-delta");
        }
        let of_surface = SURFACE.contains(&kind);
        let log_only = LOG_ONLY.contains(&kind) || self.registered.contains(kind);
        if !of_surface && !log_only {
            if !ignorable {
                return broken("unknown-type", kind);
            }
            return Ok(Admitted { op: None, node: None, header: None, settles: false });
        }
        let op = event.get("surfaceOp");
        let sources = event.get("sourceEventSeqs");
        if of_surface && op.is_none() {
            return broken("surface-metadata", "no surfaceOp");
        }
        if log_only && (op.is_some() || sources.is_some()) {
            return broken("surface-metadata", format!("{kind} is not on the surface"));
        }
        let op = op.map(|op| self.surface_op(op)).transpose()?;
        let covered = match op {
            Some(Op::Replace { start_seq, end_seq }) => self.covered(start_seq, end_seq)?,
            _ => Vec::new(),
        };
        self.source_seqs(kind, sources, &covered)?;
        self.system_head(kind, &covered)?;
        if kind == "tool/result" {
            self.tool_rewrite(data, &covered)?;
            tool_error(data)?;
        }
        let header = if kind == "request/header" { Some(header(data)?) } else { None };
        let node = if of_surface { Some(node(kind, data)?) } else { None };
        if public && (kind == "session/end-seed" || kind == "request/dispatch") {
            return broken("reserved", kind);
        }
        let settles = kind == "assistant/message" || kind == "assistant/attempt";
        Ok(Admitted { op, node, header, settles })
    }

    fn envelope<'a, 'b>(&self, event: &'b Json<'a>) -> Result<(String, &'b Json<'a>), Broken> {
        let known = ["type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs", "ignorable"];
        for (key, _) in event.members().unwrap_or_default() {
            let key = String::from_utf16_lossy(key);
            if !known.contains(&key.as_str()) {
                return broken("envelope", format!("unknown key {key}"));
            }
        }
        let of = |key: &str| event.get(key).ok_or(("envelope", format!("no {key}")));
        let (kind, seq, time, data) = (of("type")?, of("seq")?, of("time")?, of("data")?);
        let crate::Kind::String(kind) = &kind.kind else { return broken("envelope", "type is no string") };
        if time.safe_integer().is_none() {
            return broken("envelope", "time is no safe non-negative integer");
        }
        if data.members().is_none() {
            return broken("envelope", "data is no object");
        }
        if event.get("ignorable").is_some_and(|value| !value.is_true()) {
            return broken("envelope", "ignorable is not true");
        }
        if seq.safe_integer() != Some(self.next_seq) {
            return broken("seq", format!("{} where {} is next", seq.raw, self.next_seq));
        }
        Ok((String::from_utf16_lossy(kind), data))
    }

    fn surface_op(&self, op: &Json<'_>) -> Result<Op, Broken> {
        if op.is_str("append") {
            return Ok(Op::Append);
        }
        let end = |key: &str| op.get(key).and_then(Json::safe_integer);
        let exact = op.members().is_some_and(|members| members.len() == 3);
        match (op.get("op"), end("startSeq"), end("endSeq")) {
            (Some(name), Some(start_seq), Some(end_seq)) if exact && name.is_str("replace") => {
                if self.next_seq <= start_seq || self.next_seq <= end_seq {
                    return broken("surface-op", "an endpoint is not earlier");
                }
                Ok(Op::Replace { start_seq, end_seq })
            }
            _ => broken("surface-op", format!("neither append nor a replace: {}", op.raw)),
        }
    }

    fn covered(&self, start_seq: u64, end_seq: u64) -> Result<Vec<u64>, Broken> {
        let place = |seq: u64| {
            let place = self.surface.iter().position(|node| *node == seq);
            place.ok_or(("surface-op", format!("{seq} is not on the surface")))
        };
        let (start, end) = (place(start_seq)?, place(end_seq)?);
        if end < start {
            return broken("surface-op", format!("{end_seq} stands before {start_seq}"));
        }
        Ok(self.surface.iter().skip(start).take(end - start + 1).copied().collect())
    }

    fn source_seqs(&self, kind: &str, sources: Option<&Json<'_>>, covered: &[u64]) -> Result<(), Broken> {
        let rule = "source-seqs";
        let mut cited = BTreeSet::new();
        if let Some(sources) = sources {
            if kind == "assistant/message" {
                return broken(rule, "an assistant/message cites nothing");
            }
            let Some(items) = sources.items() else { return broken(rule, "no list") };
            if items.is_empty() {
                return broken(rule, "an empty list");
            }
            for item in items {
                match item.safe_integer() {
                    Some(seq) if seq < self.next_seq => {
                        if !cited.insert(seq) {
                            return broken(rule, format!("{seq} twice"));
                        }
                    }
                    _ => return broken(rule, format!("{} is no earlier seq", item.raw)),
                }
            }
        }
        match covered.iter().find(|seq| !cited.contains(seq)) {
            Some(seq) => broken(rule, format!("{seq} is shadowed and not cited")),
            None => Ok(()),
        }
    }

    fn system_head(&self, kind: &str, covered: &[u64]) -> Result<(), Broken> {
        let Some(first) = self.surface.first() else { return Ok(()) };
        let of_system = self.nodes.get(first).is_some_and(|node| node.of_system);
        if !of_system || !covered.contains(first) {
            return Ok(());
        }
        if kind == "system/message" && covered.len() == 1 {
            return Ok(());
        }
        broken("system-head", format!("node {first} is the system prompt"))
    }

    fn tool_rewrite(&self, data: &Json<'_>, covered: &[u64]) -> Result<(), Broken> {
        let rule = "tool-rewrite";
        let [seq] = covered else {
            return if covered.is_empty() { Ok(()) } else { broken(rule, "more than one node") };
        };
        let Some(old) = self.nodes.get(seq).filter(|node| node.of_tool) else {
            return broken(rule, format!("{seq} is no tool/result"));
        };
        let old = read(&old.data)?;
        let same = match (old.get("message"), data.get("message")) {
            (Some(before), Some(after)) => {
                let block = |message: &Json<'_>| {
                    message.get("content")?.items()?.first().map(|block| block.raw.to_owned())
                };
                let same_block = match (block(before), block(after)) {
                    (Some(before), Some(after)) => {
                        let (before, after) = (value(&before)?, value(&after)?);
                        before.same_but(&after, "content") || before.same_value(&after)
                    }
                    (None, None) => true,
                    _ => false,
                };
                before.same_but(after, "content") && same_block
            }
            _ => false,
        };
        if !same || !old.same_but(data, "message") {
            return broken(rule, "more than the content differs");
        }
        Ok(())
    }
}

fn apply(surface: &mut Vec<u64>, seq: u64, op: Op) {
    match op {
        Op::Append => surface.push(seq),
        Op::Replace { start_seq, end_seq } => {
            let before: Vec<u64> = surface.iter().copied().take_while(|node| *node != start_seq).collect();
            let after: Vec<u64> =
                surface.iter().copied().skip_while(|node| *node != end_seq).skip(1).collect();
            *surface = [before, vec![seq], after].concat();
        }
    }
}

fn value(text: &str) -> Result<Json<'_>, Broken> {
    Json::read(text).map_err(|error| match error {
        JsonError::Syntax(_) => ("json", error.to_string()),
        JsonError::Depth(_) => ("json-depth", error.to_string()),
    })
}

fn read(line: &str) -> Result<Json<'_>, Broken> {
    let object = value(line)?;
    if object.members().is_none() {
        return broken("json", "no object");
    }
    match object.repeated_key() {
        Some(key) => broken("json-duplicate-key", key),
        None => Ok(object),
    }
}

fn tool_error(data: &Json<'_>) -> Result<(), Broken> {
    if data.get("error").is_none() {
        return Ok(());
    }
    let says = |value: &Json<'_>| value.get("isError").is_some_and(Json::is_true);
    let message = data.get("message");
    let block = message.and_then(|message| message.get("content")?.items()?.first());
    if message.is_some_and(says) || block.is_some_and(says) {
        return Ok(());
    }
    broken("tool-error", "an error whose message does not say isError")
}

fn header(data: &Json<'_>) -> Result<String, Broken> {
    let rule = "header";
    let reason = data.get("reason");
    if reason.is_some_and(|reason| reason.is_str("fallback")) {
        return broken("legacy", "the reason fallback");
    }
    if !reason.is_some_and(|reason| REASONS.iter().any(|known| reason.is_str(known))) {
        return broken(rule, "no known reason");
    }
    if data.get("startsSeries").is_some_and(|value| !value.is_true()) {
        return broken(rule, "startsSeries is not true");
    }
    let Some(header) = data.get("header").filter(|header| header.members().is_some()) else {
        return broken(rule, "no header");
    };
    if header.get("system").is_some() {
        return broken(rule, "header.system");
    }
    if header.get("tools").and_then(Json::items).is_some_and(<[Json<'_>]>::is_empty) {
        return broken(rule, "no tools in tools");
    }
    if header.get("adapterDefaults").and_then(Json::members).is_some_and(<[_]>::is_empty) {
        return broken(rule, "no defaults in adapterDefaults");
    }
    for key in ["provider", "model"] {
        if !header.get("config").and_then(|config| config.get(key)).is_some_and(Json::is_string) {
            return broken(rule, format!("no config.{key}"));
        }
    }
    Ok(header.raw.to_owned())
}

fn node(kind: &str, data: &Json<'_>) -> Result<Node, Broken> {
    let rule = "payload";
    let message = if kind == "user/message" { Some(data) } else { data.get("message") };
    let content = message.and_then(|message| message.get("content")).and_then(Json::items);
    let (Some(message), Some(content)) = (message, content) else {
        return broken(rule, "no content array");
    };
    if kind == "assistant/message" {
        for key in ["provider", "model"] {
            if !message.get("source").and_then(|source| source.get(key)).is_some_and(Json::is_string) {
                return broken(rule, format!("the message names no {key}"));
            }
        }
    }
    let hides = content.is_empty() && (kind == "system/message" || kind == "assistant/message");
    Ok(Node {
        of_system: kind == "system/message",
        of_tool: kind == "tool/result",
        // A rewrite is compared with what it replaces; nothing else needs the whole data again.
        data: if kind == "tool/result" { data.raw.to_owned() } else { String::new() },
        message: (!hides).then(|| message.raw.to_owned()),
    })
}

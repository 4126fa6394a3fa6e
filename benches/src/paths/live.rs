//! A session that is open: its next request, forty in a row, and replaces.
//!
//! Requests are made from the session's fold, as a host makes them; replaces are appended, buffered,
//! as compaction and pruning do. Before each measurement the tail is sealed, so that the sealing
//! thread does not work beside it.

use std::time::Duration;

use bytes::Bytes;
use rederive_engine::{Draft, Durability, NodeKind, Seq, Session};
use rederive_fuzz::workload;
use rederive_projection::{Projector, Request};
use tempfile::TempDir;

use super::Settings;
use crate::data::{Log, SEED};
use crate::measure::{Rounds, Samples, micros, timed};
use crate::peers::{self, Rederive};
use crate::report::{Bound, Goal, Report, Row};
use crate::{BenchError, during};

/// Events that are appended at once while a surface is built.
const AT_ONCE: usize = 512;
/// Nodes of one turn: a question, an answer with four calls, their results, an answer.
const TURN_NODES: usize = 7;

/// A session with a surface of a known size, and a projector that follows it.
#[derive(Debug)]
pub struct Open {
    _folder: TempDir,
    peer: Rederive,
    projector: Projector,
    rest: std::vec::IntoIter<Bytes>,
}

impl Open {
    /// A session with `nodes` nodes on its surface: turns of four tool calls.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn with_nodes(settings: &Settings, nodes: usize) -> Result<Self, BenchError> {
        let turns = (nodes / TURN_NODES + 1200) as u64;
        let log = Log::of(workload::requests_of(SEED, turns));
        let folder = settings.fresh()?;
        let peer = Rederive::create(folder.path())?;
        let lines: Vec<Bytes> = log.events().to_vec();
        let mut open = Self { _folder: folder, peer, projector: Projector::new(), rest: lines.into_iter() };
        while open.session().fold().surface().len() < nodes {
            let missing = nodes - open.session().fold().surface().len();
            open.append_next(AT_ONCE.min(missing), Durability::Buffered)?;
        }
        open.settle()?;
        open.request()?;
        Ok(open)
    }

    /// The session.
    pub fn session(&mut self) -> &mut Session {
        self.peer.session()
    }

    /// Waits until nothing is left to be sealed.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn settle(&mut self) -> Result<(), BenchError> {
        self.session().seal().map_err(during("seal a session"))
    }

    /// Appends the next `count` events of the log.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`]; [`BenchError::Unfit`] where the log has come to its end.
    pub fn append_next(&mut self, count: usize, durability: Durability) -> Result<(), BenchError> {
        let batch: Vec<Bytes> = self.rest.by_ref().take(count).collect();
        if batch.is_empty() {
            return Err(BenchError::Unfit("the log is too short for the measurement".into()));
        }
        let ticket = self.session().append_lines(&batch, durability).map_err(during("append"))?;
        ticket.wait().map_err(during("sync"))
    }

    /// The request that would be sent now.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn request(&mut self) -> Result<Request, BenchError> {
        let fold = self.peer.session().fold();
        self.projector.request(&fold).map_err(during("build a request"))
    }

    /// Appends two events without timing them, and gives how long the next request takes.
    ///
    /// # Errors
    ///
    /// As [`Open::append_next`].
    pub fn next_request(&mut self) -> Result<Duration, BenchError> {
        self.append_next(2, Durability::Buffered)?;
        let (took, request) = timed(|| self.request());
        request.map(|_| took)
    }

    /// Appends events up to and with the next `step/start`, at which a request is made; buffered.
    /// Gives how long the appends and the request took.
    fn live_request(&mut self) -> Result<(Duration, Duration), BenchError> {
        let mut batch = Vec::new();
        for line in self.rest.by_ref() {
            let starts = line.starts_with(b"{\"type\":\"step/start\"");
            batch.push(line);
            if starts {
                break;
            }
        }
        let (appended, outcome) = timed(|| {
            self.peer.session().append_lines(&batch, Durability::Buffered).map_err(during("append"))
        });
        outcome?.wait().map_err(during("sync"))?;
        let (requested, request) = timed(|| self.request());
        request.map(|_| (appended, requested))
    }

    /// The draft that prunes the first tool result at or behind `index`.
    ///
    /// # Errors
    ///
    /// [`BenchError::Unfit`] where there is none.
    pub fn prune_at(&mut self, index: usize) -> Result<Draft, BenchError> {
        let fold = self.session().fold();
        let node = fold.surface().slice(index..usize::MAX).find(|node| node.kind() == NodeKind::ToolResult);
        let Some(seq) = node.map(|node| node.seq()) else {
            return Err(BenchError::Unfit(format!("no tool result behind node {index}")));
        };
        let event = self.session().reader().event(seq).map_err(during("read an event"))?;
        let data = event.ok_or_else(|| BenchError::Unfit(format!("no event {seq}")))?;
        let mut data: serde_json::Value =
            serde_json::from_str(data.data()).map_err(during("parse an event"))?;
        if let Some(content) = data.pointer_mut("/message/content/0/content") {
            *content = serde_json::json!([{"type": "text", "text": "[output removed]"}]);
        }
        Ok(Draft::replace("tool/result", data.to_string(), seq, seq).citing([seq]))
    }

    /// The draft that puts a summary in the place of the nodes at `1..=last`.
    ///
    /// # Errors
    ///
    /// [`BenchError::Unfit`] where the surface is too short.
    pub fn compact_to(&mut self, last: usize) -> Result<Draft, BenchError> {
        let fold = self.session().fold();
        let seqs: Vec<Seq> = fold.surface().slice(1..last + 1).map(|node| node.seq()).collect();
        let (Some(start), Some(end)) = (seqs.first(), seqs.last()) else {
            return Err(BenchError::Unfit("nothing to compact".into()));
        };
        let summary = r#"{"id":"k","role":"user","content":[{"type":"text","text":"<summary>What was done.</summary>"}],"source":{"kind":"plugin","plugin":"compaction"}}"#;
        Ok(Draft::replace("user/message", summary, *start, *end).citing(seqs))
    }

    /// Appends `draft`, which replaces, buffered; gives how long that took.
    ///
    /// # Errors
    ///
    /// [`BenchError::Failed`].
    pub fn replace(&mut self, draft: Draft) -> Result<Duration, BenchError> {
        let batch = vec![draft];
        let (took, ticket) = timed(|| self.peer.session().append(batch, Durability::Buffered));
        ticket.map_err(during("append a replace"))?.wait().map_err(during("sync"))?;
        Ok(took)
    }
}

/// Fills `report` with everything about open sessions.
///
/// # Errors
///
/// A [`BenchError`].
pub fn run(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    next_request(settings, report)?;
    live_requests(settings, report)?;
    replaces(settings, report)
}

fn next_request(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    let sizes: [usize; 3] = settings.pick([1_000, 10_000, 100_000], [1_000, 3_000, 10_000]);
    let mut open = Vec::new();
    for nodes in sizes {
        open.push(Open::with_nodes(settings, nodes)?);
    }
    let (rounds, requests) = settings.pick((30, 20), (6, 10));
    let mut measured = Rounds::new(sizes.len());
    for _ in 0..rounds {
        for (lane, open) in open.iter_mut().enumerate() {
            let mut samples = Samples::new();
            for _ in 0..requests {
                samples.push_micros(open.next_request()?);
            }
            measured.push(lane, samples);
        }
    }
    let own = peers::REDERIVE.name;
    for (lane, nodes) in sizes.into_iter().enumerate() {
        let row = Row::new(format!("next_request/{nodes}_nodes"), own, "µs", measured.all(lane));
        report.row(if lane == 0 { row } else { row.against("1,000 nodes", measured.ratio(lane, 0)) });
    }
    let last = sizes.len() - 1;
    report.goal(
        Goal::NextRequest,
        "request with digest, largest surface",
        "µs",
        measured.all(last).median,
        Bound::AtMost(20.0),
    );
    report.goal(
        Goal::NextRequest,
        "largest surface to 1,000 nodes",
        "x",
        measured.ratio(last, 0).median,
        Bound::AtMost(1.5),
    );
    Ok(())
}

fn live_requests(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    let turns = settings.pick(800, 200);
    let (mut whole, mut requests) = (Samples::new(), Samples::new());
    for _ in 0..settings.pick(15, 3) {
        let mut open = Open::with_nodes(settings, turns * TURN_NODES)?;
        let (mut appending, mut requesting) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..40 {
            let (appended, requested) = open.live_request()?;
            appending += appended;
            requesting += requested;
        }
        whole.push(micros(appending + requesting) / 1000.0);
        requests.push(micros(requesting) / 1000.0);
    }
    let own = peers::REDERIVE.name;
    report.row(Row::new(
        format!("live_requests/40_after_{turns}_turns"),
        own,
        "ms, with appends",
        whole.summary(),
    ));
    report.row(Row::new(
        format!("live_requests/40_after_{turns}_turns"),
        own,
        "ms, requests alone",
        requests.summary(),
    ));
    report.goal(
        Goal::LiveRequests,
        "buffered appends and requests",
        "ms",
        whole.median(),
        Bound::AtMost(2.0),
    );
    Ok(())
}

fn replaces(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    let nodes: usize = settings.pick(100_000, 10_000);
    let mut open = Open::with_nodes(settings, nodes)?;
    let own = peers::REDERIVE.name;
    let (mut prune, mut behind) = (Samples::new(), Samples::new());
    let prunes = settings.pick(200, 40);
    for index in 0..prunes {
        let draft = open.prune_at(1 + index * (nodes - 100) / prunes)?;
        // A sync of the sealing thread holds up any write to the same file system.
        open.settle()?;
        prune.push_micros(open.replace(draft)?);
        let (took, request) = timed(|| open.request());
        request?;
        behind.push_micros(took);
    }
    report.row(Row::new(format!("replace/prune_1_of_{nodes}"), own, "µs", prune.summary()));
    report.row(Row::new(format!("replace/prune_1_of_{nodes}/next_request"), own, "µs", behind.summary()));
    report.goal(Goal::Replace, "prune one", "µs", prune.median(), Bound::AtMost(50.0));

    let (mut compact, mut behind) = (Samples::new(), Samples::new());
    for _ in 0..settings.pick(5, 2) {
        let mut open = Open::with_nodes(settings, nodes)?;
        let draft = open.compact_to(nodes / 2)?;
        compact.push(micros(open.replace(draft)?) / 1000.0);
        let (took, request) = timed(|| open.request());
        request?;
        behind.push(micros(took) / 1000.0);
    }
    report.row(Row::new(format!("replace/compact_half_of_{nodes}"), own, "ms", compact.summary()));
    report.row(Row::new(
        format!("replace/compact_half_of_{nodes}/next_request"),
        own,
        "ms",
        behind.summary(),
    ));
    report.goal(Goal::Replace, "compact half", "ms", compact.median(), Bound::AtMost(2.0));
    Ok(())
}

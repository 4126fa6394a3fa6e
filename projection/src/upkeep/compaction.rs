//! Compaction: a range of the surface gives way to a summary of it.
//!
//! Owns the four events of a compaction and what the summarising call is made from, which the log
//! holds in full: the range, the call's config, its instruction. Between start and end nothing is
//! locked: what changes outside of the range stays, and a change inside of it refuses the end. An
//! attempt that is given up leaves its `compaction/start`, which means nothing by itself.

use rederive_engine::{
    Draft, Durability, Event, Fold, Kind, LogOnly, Reader, Seq, Surface, members, object_member, string_text,
};

use super::Upkeep;
use super::error::{RangeError, UpkeepError};
use super::outline::{Outline, SurfaceRange};
use crate::frozen::FrozenMessage;
use crate::one_shot::OneShot;
use crate::step::message::{Object, text_block, user};
use crate::step::{CallConfig, StepError};

/// The call that writes a summary.
#[derive(Clone, Debug)]
pub struct SummaryCall {
    config: CallConfig,
    instruction: String,
}

impl SummaryCall {
    /// A call with `config` that asks, behind the covered messages, for what `instruction` says.
    pub fn new(config: CallConfig, instruction: impl Into<String>) -> Self {
        Self { config, instruction: instruction.into() }
    }
}

/// What a model wrote about the covered messages.
#[derive(Clone, Debug)]
pub struct Summary {
    blocks: Vec<String>,
    usage: Option<String>,
}

impl Summary {
    /// A summary of one text block.
    pub fn text(text: &str) -> Self {
        Self { blocks: vec![text_block(text)], usage: None }
    }

    /// A summary of `blocks`, each a verbatim JSON object.
    pub fn blocks(blocks: Vec<String>) -> Self {
        Self { blocks, usage: None }
    }

    /// The token counts of the summarising call, a JSON object.
    #[must_use]
    pub fn usage(mut self, usage: impl Into<String>) -> Self {
        self.usage = Some(usage.into());
        self
    }
}

/// A compaction that was begun. Commit it with a summary, or drop it to give it up.
#[derive(Debug)]
#[must_use = "a compaction that is not committed was for nothing"]
pub struct Compaction {
    session: String,
    id: String,
    range: SurfaceRange,
    seqs: Vec<Seq>,
    config: CallConfig,
    input: OneShot,
}

impl Compaction {
    /// The request of the summarising call. It is the conversation's only by its log: it has a config
    /// of its own, and no cache to lose.
    pub fn input(&self) -> &OneShot {
        &self.input
    }

    /// The covered nodes, in surface order.
    pub fn seqs(&self) -> &[Seq] {
        &self.seqs
    }

    /// The compaction's id in the log.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl Upkeep<'_> {
    /// The oldest complete exchanges that fit `budget_bytes`, as far as they may be compacted: behind
    /// the system prompt and any leading node of `keep`, up to the next one, never between a tool call
    /// and its result. `None` where not even one fits. [`u64::MAX`] asks for everything.
    ///
    /// # Cost
    ///
    /// One pass over the surface.
    ///
    /// # Errors
    ///
    /// [`UpkeepError::Step`].
    pub fn oldest_exchanges(
        &self,
        budget_bytes: u64,
        keep: &[Seq],
    ) -> Result<Option<SurfaceRange>, UpkeepError> {
        let fold = self.conversation.fold()?;
        Ok(Outline::of(fold.surface()).oldest(budget_bytes, keep))
    }

    /// The range `start..=end` of the surface, if it may be compacted.
    ///
    /// # Errors
    ///
    /// [`UpkeepError::Range`] says why not, and what range around it could be.
    pub fn check_range(&self, start: Seq, end: Seq, keep: &[Seq]) -> Result<SurfaceRange, UpkeepError> {
        let fold = self.conversation.fold()?;
        Ok(Outline::of(fold.surface()).check(&fold, start, end, keep)?)
    }

    /// Begins to compact `range`: logs `compaction/start` with what the summarising call is made from.
    /// Durable on return.
    ///
    /// The conversation goes on meanwhile; [`Upkeep::commit_compaction`] ends it.
    ///
    /// # Errors
    ///
    /// [`UpkeepError::Range`] where the range is no longer good; [`UpkeepError::OneShot`];
    /// [`UpkeepError::Step`].
    pub fn begin_compaction(
        &mut self,
        range: SurfaceRange,
        call: SummaryCall,
    ) -> Result<Compaction, UpkeepError> {
        let session = self.conversation.id().as_str().to_owned();
        let SummaryCall { config, instruction } = call;
        let mut begun = None;
        self.conversation.append_made(Durability::Synced, |fold| {
            let SurfaceRange { start, end } = range;
            Outline::of(fold.surface()).check(fold, start, end, &[])?;
            let seqs = covered(fold.surface(), range)?;
            let input = input_of(fold.surface(), range, &config, &instruction)?;
            let id = format!("compaction-{}", fold.next_seq());
            let call =
                Object::new().raw("config", config.to_json()).text("instruction", &instruction).finish();
            let digest = Object::new()
                .text("digest", &format!("blake3:{}", input.digest()))
                .raw("bytes", input.bytes())
                .raw("messages", input.message_count())
                .finish();
            let data = Object::new()
                .text("compactionId", &id)
                .maybe("turn", fold.turn().turn())
                .raw("shadowedRange", range.to_json())
                .raw("call", call)
                .raw("input", digest)
                .finish();
            begun = Some(Compaction { session, id, range, seqs, config, input });
            Ok::<_, UpkeepError>(vec![Draft::new("compaction/start", data)])
        })?;
        begun.ok_or(UpkeepError::Step(StepError::Closed))
    }

    /// Puts `summary` in the place of the compaction's range: the call's envelope, the replacing
    /// `user/message` and the end, one atomic batch, durable on return. Gives the summary's node.
    ///
    /// # Errors
    ///
    /// [`UpkeepError::Changed`] where the range is not as it was when the compaction began;
    /// [`UpkeepError::BlankSummary`], [`UpkeepError::OtherSession`], [`UpkeepError::Step`]. The
    /// surface stays as it is.
    pub fn commit_compaction(
        &mut self,
        compaction: Compaction,
        summary: Summary,
    ) -> Result<Seq, UpkeepError> {
        let Compaction { session, id, range, seqs, config, .. } = compaction;
        if session != self.conversation.id().as_str() {
            return Err(UpkeepError::OtherSession { session });
        }
        let SurfaceRange { start, end } = range;
        let blocks = summary.blocks.join(",");
        let source = Object::new().text("kind", "compaction").text("compactionId", &id).finish();
        let message = Object::new()
            .text("id", &id)
            .text("role", "user")
            .raw("source", source)
            .raw("content", format_args!("[{blocks}]"))
            .finish();
        crate::step::message::check_user(&message).map_err(|_| UpkeepError::BlankSummary)?;
        let mut node = None;
        self.conversation.append_made(Durability::Synced, |fold| {
            if covered(fold.surface(), range).ok().as_ref() != Some(&seqs) {
                return Err(UpkeepError::Changed { start, end });
            }
            let shadowed: Vec<String> = seqs.iter().map(ToString::to_string).collect();
            let envelope = Object::new()
                .text("compactionId", &id)
                .raw("summary", format_args!("[{blocks}]"))
                .raw("shadowedRange", range.to_json())
                .raw("shadowedSeqs", format_args!("[{}]", shadowed.join(",")))
                .text("provider", &config.provider())
                .text("model", &config.model())
                .maybe("maxTokens", config.get("maxTokens"))
                .maybe("usage", summary.usage.as_deref())
                .finish();
            let end = Object::new().text("compactionId", &id).maybe("turn", fold.turn().turn()).finish();
            let at = fold.next_seq();
            node = Some(at.next());
            let cited = std::iter::once(at).chain(seqs.iter().copied());
            Ok(vec![
                Draft::new("compaction/summary", envelope),
                Draft::replace("user/message", message, range.start, range.end).citing(cited),
                Draft::new("compaction/end", end),
            ])
        })?;
        node.ok_or(UpkeepError::Step(StepError::Closed))
    }
}

fn covered(surface: &Surface, range: SurfaceRange) -> Result<Vec<Seq>, RangeError> {
    let SurfaceRange { start, end } = range;
    let indices = surface.range(start, end).ok_or(RangeError::NoRange { start, end })?;
    Ok(surface.slice(indices).map(|node| node.seq()).collect())
}

/// The summarising call over `range`: the messages that the model saw there, and the instruction.
fn input_of(
    surface: &Surface,
    range: SurfaceRange,
    config: &CallConfig,
    instruction: &str,
) -> Result<OneShot, UpkeepError> {
    let SurfaceRange { start, end } = range;
    let indices = surface.range(start, end).ok_or(RangeError::NoRange { start, end })?;
    let mut messages: Vec<String> = surface
        .slice(indices)
        .filter_map(FrozenMessage::of)
        .map(|message| message.text().to_owned())
        .collect();
    messages.push(user("instruction", instruction));
    Ok(OneShot::new(config, &messages)?)
}

/// The summarising call that the `compaction/start` at `seq` began, from the log alone: byte for byte
/// what [`Compaction::input`] was.
///
/// # Errors
///
/// [`UpkeepError::NoStart`] where the event is none, or is from another host that logged less.
pub fn summary_input(reader: &Reader, seq: Seq) -> Result<OneShot, UpkeepError> {
    let event = reader.event(seq)?.ok_or(UpkeepError::NoStart { seq })?;
    input_recorded_in(&event, &reader.fold_at(seq)?)
}

/// The summarising call that `event` began; `fold` is the log's right before it.
pub(crate) fn input_recorded_in(event: &Event, fold: &Fold) -> Result<OneShot, UpkeepError> {
    let missing = || UpkeepError::NoStart { seq: event.seq() };
    if *event.kind() != Kind::LogOnly(LogOnly::CompactionStart) {
        return Err(missing());
    }
    let end_of = |key: &str| {
        let text = event.data_at(&["shadowedRange", key])?;
        text.parse().ok().map(Seq::new)
    };
    let (start, end) = end_of("start").zip(end_of("end")).ok_or_else(missing)?;
    let call = event.data_at(&["call"]).ok_or_else(missing)?;
    let config = object_member(call, "config").ok_or_else(missing)?;
    let instruction = object_member(call, "instruction").and_then(string_text).ok_or_else(missing)?;
    let config = members(config)
        .into_iter()
        .fold(CallConfig::new("", ""), |config, (key, value)| config.set(&key, value));
    input_of(fold.surface(), SurfaceRange { start, end }, &config, &instruction)
}

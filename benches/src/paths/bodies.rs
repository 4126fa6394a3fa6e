//! Provider bodies: the next one of a long conversation, beside serde_json serialising the messages.

use rederive_engine::Durability;
use rederive_projection::formats::{BodyOptions, Format, NoObjects};
use rederive_projection::{Bodies, Request};
use serde_json::Value;

use super::Settings;
use super::live::Open;
use crate::measure::{Rounds, bytes_f64, micros, timed};
use crate::peers;
use crate::report::{Bound, Goal, Report, Row};
use crate::{BenchError, during};

/// A conversation whose bodies are built one after the other.
struct Conversation {
    open: Open,
    bodies: Bodies,
    options: BodyOptions,
    last: Option<Request>,
}

impl Conversation {
    fn with_nodes(settings: &Settings, nodes: usize) -> Result<Self, BenchError> {
        let open = Open::with_nodes(settings, nodes)?;
        let options = BodyOptions::new(Format::OpenAiChat);
        let mut conversation = Self { open, bodies: Bodies::new(), options, last: None };
        conversation.next()?;
        Ok(conversation)
    }

    /// Appends one whole exchange at a time until the request has a body, and times that body alone.
    fn next(&mut self) -> Result<f64, BenchError> {
        for _ in 0..64 {
            self.open.append_next(2, Durability::Buffered)?;
            let request = self.open.request()?;
            let (took, body) = timed(|| self.bodies.next(&request, "bench", &self.options, &NoObjects));
            self.last = Some(request);
            // In the middle of a batch of calls there is no body that a provider takes.
            if body.is_ok() {
                return Ok(micros(took));
            }
        }
        Err(BenchError::Unfit("no request of the log has a body".into()))
    }

    /// Parses the messages, and gives how long writing them again takes, with their bytes.
    fn serialise(&self) -> Result<(f64, u64), BenchError> {
        let Some(request) = &self.last else { return Err(BenchError::Unfit("no request".into())) };
        let messages: Vec<Value> = request
            .messages()
            .map(|message| serde_json::from_str(message.text()))
            .collect::<Result<_, _>>()
            .map_err(during("parse a message"))?;
        let (took, text) = timed(|| serde_json::to_vec(&messages));
        let bytes = text.map_err(during("serialise messages"))?.len() as u64;
        Ok((micros(took), bytes))
    }
}

/// Fills `report` with everything about bodies.
///
/// # Errors
///
/// A [`BenchError`].
pub fn run(settings: &Settings, report: &mut Report) -> Result<(), BenchError> {
    let (few, many) = (1_000, settings.pick(100_000, 20_000));
    let mut small = Conversation::with_nodes(settings, few)?;
    let (_, bytes) = small.serialise()?;
    let for_8_mb = (8e6 / (bytes_f64(bytes) / bytes_f64(few as u64))).round();
    #[expect(clippy::cast_sign_loss, reason = "a number of nodes")]
    let mut large = Conversation::with_nodes(settings, for_8_mb as usize)?;
    let mut largest = Conversation::with_nodes(settings, many)?;
    let mut measured = Rounds::new(4);
    for _ in 0..settings.pick(60, 10) {
        let lanes = [small.next()?, largest.next()?, large.next()?];
        for (lane, took) in lanes.into_iter().enumerate() {
            measured.push(lane, [took].into_iter().collect());
        }
    }
    let mut text_bytes = 0;
    for _ in 0..settings.pick(9, 3) {
        let (took, bytes) = large.serialise()?;
        text_bytes = bytes;
        measured.push(3, [took].into_iter().collect());
    }
    let own = peers::REDERIVE.name;
    let size = format!("{:.1}MB", bytes_f64(text_bytes) / 1e6);
    report.row(Row::new(format!("next_body/{few}_nodes"), own, "µs", measured.all(0)));
    report.row(Row::new(format!("next_body/{many}_nodes"), own, "µs", measured.all(1)));
    report.row(Row::new(format!("next_body/{size}"), own, "µs", measured.all(2)));
    report.row(Row::new(format!("next_body/{size}"), "serde_json, messages", "µs", measured.all(3)));
    let (few, many, large) = (measured.all(0).median, measured.all(1).median, measured.all(2).median);
    report.goal(Goal::Bodies, "largest surface to 1,000 nodes", "x", many / few, Bound::AtMost(1.5));
    report.goal(Goal::Bodies, "conversation of 8 MB", "µs", large, Bound::AtMost(100.0));
    let times = measured.all(3).median / large;
    report.goal(Goal::Bodies, "serde_json takes so much longer", "x", times, Bound::AtLeast(10.0));
    Ok(())
}

//! The one mapping: a fold over the nodes of a request, each giving the bytes that follow the ones
//! before it.
//!
//! Owns tool pairing, and what is open after a node: the array, the message, the calls that wait.
//! The bytes of a node depend on the header's route and the nodes before it, never on one after
//! it: that is why a body extends the one before it. Two drivers use it: [`super::body`] and
//! [`super::BodyBuilder`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::cache::ModelRule;
use super::error::{Applied, FormatError, ObjectError, Rule};
use super::json;
use super::message::{self, Kind, Message, Role};
use super::{
    Dialect, Format, ImageSource, MessageView, Object, anthropic, gemini, openai_chat, openai_responses,
};

/// The route of a request: what a node's bytes may depend on beside the nodes before it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Route {
    pub(super) format: Format,
    pub(super) dialect: Dialect,
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) rule: ModelRule,
    pub(super) system_as_user: bool,
}

/// The array that stands open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Start,
    System,
    Messages,
}

/// What is open after a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    pub(super) phase: Phase,
    /// The role of the message that stands open, in the provider's word.
    pub(super) role: Option<&'static str>,
    pub(super) pending: Option<Arc<Pending>>,
}

/// Calls that wait for their results.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    seq: u64,
    calls: Vec<Waiting>,
    /// What must follow the last result (images that a result cannot carry).
    pub(super) held: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Waiting {
    id: String,
    name: String,
    answered: bool,
}

impl Pending {
    fn first(&self) -> Option<&Waiting> {
        self.calls.iter().find(|call| !call.answered)
    }

    /// The tool name, as a JSON string span, of the call `id`.
    pub(super) fn tool(&self, id: &str) -> Option<&str> {
        self.calls.iter().find(|call| call.id == id).map(|call| call.name.as_str())
    }
}

/// The bytes of one node, and what is known about them.
#[derive(Clone, Debug, Default)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    pub(super) marks: Vec<Mark>,
    pub(super) rules: Vec<Applied>,
    pub(super) images: Vec<ImageFact>,
    /// Whether a model said it: requests end right before such nodes.
    pub(super) assistant: bool,
    ids: Vec<Arc<str>>,
}

/// The end of one content block in a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Where the block begins, and where a marker would go (before its closing brace).
    pub(super) start: usize,
    pub(super) at: usize,
    /// Whether the provider takes a breakpoint on it.
    pub(super) markable: bool,
    /// Whether the block belongs to the system array.
    pub(super) head: bool,
    /// Whether it is mostly an image or a file.
    pub(super) object: bool,
    /// Estimate: a third of the text bytes; 1,600 for an image.
    pub(super) tokens: u32,
}

/// What the limits on images need.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImageFact {
    pub(super) seq: u64,
    pub(super) bytes: usize,
    pub(super) side: u32,
}

impl Piece {
    pub(super) fn put(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(super) fn rule(&mut self, seq: u64, rule: Rule, index: usize) {
        self.rules.push(Applied { seq: Some(seq), rule, detail: Some(index.to_string()) });
    }

    /// Appends JSON text with lone surrogates replaced.
    pub(super) fn put_json(&mut self, seq: u64, index: usize, span: &str) {
        let text = json::scalar_text(span);
        if let Cow::Owned(_) = text {
            self.rule(seq, Rule::LoneSurrogate, index);
        }
        self.put(&text);
    }

    /// Ends the block that began at `start`: a marker would go here.
    pub(super) fn mark(&mut self, start: usize, markable: bool, phase: Phase) {
        let at = self.bytes.len();
        let tokens = u32::try_from((at - start).div_ceil(3)).unwrap_or(u32::MAX);
        self.marks.push(Mark { start, at, markable, head: phase == Phase::System, object: false, tokens });
    }

    /// Says that the last marked block is mostly an object of `encoded` bytes.
    pub(super) fn object_tokens(&mut self, encoded: usize) {
        if let Some(mark) = self.marks.last_mut() {
            let text = (mark.at - mark.start).saturating_sub(encoded).div_ceil(3);
            mark.object = true;
            mark.tokens = u32::try_from(text).unwrap_or(u32::MAX).saturating_add(1_600);
        }
    }
}

/// The fold.
pub(super) struct Fold {
    pub(super) route: Route,
    pub(super) open: Open,
    /// Every call id so far, as it is sent, with the node that used it.
    ids: HashMap<Arc<str>, u64>,
}

/// What a format's writer works with.
pub(super) struct Writer<'w> {
    pub(super) route: &'w Route,
    pub(super) open: &'w mut Open,
    pub(super) out: &'w mut Piece,
    pub(super) objects: &'w dyn ImageSource,
    /// The calls that the node's results answer.
    pub(super) answered: Option<Arc<Pending>>,
}

impl Fold {
    pub(super) fn new(route: Route) -> Self {
        Self { route, open: Open::default(), ids: HashMap::new() }
    }

    /// Takes one node. On an error the fold is as it was.
    pub(super) fn push(
        &mut self,
        node: MessageView<'_>,
        objects: &dyn ImageSource,
    ) -> Result<Piece, FormatError> {
        let mut out = Piece::default();
        if self.route.format == Format::Canonical {
            if self.open.phase == Phase::Messages {
                out.put(",");
            }
            self.open.phase = Phase::Messages;
            let start = out.bytes.len();
            out.put(node.text);
            out.mark(start, false, Phase::Messages);
            return Ok(out);
        }
        let message = message::read(node.seq, node.text, &mut out.rules)?;
        out.assistant = message.role == Role::Assistant;
        if message.blocks.is_empty() {
            out.rules.push(Applied { seq: Some(node.seq), rule: Rule::EmptyMessage, detail: None });
            return Ok(out);
        }
        let mut open = self.open.clone();
        let answered = open.pending.clone();
        self.pair(&message, &mut open, &mut out)?;
        let mut writer = Writer { route: &self.route, open: &mut open, out: &mut out, objects, answered };
        match self.route.format {
            Format::Anthropic => anthropic::write(&mut writer, &message)?,
            Format::OpenAiChat => openai_chat::write(&mut writer, &message)?,
            Format::OpenAiResponses => openai_responses::write(&mut writer, &message)?,
            Format::Gemini => gemini::write(&mut writer, &message)?,
            Format::Canonical => {}
        }
        for id in &out.ids {
            self.ids.insert(Arc::clone(id), node.seq);
        }
        if open.pending.as_ref().is_some_and(|pending| pending.first().is_none()) {
            open.pending = None;
        }
        self.open = open;
        Ok(out)
    }

    /// Takes the ids of a node back, which [`Fold::push`] gave.
    pub(super) fn forget(&mut self, ids: &[Arc<str>]) {
        for id in ids {
            self.ids.remove(id);
        }
    }

    /// What ends the body.
    pub(super) fn tail(&self) -> Result<&'static str, FormatError> {
        if let Some((seq, call)) =
            self.open.pending.as_ref().and_then(|pending| Some((pending.seq, pending.first()?)))
        {
            return Err(FormatError::Unanswered { seq, asked: seq, call: call.id.clone() });
        }
        match self.route.format {
            Format::Canonical => Ok("]}"),
            _ if self.open.phase != Phase::Messages => Err(FormatError::NoMessages),
            Format::Anthropic | Format::Gemini => Ok("]}]}"),
            Format::OpenAiChat | Format::OpenAiResponses => Ok("]}"),
        }
    }

    /// Holds each call to one answer, right after it. The rule of every provider format.
    fn pair(&self, message: &Message<'_>, open: &mut Open, out: &mut Piece) -> Result<(), FormatError> {
        let seq = message.seq;
        let mut pending = open.pending.take().map(Arc::unwrap_or_clone);
        let unanswered = |pending: &Option<Pending>| {
            pending.as_ref().and_then(|pending| Some((pending.seq, pending.first()?.id.clone())))
        };
        let mut calls = Vec::new();
        for block in &message.blocks {
            match &block.kind {
                Kind::Result { call, .. } if message.role == Role::User => {
                    let call = json::unquote(call);
                    let orphan = || FormatError::Orphan { seq, call: call.clone().into() };
                    let waiting = pending
                        .as_mut()
                        .and_then(|pending| pending.calls.iter_mut().find(|waiting| waiting.id == call))
                        .ok_or_else(orphan)?;
                    if std::mem::replace(&mut waiting.answered, true) {
                        return Err(FormatError::RepeatedResult { seq, call: call.into() });
                    }
                    continue;
                }
                Kind::Call(call) if message.role == Role::Assistant => {
                    let id = json::unquote(call.id);
                    if id.trim().is_empty() {
                        return Err(FormatError::EmptyCallId { seq, index: block.index });
                    }
                    if json::is_blank(call.name) {
                        return Err(FormatError::EmptyToolName { seq, index: block.index });
                    }
                    let sent = self.route.call_id(&id);
                    let here = out.ids.iter().any(|used| **used == *sent).then_some(seq);
                    if let Some(first) = here.or_else(|| self.ids.get(&*sent).copied()) {
                        return Err(FormatError::RepeatedCallId { seq, call: sent.into(), first });
                    }
                    if let Cow::Owned(_) = sent {
                        out.rule(seq, Rule::CallIdRewritten, block.index);
                    }
                    out.ids.push(Arc::from(&*sent));
                    calls.push(Waiting { id: id.into(), name: call.name.to_owned(), answered: false });
                }
                Kind::Result { .. } | Kind::Call(_) => {
                    let (index, kind) = (block.index, block.kind.name());
                    return Err(FormatError::Misplaced { format: self.route.format, seq, index, kind });
                }
                _ => {}
            }
            if let Some((asked, call)) = unanswered(&pending) {
                return Err(FormatError::Unanswered { seq, asked, call });
            }
        }
        if !calls.is_empty() {
            pending = Some(Pending { seq, calls, held: Vec::new() });
        }
        open.pending = pending.map(Arc::new);
        Ok(())
    }
}

impl Piece {
    /// The call ids that the node brought.
    pub(super) fn take_ids(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.ids)
    }
}

impl Route {
    /// The route of canonical bytes, which depend on no model.
    pub(super) fn canonical() -> Self {
        Self {
            format: Format::Canonical,
            dialect: Dialect::OpenAi,
            provider: String::new(),
            model: String::new(),
            rule: ModelRule::unknown(),
            system_as_user: false,
        }
    }

    /// A call id as the provider takes it: Anthropic refuses all but letters, digits, `_` and `-`.
    pub(super) fn call_id<'i>(&self, id: &'i str) -> Cow<'i, str> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if self.format != Format::Anthropic || id.chars().all(allowed) {
            return Cow::Borrowed(id);
        }
        Cow::Owned(id.chars().map(|c| if allowed(c) { c } else { '_' }).collect())
    }
}

impl Writer<'_> {
    pub(super) fn misplaced(&self, seq: u64, block: &message::Block<'_>) -> FormatError {
        let format = self.route.format;
        FormatError::Misplaced { format, seq, index: block.index, kind: block.kind.name() }
    }

    /// Whether the message was made by the model's provider, and by the model itself.
    pub(super) fn made_by(&self, message: &Message<'_>) -> (bool, bool) {
        let provider = message.provider.as_deref() == Some(&*self.route.provider);
        (provider, provider && message.model.as_deref() == Some(&*self.route.model))
    }

    /// Appends a call id, as it is sent.
    pub(super) fn put_call_id(&mut self, seq: u64, index: usize, span: &str) {
        let id = json::unquote(span);
        match self.route.call_id(&id) {
            Cow::Borrowed(_) => self.out.put_json(seq, index, span),
            Cow::Owned(id) => json::put_string(&mut self.out.bytes, &id),
        }
    }

    /// Appends tool arguments as an object: verbatim where they are one, else by a stated rule.
    pub(super) fn put_arguments(&mut self, seq: u64, index: usize, span: &str) {
        let text = json::unquote(span);
        if text.trim().is_empty() {
            self.out.rule(seq, Rule::ArgumentsEmpty, index);
            self.out.put("{}");
        } else if let Some(object) = json::check(&text).ok().filter(|object| object.starts_with('{')) {
            if let Cow::Owned(_) = json::scalar_text(span) {
                self.out.rule(seq, Rule::LoneSurrogate, index);
            }
            self.out.put_json(seq, index, object);
        } else {
            self.out.rule(seq, Rule::ArgumentsWrapped, index);
            self.out.put("{\"_raw\":");
            self.out.put_json(seq, index, span);
            self.out.put("}");
        }
    }

    /// Reads the object of an image or file.
    pub(super) fn object(
        &mut self,
        seq: u64,
        block: &message::Block<'_>,
        reference: &str,
    ) -> Result<Object, FormatError> {
        let index = block.index;
        let object =
            self.objects.resolve(reference).map_err(|source| FormatError::Object { seq, index, source })?;
        let (Object::Bytes { media_type, .. } | Object::Url { media_type, .. }) = &object;
        if !media_type.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\;,".contains(&byte)) {
            let source = ObjectError::Reference { reason: format!("media type `{media_type}`") };
            return Err(FormatError::Object { seq, index, source });
        }
        if let (Kind::Image { .. }, Object::Bytes { bytes, .. }) = (&block.kind, &object) {
            let side = |key: &str| {
                let span = json::member(reference, key).ok().flatten()?;
                span.parse::<u32>().ok()
            };
            let side = side("width").max(side("height")).unwrap_or(0);
            self.out.images.push(ImageFact { seq, bytes: bytes.len(), side });
        }
        Ok(object)
    }

    /// Appends `text` blocks as one JSON string, joined by a line feed.
    pub(super) fn put_joined(&mut self, seq: u64, texts: &[(usize, &str)], before: &str) {
        self.out.put("\"");
        self.out.put(before);
        for (position, (index, span)) in texts.iter().enumerate() {
            if position > 0 {
                self.out.put("\\n");
            }
            self.out.put_json(seq, *index, json::inside(span));
        }
        self.out.put("\"");
        if texts.len() > 1 {
            self.out.rules.push(Applied { seq: Some(seq), rule: Rule::TextJoined, detail: None });
        }
    }

    /// Holds bytes back until the last call is answered.
    pub(super) fn hold(&mut self, bytes: &[u8]) {
        if let Some(pending) = &mut self.open.pending {
            Arc::make_mut(pending).held.extend_from_slice(bytes);
        }
    }

    /// What was held back, once the last call is answered.
    pub(super) fn release(&mut self) -> Option<Vec<u8>> {
        let pending = self.open.pending.as_mut().filter(|pending| pending.first().is_none())?;
        let held = std::mem::take(&mut Arc::make_mut(pending).held);
        (!held.is_empty()).then_some(held)
    }
}

/// Appends `bytes` in base64 (RFC 4648, with padding).
pub(super) fn put_base64(out: &mut Vec<u8>, bytes: &[u8]) -> usize {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u32| ALPHABET.get((bits & 63) as usize).copied().unwrap_or(b'=');
    let before = out.len();
    out.reserve(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        let third = if chunk.len() > 1 { digit(bits >> 6) } else { b'=' };
        let fourth = if chunk.len() > 2 { digit(bits) } else { b'=' };
        out.extend_from_slice(&[digit(bits >> 18), digit(bits >> 12), third, fourth]);
    }
    out.len() - before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads() {
        for (bytes, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            let mut out = Vec::new();
            assert_eq!(put_base64(&mut out, bytes.as_bytes()), expected.len());
            assert_eq!(out, expected.as_bytes());
        }
    }
}

//! Images by value, lifted out of content into objects, so that no log holds base64.
//!
//! Owns the shapes in which providers and tools carry an image inside JSON, and the reading of data
//! URLs. What is lifted becomes a content block with a reference; every other byte of the content
//! stays as it was. Nothing is stored here: the caller puts the images, then logs the content.
//!
//! Shapes (`…` stands for base64, or for a data URL where `data:` is written):
//!
//! - `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"…"}}`
//! - `{"type":"image_url","image_url":{"url":"data:…","detail":"high"}}`, or the URL in its place
//! - `{"type":"input_image","image_url":"data:…"}`
//! - `{"inlineData":{"mimeType":"image/png","data":"…"}}`, also `inline_data` and `mime_type`
//! - `{"type":"image","mimeType":"image/png","data":"…"}`, as tool servers return it
//!
//! and the same inside the `content` of a tool result, however deep. An image given by a URL of
//! another scheme, and data that is no image, stay as they are. Data URLs follow RFC 2397, base64
//! RFC 4648, both with the latitude that browsers give.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::images::{Admitted, BatchRefusal, Candidate, ImageLimits, MediaType, admit_batch};
use crate::json::{Fields, is_value, items, place, quoted, string};

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Content without images by value, and the images that it now references.
#[derive(Clone, Debug)]
#[must_use]
pub struct Lifted {
    /// The content's JSON text. Log it once every image was put.
    pub content: String,
    /// The images that were lifted, in order; the same bytes twice where they stand twice.
    pub images: Vec<Admitted<'static>>,
}

/// Why a payload could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadRefusal {
    /// Not `data:`, a media type, and a comma. Correct the URL.
    #[error("data url without {missing}")]
    DataUrl {
        /// What it lacks.
        missing: &'static str,
    },
    /// An image of a kind that no request carries. Convert it.
    #[error("payload of media type {found:?}, where png, jpeg, webp and gif are carried")]
    MediaType {
        /// What was declared, at most 64 characters of it.
        found: String,
    },
    /// A character that base64 does not have. Encode it again.
    #[error("base64 with byte {byte:#04x} at position {at}")]
    Character {
        /// The byte.
        byte: u8,
        /// Its position, without white space.
        at: usize,
    },
    /// A length that base64 cannot have: the payload is cut off. Encode it again.
    #[error("base64 that is cut off after {length} characters")]
    Length {
        /// Characters without white space.
        length: usize,
    },
    /// Padding that does not fit its length. Encode it again.
    #[error("base64 with padding that does not fit")]
    Padding,
    /// Bits behind the last byte that are not zero: the payload is cut off. Encode it again.
    #[error("base64 whose last character holds bits of a further byte")]
    LastCharacter,
}

/// Why nothing was lifted. The content is as it was, and nothing was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LiftError {
    /// Not a JSON value.
    #[error("content that is not json")]
    Json,
    /// A payload could not be read.
    #[error("content block {block}: {refusal}")]
    Payload {
        /// Positions of the block and of those around it, from the outside, as in `2.0`.
        block: String,
        /// What is wrong.
        #[source]
        refusal: PayloadRefusal,
    },
    /// An image breaks a rule of admission, or all of them do together.
    #[error("content block {block}: {refusal}")]
    Image {
        /// Positions of the block; empty where all of them are meant.
        block: String,
        /// The rule.
        #[source]
        refusal: BatchRefusal,
    },
}

/// Lifts the images out of `content`, the JSON text of a message's content: an array of blocks, or a
/// string, which is left alone. A lifted block keeps what else it held, behind its reference.
///
/// # Cost
///
/// A pass over the text for each level of nested content, one decoding and one hash an image.
///
/// # Errors
///
/// By variant of [`LiftError`]; all images are lifted or none.
pub fn lift(content: &str, limits: &ImageLimits) -> Result<Lifted, LiftError> {
    if !is_value(content) {
        return Err(LiftError::Json);
    }
    let mut found = Vec::new();
    find(content, "", &mut found)?;
    let candidates: Vec<_> = found.iter_mut().map(Payload::candidate).collect();
    let images = admit_batch(candidates, limits).map_err(|refusal| {
        let block = match &refusal {
            BatchRefusal::Image { index, .. } => found.get(*index).map(|payload| payload.block.clone()),
            BatchRefusal::Message(_) => None,
        };
        LiftError::Image { block: block.unwrap_or_default(), refusal }
    })?;
    let mut out = String::with_capacity(content.len().min(64 * 1024));
    let mut done = 0;
    for (payload, image) in found.iter().zip(&images) {
        let at = place(content, payload.text);
        out.push_str(content.get(done..at.start).unwrap_or_default());
        out.push_str(r#"{"type":"image","attachment":"#);
        out.push_str(&image.reference().to_attachment());
        for (name, value) in &payload.rest {
            out.push(',');
            out.push_str(&quoted(name));
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        done = at.end;
    }
    out.push_str(content.get(done..).unwrap_or_default());
    Ok(Lifted { content: out, images })
}

/// An image by value, and the block that holds it.
struct Payload<'a> {
    block: String,
    text: &'a str,
    declared: MediaType,
    bytes: Vec<u8>,
    name: Option<String>,
    /// What else the block held, for the block that takes its place.
    rest: Vec<(String, &'a str)>,
}

impl Payload<'_> {
    /// Takes the bytes out.
    fn candidate(&mut self) -> Candidate<'static> {
        Candidate {
            bytes: Cow::Owned(std::mem::take(&mut self.bytes)),
            declared: Some(self.declared),
            name: self.name.take().map(Cow::Owned),
        }
    }
}

/// JSON is at most 128 levels deep, so this is as well.
fn find<'a>(content: &'a str, around: &str, found: &mut Vec<Payload<'a>>) -> Result<(), LiftError> {
    let Some(blocks) = items(content) else { return Ok(()) };
    for (index, text) in blocks.into_iter().enumerate() {
        let Some(fields) = Fields::of(text) else { continue };
        let block = if around.is_empty() { index.to_string() } else { format!("{around}.{index}") };
        match Shape::of(&fields) {
            Some(Shape { media_type, data, consumed, detail }) => {
                let payload = match media_type {
                    Some(media_type) => declared(&media_type).and_then(|media_type| {
                        media_type.map(|it| Ok((it, decode_base64(&data)?))).transpose()
                    }),
                    None => read_data_url(&data),
                };
                let payload =
                    payload.map_err(|refusal| LiftError::Payload { block: block.clone(), refusal })?;
                let Some((declared, bytes)) = payload else { continue };
                let mut rest: Vec<_> = fields
                    .iter()
                    .filter_map(|(name, value)| Some((std::str::from_utf8(name).ok()?, value)))
                    .filter(|(name, _)| !matches!(*name, "type" | "attachment") && !consumed.contains(name))
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect();
                if let Some(detail) = detail {
                    rest.push(("detail".to_owned(), detail));
                }
                let name = fields.string("name").or(fields.string("filename")).map(Cow::into_owned);
                found.push(Payload { block, text, declared, bytes, name, rest });
            }
            None => {
                if let Some(inner) = fields.get("content") {
                    find(inner, &block, found)?;
                }
            }
        }
    }
    Ok(())
}

/// A block that holds an image by value.
struct Shape<'a> {
    /// Declared beside the data; `None` where the data is a data URL.
    media_type: Option<Cow<'a, str>>,
    data: Cow<'a, str>,
    /// The fields that the reference takes the place of.
    consumed: &'static [&'static str],
    detail: Option<&'a str>,
}

impl<'a> Shape<'a> {
    fn of(block: &Fields<'a>) -> Option<Self> {
        let kind = block.string("type");
        match kind.as_deref() {
            Some("image") => {
                if let Some(source) = block.get("source").and_then(Fields::of) {
                    if source.string("type").as_deref() == Some("base64") {
                        return Self::beside(&source, &["source"]);
                    }
                    return None;
                }
                if block.get("attachment").is_some() {
                    return None;
                }
                Self::beside(block, &["data", "mimeType", "mime_type", "media_type"])
            }
            Some("image_url" | "input_image") => {
                let image = block.get("image_url")?;
                let (url, detail) = match Fields::of(image) {
                    Some(fields) => (fields.string("url")?, fields.get("detail")),
                    None => (string(image)?, None),
                };
                is_data_url(&url).then_some(Self {
                    media_type: None,
                    data: url,
                    consumed: &["image_url"],
                    detail,
                })
            }
            None => {
                let inline = block.get("inlineData").or(block.get("inline_data"))?;
                Self::beside(&Fields::of(inline)?, &["inlineData", "inline_data"])
            }
            Some(_) => None,
        }
    }

    /// Of a media type and base64, side by side. The base64 may be a data URL, which then says more.
    fn beside(fields: &Fields<'a>, consumed: &'static [&'static str]) -> Option<Self> {
        let data = fields.string("data")?;
        if is_data_url(&data) {
            return Some(Self { media_type: None, data, consumed, detail: None });
        }
        let names = ["media_type", "mimeType", "mime_type"];
        let media_type = names.into_iter().find_map(|name| fields.string(name))?;
        Some(Self { media_type: Some(media_type), data, consumed, detail: None })
    }
}

fn is_data_url(text: &str) -> bool {
    text.trim_start().get(..5).is_some_and(|start| start.eq_ignore_ascii_case("data:"))
}

/// `None` where it is no image, and so none of ours.
fn declared(media_type: &str) -> Result<Option<MediaType>, PayloadRefusal> {
    let is_image = media_type.trim_start().get(..6).is_some_and(|start| start.eq_ignore_ascii_case("image/"));
    if !is_image {
        return Ok(None);
    }
    let name = media_type.split(';').next().unwrap_or_default();
    name.parse().map(Some).map_err(|_| PayloadRefusal::MediaType { found: name.chars().take(64).collect() })
}

/// The media type and the bytes of a data URL in base64; `None` where it is no image.
///
/// Reads `data:` and the media type in any case, white space anywhere in the payload, padding or
/// none, the alphabet for URLs, and percent-encoded characters.
///
/// # Errors
///
/// By variant of [`PayloadRefusal`].
pub fn read_data_url(url: &str) -> Result<Option<(MediaType, Vec<u8>)>, PayloadRefusal> {
    if !is_data_url(url) {
        return Err(PayloadRefusal::DataUrl { missing: "its scheme" });
    }
    let rest = url.trim_start().get(5..).unwrap_or_default();
    let (kind, payload) = rest.split_once(',').ok_or(PayloadRefusal::DataUrl { missing: "a comma" })?;
    let Some(media_type) = declared(kind)? else { return Ok(None) };
    if !kind.split(';').skip(1).any(|parameter| parameter.trim().eq_ignore_ascii_case("base64")) {
        return Err(PayloadRefusal::DataUrl { missing: "base64" });
    }
    Ok(Some((media_type, decode_base64(&percent_decoded(payload))?)))
}

fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('%') {
        out.push_str(before);
        let byte = behind.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = byte.filter(u8::is_ascii) {
            out.push(char::from(byte));
            rest = behind.get(2..).unwrap_or_default();
        } else {
            out.push('%'); // refused as a character of base64
            rest = behind;
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The bytes that `text` encodes: white space, missing padding and the alphabet for URLs are read,
/// anything else that is not exactly one encoding is refused.
///
/// # Errors
///
/// By variant of [`PayloadRefusal`].
pub fn decode_base64(text: &str) -> Result<Vec<u8>, PayloadRefusal> {
    let is_plain = |byte: u8| !byte.is_ascii_whitespace() && byte != b'-' && byte != b'_';
    let text: Cow<'_, [u8]> = if text.bytes().all(is_plain) {
        Cow::Borrowed(text.as_bytes())
    } else {
        let kept = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
        Cow::Owned(
            kept.map(|byte| match byte {
                b'-' => b'+',
                b'_' => b'/',
                other => other,
            })
            .collect(),
        )
    };
    BASE64.decode(&text).map_err(|error| match error {
        base64::DecodeError::InvalidByte(at, byte) => match byte {
            b'=' => PayloadRefusal::Padding,
            _ => PayloadRefusal::Character { byte, at },
        },
        base64::DecodeError::InvalidLength(length) => PayloadRefusal::Length { length },
        base64::DecodeError::InvalidLastSymbol { .. } => PayloadRefusal::LastCharacter,
        base64::DecodeError::InvalidPadding => PayloadRefusal::Padding,
    })
}

//! What a message holds of an image: a reference of bounded size.
//!
//! Owns the content block of an image, as close to the reference harness as an object of this store
//! allows: `{"type":"image","attachment":{"attachmentId":"blake3:…","mediaType":…,"width":…,
//! "height":…,"bytes":…}}`, and behind these `name`, `originalWidth` and `originalHeight` where
//! they are known. Knows JSON texts; reads no object.

use std::fmt::Write as _;

use super::{MediaType, MediaTypeError, NAME_BYTES_MAX, display_name};
use crate::digest::{Digest, DigestError};
use crate::json::{Fields, items, quoted, string};
use crate::objects::GetError;

/// A reference to an image, as a message's content block holds it. Everything in it but the name is
/// checked against the object when it is resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageRef {
    digest: Digest,
    media_type: MediaType,
    bytes: u64,
    width: u32,
    height: u32,
    name: Option<String>,
    original_size: Option<(u32, u32)>,
}

impl ImageRef {
    /// Of what admission has read from the bytes.
    pub(crate) fn new(
        digest: Digest,
        media_type: MediaType,
        bytes: u64,
        (width, height): (u32, u32),
        name: Option<String>,
    ) -> Self {
        Self { digest, media_type, bytes, width, height, name, original_size: None }
    }

    /// The same reference, of a variant whose source had these sides.
    #[must_use]
    pub fn with_original_size(mut self, width: u32, height: u32) -> Self {
        self.original_size = Some((width, height));
        self
    }

    /// The object.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// What its bytes are.
    pub fn media_type(&self) -> MediaType {
        self.media_type
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its length as base64 with padding: what a request carries.
    pub fn base64_bytes(&self) -> u64 {
        base64_bytes(self.bytes)
    }

    /// Width in pixels as shown: after an orientation is applied.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels as shown: after an orientation is applied.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The name under which it is shown.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Width and height of the image that this one is a smaller variant of.
    pub fn original_size(&self) -> Option<(u32, u32)> {
        self.original_size
    }

    /// The content block: one spelling for one reference.
    pub fn to_block(&self) -> String {
        format!(r#"{{"type":"image","attachment":{}}}"#, self.to_attachment())
    }

    /// The block's `attachment` alone.
    pub(crate) fn to_attachment(&self) -> String {
        let Self { digest, media_type, bytes, width, height, .. } = self;
        let mut out = format!(
            r#"{{"attachmentId":"{digest}","mediaType":"{media_type}","width":{width},"height":{height},"bytes":{bytes}"#
        );
        if let Some(name) = &self.name {
            out.push_str(r#","name":"#);
            out.push_str(&quoted(name));
        }
        if let Some((width, height)) = self.original_size {
            let _ = write!(out, r#","originalWidth":{width},"originalHeight":{height}"#);
        }
        out.push('}');
        out
    }

    /// Reads a content block. Fields that it does not know are passed over.
    ///
    /// # Errors
    ///
    /// By variant of [`ReferenceError`].
    pub fn from_block(text: &str) -> Result<Self, ReferenceError> {
        let block = Fields::of(text).ok_or(ReferenceError::Json { what: "content block" })?;
        if block.string("type").as_deref() != Some("image") {
            return Err(ReferenceError::NotAnImage);
        }
        let attachment = block.get("attachment").ok_or(ReferenceError::NotAnImage)?;
        Self::from_attachment(attachment)
    }

    fn from_attachment(text: &str) -> Result<Self, ReferenceError> {
        let fields = Fields::of(text).ok_or(ReferenceError::Json { what: "attachment" })?;
        let text_of = |field| fields.string(field).ok_or(ReferenceError::Field { field });
        let number = |field| -> Result<u64, ReferenceError> {
            let number = fields.get(field).and_then(|text| text.parse::<u64>().ok());
            number.ok_or(ReferenceError::Field { field })
        };
        let side = |field| match u32::try_from(number(field)?) {
            Ok(0) | Err(_) => Err(ReferenceError::Field { field }),
            Ok(side) => Ok(side),
        };
        let name = match fields.get("name") {
            None => None,
            Some(text) => {
                // Bounded and without a path also where another program wrote the log.
                let name = string(text).ok_or(ReferenceError::Field { field: "name" })?;
                if NAME_BYTES_MAX < name.len() || display_name(&name).as_deref() != Some(&*name) {
                    return Err(ReferenceError::Field { field: "name" });
                }
                Some(name.into_owned())
            }
        };
        let original_size = match (fields.get("originalWidth"), fields.get("originalHeight")) {
            (None, None) => None,
            _ => Some((side("originalWidth")?, side("originalHeight")?)),
        };
        Ok(Self {
            digest: text_of("attachmentId")?.parse()?,
            media_type: text_of("mediaType")?.parse()?,
            bytes: number("bytes")?,
            width: side("width")?,
            height: side("height")?,
            name,
            original_size,
        })
    }
}

/// Length of `bytes` bytes as base64 with padding.
pub(crate) const fn base64_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(3).saturating_mul(4)
}

/// Why a text is no reference to an image of this store. Correct the text, or replace the node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// Not the JSON that belongs there.
    #[error("{what} that is not the JSON that belongs there")]
    Json {
        /// What should stand there.
        what: &'static str,
    },
    /// A content block that is no image, or an image that holds its data by value.
    #[error("content block that is no reference to an image")]
    NotAnImage,
    /// A field is missing or has no value that can stand there.
    #[error("field {field} of an attachment is missing or out of place")]
    Field {
        /// Name of the field.
        field: &'static str,
    },
    /// The object is not named as objects of this store are.
    #[error("attachmentId is no name of an object")]
    Digest(#[from] DigestError),
    /// The media type is none that a request carries.
    #[error("mediaType is none that is carried")]
    MediaType(#[from] MediaTypeError),
}

/// A reference error and where it stands in its message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("content block {block}: {error}")]
pub struct MessageReferenceError {
    /// Positions of the block and of those around it, from the outside: `2.0` is the first block in
    /// the third one's content. Empty where the message itself cannot be read.
    pub block: String,
    /// What is wrong.
    #[source]
    pub error: ReferenceError,
}

/// The images that a message's text references, in order, repeated ones too: those of its content
/// blocks and of the contents of its tool results.
///
/// Images that hold their data by value are not references and are passed over.
///
/// # Errors
///
/// [`MessageReferenceError`] for the first image block with an attachment that cannot be read.
pub fn references(message_text: &str) -> Result<Vec<ImageRef>, MessageReferenceError> {
    let mut found = Vec::new();
    let message = Fields::of(message_text).ok_or(MessageReferenceError {
        block: String::new(),
        error: ReferenceError::Json { what: "message" },
    })?;
    if let Some(content) = message.get("content") {
        collect(content, "", &mut found)?;
    }
    Ok(found)
}

/// JSON is at most 128 levels deep, so this is as well.
fn collect(content: &str, around: &str, found: &mut Vec<ImageRef>) -> Result<(), MessageReferenceError> {
    let Some(blocks) = items(content) else { return Ok(()) }; // a string
    for (index, text) in blocks.into_iter().enumerate() {
        let Some(block) = Fields::of(text) else { continue };
        let place = || if around.is_empty() { index.to_string() } else { format!("{around}.{index}") };
        if block.string("type").as_deref() == Some("image") {
            if let Some(attachment) = block.get("attachment") {
                let reference = ImageRef::from_attachment(attachment)
                    .map_err(|error| MessageReferenceError { block: place(), error })?;
                found.push(reference);
            }
        } else if let Some(inner) = block.get("content") {
            collect(inner, &place(), found)?;
        }
    }
    Ok(())
}

/// The text block that takes the place of an image which cannot be sent; a function of its arguments
/// alone.
///
/// It names the object in a way that does not reference it: the image may be swept.
pub fn placeholder(image: &ImageRef, why: &str) -> String {
    let mut text = format!(
        "[image removed: {why}; {} of {}x{} pixels, {} bytes, blake3 {}",
        image.media_type(),
        image.width(),
        image.height(),
        image.bytes(),
        image.digest().to_hex()
    );
    if let Some(name) = image.name() {
        let _ = write!(text, ", {}", quoted(name));
    }
    text.push(']');
    format!(r#"{{"type":"text","text":{}}}"#, quoted(&text))
}

/// Why a reference could not be resolved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The object could not be read; missing and damaged are told apart in it.
    #[error(transparent)]
    Get(#[from] GetError),
    /// The object is whole, and not what the reference says. Replace the node: its log is wrong.
    #[error("object {digest} has {field} {found}, where the reference says {referenced}")]
    Differs {
        /// The object.
        digest: Digest,
        /// Name of the field, as in the block.
        field: &'static str,
        /// What the reference says.
        referenced: String,
        /// What the object has.
        found: String,
    },
}

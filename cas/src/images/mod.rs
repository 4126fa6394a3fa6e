//! Images, from the bytes that a host was given to the reference that a message holds.
//!
//! Owns the rules of admission: what an image must be before anything of it is stored or logged.
//! Everything is read from the container's headers; no pixel is decoded. Knows no provider; what
//! depends on a request is in [`policy`](crate::policy).
//!
//! An image begins with the magic bytes of exactly one format and ends where that format says. The
//! only bytes that may stand behind its end are zeroes, further whole JPEGs behind a JPEG (the
//! multi-picture format of cameras), and as many others as
//! [`ImageLimits::trailing_bytes_max`] allows: a file that is an image to one reader and an archive
//! or a page to another is refused.

mod header;
mod media_type;
mod name;
mod reference;

use std::borrow::Cow;

use crate::digest::Digest;
use crate::objects::{Objects, PutError};

use header::HeaderFault;
pub use media_type::{MediaType, MediaTypeError};
pub use name::{NAME_BYTES_MAX, display_name};
pub(crate) use reference::base64_bytes;
pub use reference::{ImageRef, MessageReferenceError, ReferenceError, ResolveError, placeholder, references};

/// What an image, and a message, may have at most.
///
/// The defaults are those that no large provider refuses for a single image; see
/// [`RouteLimits::image_limits`](crate::policy::RouteLimits::image_limits) for those of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// Length of an image. Default 5,242,880 bytes.
    pub image_bytes_max: u64,
    /// Length of an image as base64 with padding. Default 6,990,508 bytes.
    pub image_base64_bytes_max: u64,
    /// Pixels on the longer side. Default 8,000.
    pub side_max: u32,
    /// Width times height. Default 64,000,000.
    pub pixels_max: u64,
    /// Bytes behind the end of an image that are none of its own. Default 0.
    pub trailing_bytes_max: u64,
    /// Images in one message. Default 100.
    pub message_images_max: u64,
    /// Sum of the lengths of the images in one message. Default 32 MiB.
    pub message_bytes_max: u64,
}

impl Default for ImageLimits {
    fn default() -> Self {
        Self {
            image_bytes_max: 5_242_880,
            image_base64_bytes_max: base64_bytes(5_242_880),
            side_max: 8000,
            pixels_max: 64_000_000,
            trailing_bytes_max: 0,
            message_images_max: 100,
            message_bytes_max: 32 << 20,
        }
    }
}

/// Why an image was not admitted. Nothing was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageRefusal {
    /// No bytes. Give the image.
    #[error("image without bytes")]
    Empty,
    /// The first bytes are of no format that is carried. Convert the image.
    #[error("image that begins as no png, jpeg, webp or gif does")]
    Unknown,
    /// The bytes are of another format than was said. Correct the declaration.
    #[error("image declared as {declared} that is {found}")]
    MediaType {
        /// What was said.
        declared: MediaType,
        /// What the bytes are.
        found: MediaType,
    },
    /// More bytes than allowed. Make it smaller.
    #[error("image of {bytes} bytes, where at most {bytes_max} are allowed")]
    Bytes {
        /// Length of the image.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// More bytes as base64 than allowed. Make it smaller.
    #[error("image of {bytes} bytes as base64, where at most {bytes_max} are allowed")]
    Base64Bytes {
        /// Length of the image as base64.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The longer side has more pixels than allowed. Make it smaller.
    #[error("image of {width}x{height} pixels, where at most {side_max} a side are allowed")]
    Side {
        /// Width as shown.
        width: u32,
        /// Height as shown.
        height: u32,
        /// The limit.
        side_max: u32,
    },
    /// More pixels than allowed. Make it smaller.
    #[error("image of {pixels} pixels, where at most {pixels_max} are allowed")]
    Pixels {
        /// Width times height.
        pixels: u64,
        /// The limit.
        pixels_max: u64,
    },
    /// A side of no pixels. Give another image.
    #[error("image of {width}x{height} pixels")]
    NoPixels {
        /// Width as shown.
        width: u32,
        /// Height as shown.
        height: u32,
    },
    /// The bytes end before the image does. Read it again from its source.
    #[error("{media_type} that is cut off after {bytes} bytes")]
    Truncated {
        /// What it is.
        media_type: MediaType,
        /// Length of what is there.
        bytes: u64,
    },
    /// The container is broken. Read it again from its source, or convert it.
    #[error("{media_type} that is broken at byte {at}")]
    Malformed {
        /// What it is.
        media_type: MediaType,
        /// Offset of what cannot be read.
        at: u64,
    },
    /// Something stands behind the end of the image. Write the image alone.
    #[error("{media_type} with {bytes} bytes behind its end, where at most {bytes_max} are allowed")]
    Trailing {
        /// What it is.
        media_type: MediaType,
        /// Bytes behind the end.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// More images in a message than allowed. Spread them over several.
    #[error("message of {images} images, where at most {images_max} are allowed")]
    MessageImages {
        /// How many there are.
        images: u64,
        /// The limit.
        images_max: u64,
    },
    /// More bytes of images in a message than allowed. Spread them over several, or make them smaller.
    #[error("message of {bytes} bytes of images, where at most {bytes_max} are allowed")]
    MessageBytes {
        /// The sum.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
}

impl ImageRefusal {
    /// Short name of the rule, for logs and hosts.
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Unknown => "unknown-format",
            Self::MediaType { .. } => "media-type",
            Self::Bytes { .. } => "image-bytes",
            Self::Base64Bytes { .. } => "image-base64-bytes",
            Self::Side { .. } => "side",
            Self::Pixels { .. } => "pixels",
            Self::NoPixels { .. } => "no-pixels",
            Self::Truncated { .. } => "truncated",
            Self::Malformed { .. } => "malformed",
            Self::Trailing { .. } => "trailing",
            Self::MessageImages { .. } => "message-images",
            Self::MessageBytes { .. } => "message-bytes",
        }
    }
}

/// Why a batch of images was not admitted. Nothing of it was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchRefusal {
    /// One of them is refused.
    #[error("image {index}: {refusal}")]
    Image {
        /// Its position in the batch, from zero.
        index: usize,
        /// The rule that it breaks.
        #[source]
        refusal: ImageRefusal,
    },
    /// They are too many, or too large, together.
    #[error(transparent)]
    Message(ImageRefusal),
}

/// An image that was given, before admission.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// Its bytes.
    pub bytes: Cow<'a, [u8]>,
    /// The media type that came with it.
    pub declared: Option<MediaType>,
    /// The name or path that came with it.
    pub name: Option<Cow<'a, str>>,
}

/// An image that keeps every rule. Only admission makes one; [`Objects::put_image`] stores it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Admitted<'a> {
    bytes: Cow<'a, [u8]>,
    reference: ImageRef,
}

impl Admitted<'_> {
    /// The image's bytes, unchanged.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What a message holds of it, once it is stored.
    pub fn reference(&self) -> &ImageRef {
        &self.reference
    }
}

/// Admits one image.
///
/// The media type is that of the magic bytes; `declared` must agree where it is given. Of `name`
/// only what can be shown is kept.
///
/// # Cost
///
/// Walks the container, and hashes the bytes; independent of the number of pixels.
///
/// # Errors
///
/// By variant of [`ImageRefusal`]. Length and dimensions are looked at first, so that an image that
/// is too large says so, broken or not.
pub fn admit<'a>(
    bytes: impl Into<Cow<'a, [u8]>>,
    declared: Option<MediaType>,
    name: Option<&str>,
    limits: &ImageLimits,
) -> Result<Admitted<'a>, ImageRefusal> {
    let bytes = bytes.into();
    let (media_type, size) = inspect(&bytes, declared, limits)?;
    let name = name.and_then(display_name);
    let reference = ImageRef::new(Digest::of(&bytes), media_type, bytes.len() as u64, size, name);
    Ok(Admitted { bytes, reference })
}

/// Admits the images of one message, all or none.
///
/// # Errors
///
/// [`BatchRefusal::Message`] for what they break together, before any of them is looked into;
/// [`BatchRefusal::Image`] for the first that breaks a rule by itself.
pub fn admit_batch<'a>(
    candidates: impl IntoIterator<Item = Candidate<'a>>,
    limits: &ImageLimits,
) -> Result<Vec<Admitted<'a>>, BatchRefusal> {
    let candidates: Vec<_> = candidates.into_iter().collect();
    let (images, images_max) = (candidates.len() as u64, limits.message_images_max);
    if images_max < images {
        return Err(BatchRefusal::Message(ImageRefusal::MessageImages { images, images_max }));
    }
    let bytes = candidates.iter().map(|candidate| candidate.bytes.len() as u64).sum();
    if limits.message_bytes_max < bytes {
        let bytes_max = limits.message_bytes_max;
        return Err(BatchRefusal::Message(ImageRefusal::MessageBytes { bytes, bytes_max }));
    }
    let admitted = candidates.into_iter().enumerate().map(|(index, candidate)| {
        admit(candidate.bytes, candidate.declared, candidate.name.as_deref(), limits)
            .map_err(|refusal| BatchRefusal::Image { index, refusal })
    });
    admitted.collect()
}

/// Media type, and width and height as shown, of bytes that keep every rule.
fn inspect(
    bytes: &[u8],
    declared: Option<MediaType>,
    limits: &ImageLimits,
) -> Result<(MediaType, (u32, u32)), ImageRefusal> {
    let length = bytes.len() as u64;
    if length == 0 {
        return Err(ImageRefusal::Empty);
    }
    if limits.image_bytes_max < length {
        return Err(ImageRefusal::Bytes { bytes: length, bytes_max: limits.image_bytes_max });
    }
    if limits.image_base64_bytes_max < base64_bytes(length) {
        let bytes_max = limits.image_base64_bytes_max;
        return Err(ImageRefusal::Base64Bytes { bytes: base64_bytes(length), bytes_max });
    }
    let media_type = MediaType::of(bytes).ok_or(ImageRefusal::Unknown)?;
    if let Some(declared) = declared.filter(|declared| *declared != media_type) {
        return Err(ImageRefusal::MediaType { declared, found: media_type });
    }
    let header = header::read(media_type, bytes);
    if let Some((width, height)) = header.size() {
        if limits.side_max < width.max(height) {
            return Err(ImageRefusal::Side { width, height, side_max: limits.side_max });
        }
        let pixels = u64::from(width) * u64::from(height);
        if limits.pixels_max < pixels {
            return Err(ImageRefusal::Pixels { pixels, pixels_max: limits.pixels_max });
        }
        if pixels == 0 {
            return Err(ImageRefusal::NoPixels { width, height });
        }
    }
    match (header.end, header.size()) {
        (Ok(end), Some(size)) => {
            let behind = strange_bytes(media_type, bytes.get(end..).unwrap_or_default());
            if limits.trailing_bytes_max < behind {
                let bytes_max = limits.trailing_bytes_max;
                return Err(ImageRefusal::Trailing { media_type, bytes: behind, bytes_max });
            }
            Ok((media_type, size))
        }
        (Err(HeaderFault::Malformed { at }), _) => Err(ImageRefusal::Malformed { media_type, at: at as u64 }),
        (Err(HeaderFault::Truncated), _) | (Ok(_), None) => {
            Err(ImageRefusal::Truncated { media_type, bytes: length })
        }
    }
}

/// How many of the bytes behind an image's end are neither padding nor a further picture.
fn strange_bytes(media_type: MediaType, mut behind: &[u8]) -> u64 {
    loop {
        let padding = behind.iter().take_while(|byte| **byte == 0).count();
        behind = behind.get(padding..).unwrap_or_default();
        if media_type != MediaType::Jpeg || MediaType::of(behind) != Some(MediaType::Jpeg) {
            return behind.len() as u64;
        }
        match header::read(MediaType::Jpeg, behind).end {
            Ok(end) => behind = behind.get(end..).unwrap_or_default(),
            Err(_) => return behind.len() as u64,
        }
    }
}

impl Objects {
    /// Stores an admitted image and returns the reference that may now be logged.
    ///
    /// # Errors
    ///
    /// As [`Objects::put`].
    pub fn put_image(&self, image: &Admitted<'_>) -> Result<ImageRef, PutError> {
        self.put(image.bytes())?;
        Ok(image.reference().clone())
    }

    /// The bytes of a referenced image, checked against every field of the reference: digest,
    /// length, media type, width and height.
    ///
    /// # Cost
    ///
    /// As [`Objects::get`], and a walk over the container.
    ///
    /// # Errors
    ///
    /// By variant of [`ResolveError`].
    pub fn get_verified(&self, image: &ImageRef) -> Result<Vec<u8>, ResolveError> {
        let bytes = self.get(image.digest())?;
        let differs = |field, referenced: String, found: String| {
            let digest = *image.digest();
            Err(ResolveError::Differs { digest, field, referenced, found })
        };
        if bytes.len() as u64 != image.bytes() {
            return differs("bytes", image.bytes().to_string(), bytes.len().to_string());
        }
        let Some(media_type) = MediaType::of(&bytes) else {
            return differs("mediaType", image.media_type().to_string(), "unknown".to_owned());
        };
        if media_type != image.media_type() {
            return differs("mediaType", image.media_type().to_string(), media_type.to_string());
        }
        // Whatever the limits were when it was admitted: they may have changed since.
        let (width, height) = header::read(media_type, &bytes).size().unwrap_or_default();
        if width != image.width() {
            return differs("width", image.width().to_string(), width.to_string());
        }
        if height != image.height() {
            return differs("height", image.height().to_string(), height.to_string());
        }
        Ok(bytes)
    }
}

//! The media types that a request can carry, and the magic bytes that tell them apart.

use std::fmt;
use std::str::FromStr;

/// What an image's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MediaType {
    /// `image/png`
    Png,
    /// `image/jpeg`
    Jpeg,
    /// `image/webp`
    Webp,
    /// `image/gif`
    Gif,
}

impl MediaType {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Png, Self::Jpeg, Self::Webp, Self::Gif];

    /// The name, as in `image/png`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Webp => "image/webp",
            Self::Gif => "image/gif",
        }
    }

    /// The media type whose magic bytes `bytes` begin with.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            Some(Self::Png)
        } else if bytes.starts_with(b"\xff\xd8\xff") {
            Some(Self::Jpeg)
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            Some(Self::Webp)
        } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
            Some(Self::Gif)
        } else {
            None
        }
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A media type that no request carries. Convert the image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("media type {found:?}, where png, jpeg, webp and gif are carried")]
pub struct MediaTypeError {
    /// What was given, at most 64 characters of it.
    pub found: String,
}

impl FromStr for MediaType {
    type Err = MediaTypeError;

    /// Reads a media type in any case; `image/jpg` is taken for `image/jpeg`.
    fn from_str(text: &str) -> Result<Self, MediaTypeError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "image/png" => Ok(Self::Png),
            "image/jpeg" | "image/jpg" => Ok(Self::Jpeg),
            "image/webp" => Ok(Self::Webp),
            "image/gif" => Ok(Self::Gif),
            _ => Err(MediaTypeError { found: text.chars().take(64).collect() }),
        }
    }
}

//! The name of an object: the BLAKE3 of its uncompressed bytes.
//!
//! Owns the spelling `blake3:` and 64 lower-case hexadecimal digits, which logs, messages and the
//! command share. Knows no files.

use std::fmt;
use std::str::FromStr;

/// What stands before the digits of a digest.
pub const DIGEST_PREFIX: &str = "blake3:";

/// The BLAKE3 of an object's uncompressed bytes: what names it, and what every read checks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Hashes `bytes`.
    ///
    /// # Cost
    ///
    /// One pass, several GB/s on one core.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The digest whose 32 bytes these are.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 lower-case hexadecimal digits, without the prefix.
    pub fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// Reads 64 lower-case hexadecimal digits; `None` for anything else.
    pub(crate) fn from_hex(digits: &str) -> Option<Self> {
        if digits.bytes().any(|digit| digit.is_ascii_uppercase()) {
            return None; // one spelling each, so that a digest found as text is found always
        }
        blake3::Hash::from_hex(digits).ok().map(|hash| Self(*hash.as_bytes()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{DIGEST_PREFIX}{}", self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is no digest. Correct the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DigestError {
    /// Another algorithm's digest; objects of this store are named by BLAKE3 alone.
    #[error("digest of algorithm {algorithm:?}, where blake3 is expected")]
    Algorithm {
        /// What stands before the colon, at most 16 characters of it.
        algorithm: String,
    },
    /// Not 64 digits.
    #[error("digest of {digits} characters, where 64 are expected")]
    Length {
        /// How many bytes stand where the digits belong.
        digits: usize,
    },
    /// A character that is not `0`-`9` or `a`-`f`.
    #[error("digest with a character that is no lower-case hexadecimal digit, at position {at}")]
    Digit {
        /// Position among the digits, from zero.
        at: usize,
    },
}

impl FromStr for Digest {
    type Err = DigestError;

    /// Reads `blake3:` and 64 lower-case hexadecimal digits, or the digits alone.
    fn from_str(text: &str) -> Result<Self, DigestError> {
        let digits = match text.split_once(':') {
            None => text,
            Some(("blake3", digits)) => digits,
            Some((algorithm, _)) => {
                return Err(DigestError::Algorithm { algorithm: algorithm.chars().take(16).collect() });
            }
        };
        if digits.len() != 64 {
            return Err(DigestError::Length { digits: digits.len() });
        }
        if let Some(at) = digits.bytes().position(|digit| !matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(DigestError::Digit { at });
        }
        Self::from_hex(digits).ok_or(DigestError::Length { digits: digits.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_what_it_prints_and_nothing_else() {
        let digest = Digest::of(b"");
        let text = "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(digest.to_hex().parse(), Ok(digest));
        assert_eq!(
            text.replace("blake3", "sha256").parse::<Digest>(),
            Err(DigestError::Algorithm { algorithm: "sha256".into() })
        );
        assert_eq!("blake3:ab".parse::<Digest>(), Err(DigestError::Length { digits: 2 }));
        assert_eq!("AB".repeat(32).parse::<Digest>(), Err(DigestError::Digit { at: 0 }));
        assert_eq!("zz".repeat(32).parse::<Digest>(), Err(DigestError::Digit { at: 0 }));
    }
}

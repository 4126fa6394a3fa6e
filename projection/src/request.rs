//! A request: the frozen header and messages that a model is sent, with its digest.
//!
//! Owns the canonical bytes: `{"header":` H `,"messages":[` M₀ `,` M₁ … `]}`. A request cannot be
//! built outside this crate and never changes; it shares its messages with the session and with
//! every other request that shows them.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use rederive_engine::{Generation, Header, Node, Seq, Surface};

use crate::frozen::FrozenMessage;

pub(crate) const BEFORE_HEADER: &[u8] = b"{\"header\":";
pub(crate) const BEFORE_MESSAGES: &[u8] = b",\"messages\":[";
pub(crate) const BETWEEN_MESSAGES: &[u8] = b",";
pub(crate) const BEHIND_MESSAGES: &[u8] = b"]}";

/// The BLAKE3 digest of a request's canonical bytes.
///
/// Printed and parsed as 64 hexadecimal digits; parsing takes `blake3:` in front as well.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestDigest([u8; 32]);

impl RequestDigest {
    /// The digest's bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<blake3::Hash> for RequestDigest {
    fn from(hash: blake3::Hash) -> Self {
        Self(*hash.as_bytes())
    }
}

impl fmt::Display for RequestDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RequestDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no digest: 64 hexadecimal digits are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 hexadecimal digits, with or without blake3: in front")]
pub struct NotADigest;

impl FromStr for RequestDigest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let hex = text.strip_prefix("blake3:").unwrap_or(text);
        blake3::Hash::from_hex(hex).map(Self::from).map_err(|_| NotADigest)
    }
}

/// The frozen request: what a model is sent, byte for byte.
///
/// Made by a projector or by reconstruction, never by hand:
///
/// ```compile_fail
/// let request = rederive_projection::Request { inner: todo!() };
/// ```
///
/// Cloning costs one reference count.
#[derive(Clone)]
pub struct Request {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) header: Header,
    pub(crate) surface: Surface,
    /// Position of the event that comes next in the log.
    pub(crate) at: Seq,
    pub(crate) messages: usize,
    /// Indices of the nodes that project to nothing, ascending.
    pub(crate) silent: Arc<Vec<usize>>,
    pub(crate) bytes: u64,
    pub(crate) digest: RequestDigest,
}

impl Request {
    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// The digest of the canonical bytes.
    pub fn digest(&self) -> RequestDigest {
        self.inner.digest
    }

    /// Length of the canonical bytes.
    pub fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    /// How many messages the request carries.
    pub fn message_count(&self) -> usize {
        self.inner.messages
    }

    /// The header that the request carries.
    pub fn header(&self) -> &Header {
        &self.inner.header
    }

    /// The surface that the request shows: its nodes, among them those that project to nothing.
    pub fn surface(&self) -> &Surface {
        &self.inner.surface
    }

    /// How many replaces the surface had seen.
    pub fn generation(&self) -> Generation {
        self.inner.surface.generation()
    }

    /// How far the log went when the request was built: the seq of the event that came next.
    pub fn at(&self) -> Seq {
        self.inner.at
    }

    /// The messages in order. O(messages) to walk, no text is copied.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = FrozenMessage> {
        self.inner.surface.nodes().filter_map(FrozenMessage::of)
    }

    /// The message at `index`, counted from zero. O(log messages).
    pub fn message(&self, index: usize) -> Option<FrozenMessage> {
        self.message_node(index).and_then(FrozenMessage::of)
    }

    pub(crate) fn message_node(&self, index: usize) -> Option<&Arc<Node>> {
        self.inner.surface.at(self.node_of_message(index))
    }

    /// The index of the node that is the message at `index`.
    fn node_of_message(&self, index: usize) -> usize {
        // Silent node number i stands behind silent[i] - i messages.
        let silent = &self.inner.silent;
        let mut before = 0;
        let mut after = silent.len();
        while before < after {
            let middle = before.midpoint(after);
            if silent.get(middle).is_some_and(|node| node - middle <= index) {
                before = middle + 1;
            } else {
                after = middle;
            }
        }
        index + before
    }

    /// How many leading messages are known to be those of `earlier`, an earlier request of the same
    /// session: never more than there are, and all of them where only appends came between. O(log
    /// messages).
    pub fn unchanged_since(&self, earlier: &Self) -> usize {
        let surface = &self.inner.surface;
        let nodes =
            surface.unchanged_since(earlier.generation()).min(earlier.surface().len()).min(surface.len());
        nodes - self.inner.silent.partition_point(|node| *node < nodes)
    }

    /// The canonical bytes in pieces, in order; joined they are [`Request::bytes`] long.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let messages = self
            .inner
            .surface
            .nodes()
            .filter_map(|node| crate::frozen::project(node.kind(), node.text()))
            .enumerate()
            .flat_map(|(index, text)| {
                let between: &[u8] = if index == 0 { b"" } else { BETWEEN_MESSAGES };
                [between, text.as_bytes()]
            });
        [BEFORE_HEADER, self.inner.header.text().as_bytes(), BEFORE_MESSAGES]
            .into_iter()
            .chain(messages)
            .chain([BEHIND_MESSAGES])
            .filter(|chunk| !chunk.is_empty())
    }

    /// Writes the canonical bytes to `out`, many pieces a call and without joining them first.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        const PIECES_A_CALL: usize = 512;
        let mut chunks = self.chunks();
        loop {
            let mut slices: Vec<io::IoSlice<'_>> =
                chunks.by_ref().take(PIECES_A_CALL).map(io::IoSlice::new).collect();
            if slices.is_empty() {
                return Ok(());
            }
            let mut left = slices.as_mut_slice();
            while !left.is_empty() {
                match out.write_vectored(left) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => io::IoSlice::advance_slices(&mut left, written),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// The canonical bytes in one piece. Copies them all.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(usize::try_from(self.inner.bytes).unwrap_or(0));
        self.chunks().for_each(|chunk| out.extend_from_slice(chunk));
        out
    }
}

impl PartialEq for Request {
    fn eq(&self, other: &Self) -> bool {
        self.inner.digest == other.inner.digest
    }
}

impl Eq for Request {}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("at", &self.at())
            .field("messages", &self.message_count())
            .field("bytes", &self.bytes())
            .field("digest", &self.digest())
            .finish_non_exhaustive()
    }
}

//! How a request relates to the one before: does it extend it, or where do the two part?
//!
//! Owns the common prefix of two requests' canonical bytes. Finds it from shared nodes, and compares
//! text only where the two part.

use rederive_engine::Seq;

use crate::request::{BEFORE_HEADER, BEFORE_MESSAGES, BEHIND_MESSAGES, BETWEEN_MESSAGES, Request};

/// How a request relates to the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Up to the closing bytes, the one before is a prefix of it.
    Extends,
    /// The headers differ.
    Header {
        /// Length of the common prefix of the canonical bytes.
        byte: u64,
    },
    /// The headers are the same, and the messages part.
    Message {
        /// The first message that differs, counted from zero.
        index: usize,
        /// Its node in the later request; `None` where that has no such message.
        seq: Option<Seq>,
        /// Length of the common prefix of the canonical bytes.
        byte: u64,
    },
}

impl Relation {
    /// Of `earlier` and `later`, two requests of one log in its order.
    ///
    /// # Cost
    ///
    /// O(log nodes) where nothing was replaced between the two; otherwise what stands behind the first
    /// change.
    pub fn of(earlier: &Request, later: &Request) -> Self {
        let (old, new) = (earlier.header().text().as_bytes(), later.header().text().as_bytes());
        if earlier.header().seq() != later.header().seq() && old != new {
            return Self::Header { byte: BEFORE_HEADER.len() as u64 + common(old, new) };
        }
        let shared = later.unchanged_since(earlier).min(earlier.message_count());
        let (count_old, count_new) = (earlier.message_count(), later.message_count());
        let mut index = shared;
        while index < count_old && index < count_new {
            let (Some(a), Some(b)) = (earlier.message(index), later.message(index)) else { break };
            if !a.is(&b) && a.text() != b.text() {
                let inside = common(a.text().as_bytes(), b.text().as_bytes());
                let between = if index > 0 { BETWEEN_MESSAGES.len() as u64 } else { 0 };
                let byte = prefix_bytes(earlier, index) + between + inside;
                return Self::Message { index, seq: Some(b.seq()), byte };
            }
            index += 1;
        }
        if index == count_old {
            return Self::Extends;
        }
        Self::Message { index, seq: None, byte: prefix_bytes(earlier, index) }
    }

    /// Whether the later request extends the earlier one.
    pub fn extends(&self) -> bool {
        *self == Self::Extends
    }

    /// Length of the common prefix with `earlier`, the request that the relation was made with.
    pub fn kept_bytes(&self, earlier: &Request) -> u64 {
        match self {
            Self::Extends => earlier.bytes() - BEHIND_MESSAGES.len() as u64,
            Self::Header { byte } | Self::Message { byte, .. } => *byte,
        }
    }
}

/// Bytes of `request` before the message at `index`, without a comma in front of that.
fn prefix_bytes(request: &Request, index: usize) -> u64 {
    let fixed = BEFORE_HEADER.len() + request.header().text().len() + BEFORE_MESSAGES.len();
    let texts: usize = request.messages().take(index).map(|message| message.text().len()).sum();
    (fixed + texts + index.saturating_sub(1) * BETWEEN_MESSAGES.len()) as u64
}

fn common(a: &[u8], b: &[u8]) -> u64 {
    a.iter().zip(b).take_while(|(a, b)| a == b).count() as u64
}

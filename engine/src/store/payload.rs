//! The payload of a journal frame: the lines of one batch.
//!
//! Owns the bincode record, which is that of a `Vec<Vec<u8>>`. A line is in the journal as it is in
//! the log, so that recovery goes through the same door as every other event.

use bincode::config::{self, Configuration};

use crate::event::{Event, line};

const CONFIG: Configuration = config::standard();

/// Encodes a batch's lines one by one.
pub(crate) struct Builder {
    out: Vec<u8>,
}

impl Builder {
    pub(crate) fn new(lines: usize, capacity: usize) -> Self {
        let mut builder = Self { out: Vec::with_capacity(capacity + 9) };
        builder.length(lines as u64);
        builder
    }

    pub(crate) fn push(&mut self, event: &Event) {
        self.length(line::length(event));
        event.write_line(&mut self.out);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.out
    }

    fn length(&mut self, value: u64) {
        // Writing to a vector cannot fail.
        let _ = bincode::encode_into_std_write(value, &mut self.out, CONFIG);
    }
}

/// The lines of a payload; `None` where it does not decode whole.
pub(crate) fn decode(payload: &[u8]) -> Option<Vec<&[u8]>> {
    let (count, used) = bincode::decode_from_slice::<u64, _>(payload, CONFIG).ok()?;
    let mut rest = payload.get(used..)?;
    // Line by line: decoding the list at once would allocate what the count claims.
    let mut lines = Vec::new();
    for _ in 0..count {
        let (line, used) = bincode::borrow_decode_from_slice::<&[u8], _>(rest, CONFIG).ok()?;
        lines.push(line);
        rest = rest.get(used..)?;
    }
    rest.is_empty().then_some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_gives_back_its_lines_and_nothing_else() {
        let lines = vec![b"{}".to_vec(), Vec::new(), vec![7; 70_000]];
        let payload = bincode::encode_to_vec(&lines, CONFIG).unwrap();
        assert_eq!(decode(&payload).unwrap(), lines);
        for cut in 0..64 {
            assert!(decode(&payload[..cut]).is_none(), "cut at {cut}");
        }
        assert!(decode(&[payload.as_slice(), b"x"].concat()).is_none());
        // A claim of 2^62 lines allocates nothing.
        assert!(decode(&[253, 0, 0, 0, 0, 0, 0, 0, 64]).is_none());
    }
}

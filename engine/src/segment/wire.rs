//! Numbers in sections: varints, zigzag, and a cursor that never reads past its end.
//!
//! Bytes: FORMAT.md § Segments, "numbers".

use super::error::Malformed;

/// Appends `value`, seven bits a byte, the lowest first; the top bit says that more follow.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the difference `to - from`, wrapping, its sign in the lowest bit.
pub(super) fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    let step = to.wrapping_sub(from).cast_signed();
    put(out, ((step << 1) ^ (step >> 63)).cast_unsigned());
}

/// Appends `bytes` behind their length.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads what the functions above wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.rest.split_first().ok_or(Malformed("ends early"))?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                // One spelling a number: no byte of zero bits behind the last.
                if byte == 0 && shift > 0 {
                    break;
                }
                return Ok(value);
            }
        }
        Err(Malformed("a number is no number"))
    }

    /// A number that fits four bytes.
    pub(super) fn short(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed("a number is too large"))
    }

    /// A count of things that take at least one byte each of what is left.
    pub(super) fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.number()?;
        if count > self.left() as u64 {
            return Err(Malformed("a count is over what is there"));
        }
        Ok(count as usize)
    }

    pub(super) fn step(&mut self, from: u64) -> Result<u64, Malformed> {
        let coded = self.number()?;
        let step = (coded >> 1).cast_signed() ^ -((coded & 1).cast_signed());
        Ok(from.wrapping_add(step.cast_unsigned()))
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed("ends early"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed("ends early"))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.count()?;
        self.take(length)
    }

    /// A part with a cursor of its own.
    pub(super) fn part(&mut self) -> Result<Cursor<'a>, Malformed> {
        self.bytes().map(Cursor::new)
    }

    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed("bytes behind the end")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_steps_read_back() {
        let values = [0, 1, 127, 128, 300, 1 << 20, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        for a in values {
            for b in values {
                let mut out = Vec::new();
                put(&mut out, a);
                put_step(&mut out, a, b);
                let mut cursor = Cursor::new(&out);
                assert_eq!((cursor.number(), cursor.step(a)), (Ok(a), Ok(b)));
                assert_eq!(cursor.end(), Ok(()));
            }
        }
    }

    #[test]
    fn a_number_has_one_spelling_and_an_end() {
        for bytes in [&[0x80, 0x00][..], &[0xff; 11], &[0x80], &[]] {
            assert!(Cursor::new(bytes).number().is_err(), "{bytes:?}");
        }
    }
}

//! Randomness and made-up text.
//!
//! Owns the generator behind every seed: SplitMix64 (Steele, Lea, Flood 2014), whose constants must
//! not change, or every seed means another log.

use std::fmt::Write as _;

/// The numbers that a seed stands for.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of `low..=high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// An index into `len` things.
    pub(super) fn index(&mut self, len: usize) -> usize {
        (self.next() % len.max(1) as u64) as usize
    }

    pub(super) fn one_in(&mut self, chances: u64) -> bool {
        self.next().is_multiple_of(chances)
    }

    pub(super) fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        let index = self.index(of.len());
        of.get(index).copied().unwrap_or_default()
    }

    pub(super) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            let other = self.index(last + 1);
            things.swap(last, other);
        }
    }
}

const WORDS: &str = "the a test fails because cursor is read before lock taken so second run sees old value and \
    returns it without checking file path name we should move this call into helper add one line of \
    comment then build again parser reads header first body later config module exports two functions that \
    differ only in order of their arguments error comes from line forty of main where buffer was never \
    flushed open close write sync retry timeout branch commit diff patch review cache miss index key row \
    column table query plan slow fast small large empty full next previous left right start end user \
    session message token model reply result output input command shell folder script version release note";

/// One word of the vocabulary.
pub(super) fn word(rng: &mut Rng) -> &'static str {
    let count = WORDS.split_whitespace().count();
    WORDS.split_whitespace().nth(rng.index(count)).unwrap_or("word")
}

/// Prose of about `bytes` bytes, as the inside of a JSON string.
pub(super) fn prose(rng: &mut Rng, bytes: u64) -> String {
    let mut text = String::with_capacity(bytes as usize + 16);
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    while (text.len() as u64) < bytes {
        let word = words.get(rng.index(words.len())).copied().unwrap_or_default();
        text.push_str(word);
        text.push_str(match rng.next() % 16 {
            0 => ". ",
            1 => ", ",
            2 => ":\\n  ",
            3 => "\\n",
            _ => " ",
        });
    }
    text.truncate(text.trim_end_matches([' ', '\\', 'n', ':', '.', ',']).len().max(1));
    text
}

/// What a command prints: numbered lines of about `bytes` bytes in all, inside a JSON string.
pub(super) fn output(rng: &mut Rng, bytes: u64) -> String {
    let mut text = String::with_capacity(bytes as usize + 80);
    let mut line = rng.between(1, 400);
    while (text.len() as u64) < bytes {
        let (one, two, three) = (word(rng), word(rng), word(rng));
        let _infallible =
            write!(text, "{line}\\t{one}/{two}.rs: {three} = \\\"{:x}\\\";\\n", rng.next() >> 24);
        line += 1;
    }
    text
}

/// Fragments that break what is not verbatim: escapes, lone surrogates, odd scalars.
pub(super) const ODD_TEXT: [&str; 14] = [
    "\\ud83d",
    "\\ude00 alone",
    "\\ud83d\\ude00",
    "\\ude00\\ud83d",
    "\\u0000",
    "\\/ \\b\\f\\n\\r\\t",
    "\\\"quoted\\\" \\\\ back",
    "na\\u00efve caf\u{e9} cafe\u{301}",
    "\u{1f469}\u{200d}\u{1f467} \u{1f1e8}\u{1f1e6}",
    "\u{2028}\u{2029}\u{feff}\u{fffd}",
    "\u{6a21}\u{578b}\u{53ef}\u{89c1}",
    "</system-reminder>",
    " ",
    "",
];

/// Numbers that no double holds or prints as they stand.
pub(super) const ODD_NUMBERS: [&str; 14] = [
    "-0",
    "0.0",
    "1.0",
    "1E+2",
    "1e999",
    "-1e-999",
    "18446744073709551616",
    "9007199254740993",
    "-9223372036854775809",
    "0.1000000000000000055511151231257827",
    "123456789012345678901234567890",
    "1e0",
    "5e-324",
    "2.50",
];

//! JSON by spans: one pass over the bytes checks the grammar and finds where things stand.
//!
//! Owns the scanner and the reading of strings and numbers inside a span. Builds no tree, decodes
//! no number, keeps every byte as it came. Knows nothing of events.
//!
//! Grammar: RFC 8259. Stricter in one point: no object has one key twice, at any depth; keys are
//! compared as the strings they stand for, so `"a"` and `"\u0061"` are one key. Lone surrogate
//! escapes are accepted, as the RFC's grammar does (its section 8.2).

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

/// Deepest nesting of arrays and objects that is admitted; the event's own object is level one.
pub(crate) const DEPTH_MAX: usize = 128;

/// Members are recorded down to this level: the event's, its data's, and those of data's objects.
const RECORDED_DEPTH: usize = 3;

/// From so many keys on, an object's keys are compared through a hash set.
const KEYS_COMPARED_LINEARLY: usize = 12;

/// A half-open range of bytes in a scanned text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The bytes of `text` that the span covers; empty where it lies outside.
    pub(crate) fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.range()).unwrap_or_default()
    }
}

/// One member of a recorded object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// Index of the member whose value is the object that this member stands in; `NONE` at the top.
    pub(crate) parent: u32,
    /// The key, without its quotes and as written.
    pub(crate) key: Span,
    /// The value, from its first to its last byte.
    pub(crate) value: Span,
}

pub(crate) const NONE: u32 = u32::MAX;

/// The parent of what stands in an array: it is never recorded, whatever its depth.
const UNRECORDED: u32 = u32::MAX - 1;

/// What is wrong with a text, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JsonError {
    pub(crate) offset: usize,
    pub(crate) fault: Fault,
}

/// How a text fails to be one JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    NotUtf8,
    NotAnObject,
    Grammar(&'static str),
    TooDeep,
    DuplicateKey,
}

/// The members of a scanned object, in the order of the text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    list: Vec<Member>,
}

impl Members {
    /// The members of the object that is the value of member `parent`.
    pub(crate) fn of(&self, parent: u32) -> impl Iterator<Item = (u32, Member)> + '_ {
        self.list.iter().enumerate().filter(move |(_, m)| m.parent == parent).map(|(i, m)| (i as u32, *m))
    }

    /// The member `key` of the object that is the value of member `parent`.
    pub(crate) fn get(&self, text: &[u8], parent: u32, key: &str) -> Option<(u32, Member)> {
        self.of(parent).find(|(_, member)| key_is(member.key.of(text), key))
    }
}

/// Checks that `text` is one JSON object and records its upper members.
pub(crate) fn scan_object(text: &[u8]) -> Result<Members, JsonError> {
    if let Err(error) = std::str::from_utf8(text) {
        return Err(JsonError { offset: error.valid_up_to(), fault: Fault::NotUtf8 });
    }
    let mut scanner = Scanner::new(text, false);
    scanner.space();
    if scanner.peek() != Some(b'{') {
        return Err(scanner.fault(Fault::NotAnObject));
    }
    scanner.value(1, NONE)?;
    scanner.space();
    if scanner.at != text.len() {
        return Err(scanner.fault(Fault::Grammar("characters after the object")));
    }
    Ok(scanner.members)
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    members: Members,
    /// Keys of the objects that are open, innermost last.
    keys: Vec<Key>,
    /// Whether the text was checked before, so that no key can stand twice.
    checked: bool,
}

/// A key, and whether it is written with an escape: without one it is compared as it is written.
#[derive(Clone, Copy)]
struct Key {
    span: Span,
    escaped: bool,
}

impl Key {
    fn is(self, other: Self, text: &[u8]) -> bool {
        if self.escaped || other.escaped {
            string_value(self.span.of(text)) == string_value(other.span.of(text))
        } else {
            self.span.of(text) == other.span.of(text)
        }
    }
}

impl<'a> Scanner<'a> {
    fn new(text: &'a [u8], checked: bool) -> Self {
        Self { text, at: 0, members: Members::default(), keys: Vec::new(), checked }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn fault(&self, fault: Fault) -> JsonError {
        JsonError { offset: self.at, fault }
    }

    fn grammar(&self, what: &'static str) -> JsonError {
        self.fault(Fault::Grammar(what))
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Scans one value whose container would be at `depth`.
    fn value(&mut self, depth: usize, parent: u32) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'{') => self.object(depth, parent),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(|_| ()),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.grammar("no JSON value begins with this character")),
            None => Err(self.grammar("the text ends where a value is due")),
        }
    }

    fn object(&mut self, depth: usize, parent: u32) -> Result<(), JsonError> {
        if depth > DEPTH_MAX {
            return Err(self.fault(Fault::TooDeep));
        }
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        let first_key = self.keys.len();
        let mut many: Option<HashSet<Vec<u8>>> = None;
        let recorded = depth <= RECORDED_DEPTH && parent != UNRECORDED;
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.grammar("a key is due"));
            }
            let key = self.string()?;
            if !self.checked {
                self.note_key(key, first_key, &mut many)?;
            }
            let key = key.span;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.grammar("a colon is due"));
            }
            self.at += 1;
            self.space();
            let start = self.at as u32;
            let mut own = UNRECORDED;
            if recorded {
                own = self.members.list.len() as u32;
                self.members.list.push(Member { parent, key, value: Span { start, end: start } });
            }
            self.value(depth + 1, own)?;
            let end = self.at as u32;
            if let Some(member) = self.members.list.get_mut(own as usize) {
                member.value.end = end;
            }
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.grammar("a comma or the object's end is due")),
            }
            self.space();
        }
        self.at += 1;
        self.keys.truncate(first_key);
        Ok(())
    }

    fn note_key(
        &mut self,
        key: Key,
        first_key: usize,
        many: &mut Option<HashSet<Vec<u8>>>,
    ) -> Result<(), JsonError> {
        let earlier = self.keys.get(first_key..).unwrap_or_default();
        let value = |key: Key| string_value(key.span.of(self.text)).into_owned();
        let twice = if let Some(set) = many {
            !set.insert(value(key))
        } else {
            if earlier.len() + 1 >= KEYS_COMPARED_LINEARLY {
                *many = Some(earlier.iter().copied().chain([key]).map(value).collect());
            }
            earlier.iter().any(|other| other.is(key, self.text))
        };
        if twice {
            return Err(JsonError { offset: key.span.start as usize, fault: Fault::DuplicateKey });
        }
        self.keys.push(key);
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), JsonError> {
        if depth > DEPTH_MAX {
            return Err(self.fault(Fault::TooDeep));
        }
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1, UNRECORDED)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.grammar("a comma or the array's end is due")),
            }
            self.space();
        }
        self.at += 1;
        Ok(())
    }

    /// Passes over a string of a text that was checked before: only its end is looked for.
    fn checked_string(&mut self) -> Result<Key, JsonError> {
        let start = self.at;
        let mut escaped = false;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(step) = quote_or_escape(rest) else {
                self.at = self.text.len();
                return Err(self.grammar("the text ends inside a string"));
            };
            self.at += step;
            if self.peek() == Some(b'"') {
                let span = Span { start: start as u32, end: self.at as u32 };
                self.at += 1;
                return Ok(Key { span, escaped });
            }
            escaped = true;
            self.at += 2;
        }
    }

    /// Scans a string; the span is without the quotes.
    fn string(&mut self) -> Result<Key, JsonError> {
        self.at += 1;
        if self.checked {
            return self.checked_string();
        }
        let start = self.at;
        let mut escaped = false;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(step) = plain_run(rest) else {
                self.at = self.text.len();
                return Err(self.grammar("the text ends inside a string"));
            };
            self.at += step;
            match self.peek() {
                Some(b'"') => {
                    let span = Span { start: start as u32, end: self.at as u32 };
                    self.at += 1;
                    return Ok(Key { span, escaped });
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(self.grammar("a control character inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let hex = self.text.get(self.at + 2..self.at + 6).unwrap_or_default();
                if hex.len() != 4 || !hex.iter().all(u8::is_ascii_hexdigit) {
                    return Err(self.grammar("four hexadecimal digits are due"));
                }
                self.at += 6;
            }
            _ => return Err(self.grammar("no such escape")),
        }
        Ok(())
    }

    fn literal(&mut self, word: &'static [u8]) -> Result<(), JsonError> {
        if self.text.get(self.at..self.at + word.len()) == Some(word) {
            self.at += word.len();
            Ok(())
        } else {
            Err(self.grammar("no JSON value begins so"))
        }
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.grammar("a digit is due")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
            if let Some(b'0'..=b'9') = self.peek() {
                return Err(self.grammar("a number with a leading zero"));
            }
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }
}

/// How many bytes stand before the next quote or backslash; `None` where the text ends first.
fn quote_or_escape(text: &[u8]) -> Option<usize> {
    let (words, _) = text.as_chunks::<8>();
    if let Some(word) = words.first()
        && let Some(step) = stop_in_word(*word)
    {
        return Some(step);
    }
    memchr::memchr2(b'"', b'\\', text)
}

/// How many bytes stand before the next quote, backslash or control character; `None` where the
/// text ends first.
fn plain_run(text: &[u8]) -> Option<usize> {
    /// Most strings are keys and names: they end within so many words.
    const WORDS_FIRST: usize = 3;
    let mut at = 0;
    let (words, _) = text.as_chunks::<8>();
    for word in words.iter().take(WORDS_FIRST) {
        if let Some(step) = stop_in_word(*word) {
            return Some(at + step);
        }
        at += 8;
    }
    // Long text: blocks that the compiler compares as vectors.
    let (blocks, _) = text.get(at..).unwrap_or_default().as_chunks::<32>();
    for block in blocks {
        if block.iter().fold(false, |hit, &byte| hit | is_stop(byte)) {
            break;
        }
        at += 32;
    }
    let (words, tail) = text.get(at..).unwrap_or_default().as_chunks::<8>();
    for word in words {
        if let Some(step) = stop_in_word(*word) {
            return Some(at + step);
        }
        at += 8;
    }
    tail.iter().position(|&byte| is_stop(byte)).map(|step| at + step)
}

#[expect(clippy::needless_bitwise_bool, reason = "without branches the comparison becomes a vector")]
fn is_stop(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < 0x20)
}

/// Where in eight bytes the first stop stands: the classic zero-byte test on each of the three
/// classes.
fn stop_in_word(word: [u8; 8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let word = u64::from_le_bytes(word);
    let quote = word ^ (ONES * 0x22);
    let slash = word ^ (ONES * 0x5c);
    let hit = ((quote.wrapping_sub(ONES) & !quote)
        | (slash.wrapping_sub(ONES) & !slash)
        | (word.wrapping_sub(ONES * 0x20) & !word))
        & HIGH;
    (hit != 0).then_some((hit.trailing_zeros() / 8) as usize)
}

/// Whether the key `raw`, as written, stands for `name`.
pub(crate) fn key_is(raw: &[u8], name: &str) -> bool {
    raw == name.as_bytes() || (raw.contains(&b'\\') && *string_value(raw) == *name.as_bytes())
}

/// The bytes that the string `raw` (without quotes, as written, of checked grammar) stands for:
/// UTF-8, with lone surrogates in the three-byte form that UTF-8 would give them (WTF-8).
pub(crate) fn string_value(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.contains(&b'\\') {
        return Cow::Borrowed(raw);
    }
    let mut value = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'\\' {
            value.push(byte);
            rest = tail;
            continue;
        }
        let (&escape, tail) = tail.split_first().unwrap_or((&b'\\', &[]));
        rest = tail;
        match escape {
            b'b' => value.push(8),
            b'f' => value.push(12),
            b'n' => value.push(b'\n'),
            b'r' => value.push(b'\r'),
            b't' => value.push(b'\t'),
            b'u' => {
                let unit = hex(rest);
                rest = rest.get(4..).unwrap_or_default();
                let low = rest.strip_prefix(b"\\u").map(hex).filter(|low| (0xdc00..0xe000).contains(low));
                match (unit, low) {
                    (0xd800..0xdc00, Some(low)) => {
                        rest = rest.get(6..).unwrap_or_default();
                        push_scalar(&mut value, 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00));
                    }
                    _ => push_scalar(&mut value, unit),
                }
            }
            other => value.push(other),
        }
    }
    Cow::Owned(value)
}

fn hex(text: &[u8]) -> u32 {
    text.iter().take(4).fold(0, |value, &digit| value << 4 | (digit as char).to_digit(16).unwrap_or(0))
}

fn push_scalar(out: &mut Vec<u8>, code: u32) {
    if let Some(scalar) = char::from_u32(code) {
        out.extend_from_slice(scalar.encode_utf8(&mut [0; 4]).as_bytes());
    } else {
        // A lone surrogate: its three bytes by the pattern of UTF-8.
        out.extend_from_slice(&[
            0xe0 | (code >> 12) as u8,
            0x80 | (code >> 6 & 0x3f) as u8,
            0x80 | (code & 0x3f) as u8,
        ]);
    }
}

/// The text of the string value `raw` (with its quotes); `None` where it is no string. Lone
/// surrogates read as U+FFFD.
pub(crate) fn as_text(raw: &[u8]) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    Some(match string_value(inner) {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Cow::Owned(text),
            Err(error) => Cow::Owned(lossy_wtf8(error.as_bytes())),
        },
    })
}

/// Replaces each surrogate's three bytes by one U+FFFD.
fn lossy_wtf8(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, tail)) = rest.split_first() {
        if byte == 0xed && tail.first().is_some_and(|second| *second >= 0xa0) {
            out.extend_from_slice("\u{fffd}".as_bytes());
            rest = rest.get(3..).unwrap_or_default();
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The value of `raw` as an integer that JavaScript holds exactly (at most 2^53 - 1), however it
/// is spelt (`5`, `5.0`, `50e-1`); `None` otherwise.
pub(crate) fn as_safe_integer(raw: &[u8]) -> Option<u64> {
    const SAFE_MAX: u64 = (1 << 53) - 1;
    if raw.len() <= 16 && !raw.is_empty() && raw.iter().all(u8::is_ascii_digit) {
        return raw
            .iter()
            .try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
            .filter(|value| *value <= SAFE_MAX);
    }
    if !matches!(raw.first(), Some(b'-' | b'0'..=b'9')) {
        return None;
    }
    let value: f64 = std::str::from_utf8(raw).ok()?.parse().ok()?;
    #[expect(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "bounded by the check before it")]
    (value >= 0.0 && value <= SAFE_MAX as f64 && value.fract() == 0.0).then_some(value as u64)
}

/// The members of the object `raw`, which must be of checked grammar; empty where it is no object.
pub(crate) fn object_members(raw: &[u8]) -> Vec<(Span, Span)> {
    let mut scanner = Scanner::new(raw, true);
    if scanner.peek() != Some(b'{') || scanner.object(RECORDED_DEPTH, NONE).is_err() {
        return Vec::new();
    }
    scanner.members.list.iter().map(|member| (member.key, member.value)).collect()
}

/// A scanner that stands at the value of `key` in the object `raw`, which must be of checked grammar;
/// `None` where `raw` is no object or has no such member. Looks no further than that.
fn seek<'a>(raw: &'a [u8], key: &str) -> Option<Scanner<'a>> {
    let mut scanner = Scanner::new(raw, true);
    if scanner.peek() != Some(b'{') {
        return None;
    }
    loop {
        // Over the brace, or the comma behind the last value.
        scanner.at += 1;
        scanner.space();
        if scanner.peek() != Some(b'"') {
            return None;
        }
        let found = scanner.string().ok()?;
        scanner.space();
        scanner.at += 1;
        scanner.space();
        if key_is(found.span.of(raw), key) {
            return Some(scanner);
        }
        scanner.value(1, UNRECORDED).ok()?;
        scanner.space();
    }
}

/// The value of `key` in the object `raw`, which must be of checked grammar. Looks no further than
/// the member.
pub(crate) fn member<'a>(raw: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut scanner = seek(raw, key)?;
    let start = scanner.at;
    scanner.value(1, UNRECORDED).ok()?;
    raw.get(start..scanner.at)
}

/// The first byte of the value of `key` in the object `raw`, which must be of checked grammar. Does not
/// look at the rest of the value.
pub(crate) fn member_first_byte(raw: &[u8], key: &str) -> Option<u8> {
    seek(raw, key)?.peek()
}

/// The items of the array `raw`, which must be of checked grammar, as they are asked for; none where
/// it is no array.
fn items(raw: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut scanner = Scanner::new(raw, true);
    let is_array = scanner.peek() == Some(b'[');
    scanner.at += 1;
    scanner.space();
    std::iter::from_fn(move || {
        if !is_array || scanner.peek().is_none_or(|byte| byte == b']') {
            return None;
        }
        let start = scanner.at;
        if scanner.value(1, UNRECORDED).is_err() {
            scanner.at = raw.len();
            return None;
        }
        let item = raw.get(start..scanner.at);
        scanner.space();
        if scanner.peek() == Some(b',') {
            scanner.at += 1;
            scanner.space();
        }
        item
    })
}

/// The first item of the array `raw`, which must be of checked grammar.
pub(crate) fn first_item(raw: &[u8]) -> Option<&[u8]> {
    items(raw).next()
}

/// The items of the array `raw`, which must be of checked grammar; empty where it is no array.
pub(crate) fn array_items(raw: &[u8]) -> Vec<&[u8]> {
    items(raw).collect()
}

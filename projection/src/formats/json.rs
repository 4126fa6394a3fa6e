//! Spans of JSON text: members, elements and strings, found without decoding anything.
//!
//! Owns the one pass that leaves numbers, key order and escapes as they were spelled, and the rule
//! for lone surrogates. Knows JSON; knows no messages. Text is checked against the grammar once
//! ([`check`]); after that a span that does not scan is reported as [`Malformed`], never a panic.

use std::borrow::Cow;

use memchr::{memchr, memchr2};
use serde_json::value::RawValue;

/// The text is not the JSON that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

type Scan<T> = Result<T, Malformed>;

/// Checks `text` against the JSON grammar and cuts the white space around it.
pub(super) fn check(text: &str) -> Scan<&str> {
    serde_json::from_str::<&RawValue>(text).map(RawValue::get).map_err(|_| Malformed)
}

/// The members of an object, in order; keys decoded, values as they are spelled.
pub(super) fn members(object: &str) -> Scan<Vec<(Cow<'_, str>, &str)>> {
    let mut cursor = Cursor { text: object, at: 0 };
    let mut found = Vec::with_capacity(8);
    cursor.expect(b'{')?;
    if cursor.take(b'}') {
        return Ok(found);
    }
    loop {
        cursor.blank();
        let key = unquote(cursor.string()?);
        cursor.expect(b':')?;
        found.push((key, cursor.value()?));
        if !cursor.take(b',') {
            cursor.expect(b'}')?;
            return Ok(found);
        }
    }
}

/// The elements of an array, in order, as they are spelled.
pub(super) fn elements(array: &str) -> Scan<Vec<&str>> {
    let mut cursor = Cursor { text: array, at: 0 };
    let mut found = Vec::with_capacity(4);
    cursor.expect(b'[')?;
    if cursor.take(b']') {
        return Ok(found);
    }
    loop {
        found.push(cursor.value()?);
        if !cursor.take(b',') {
            cursor.expect(b']')?;
            return Ok(found);
        }
    }
}

/// The value of the first member called `key`.
pub(super) fn member<'a>(object: &'a str, key: &str) -> Scan<Option<&'a str>> {
    Ok(members(object)?.into_iter().find(|(name, _)| name == key).map(|(_, value)| value))
}

/// Whether a span is a string, told by its first byte.
pub(super) fn is_string(span: &str) -> bool {
    span.starts_with('"')
}

/// Whether a span is a number, told by its first byte.
pub(super) fn is_number(span: &str) -> bool {
    span.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// What stands between the quotes of a string span, still escaped.
pub(super) fn inside(string: &str) -> &str {
    string.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(string)
}

/// A string span decoded; a lone surrogate becomes U+FFFD.
pub(super) fn unquote(string: &str) -> Cow<'_, str> {
    let text = inside(string);
    let Some(first) = memchr(b'\\', text.as_bytes()) else { return Cow::Borrowed(text) };
    let (start, mut rest) = text.split_at_checked(first).unwrap_or((text, ""));
    let mut out = String::with_capacity(text.len());
    out.push_str(start);
    while let Some(escape) = rest.strip_prefix('\\') {
        let (decoded, used) = decode_escape(escape);
        out.push(decoded);
        rest = escape.get(used..).unwrap_or("");
        let next = memchr(b'\\', rest.as_bytes()).unwrap_or(rest.len());
        let (plain, tail) = rest.split_at_checked(next).unwrap_or((rest, ""));
        out.push_str(plain);
        rest = tail;
    }
    Cow::Owned(out)
}

/// One escape, without its backslash: the character, and the bytes that it takes.
fn decode_escape(escape: &str) -> (char, usize) {
    let Some(kind) = escape.chars().next() else { return (char::REPLACEMENT_CHARACTER, 0) };
    match kind {
        'n' => ('\n', 1),
        't' => ('\t', 1),
        'r' => ('\r', 1),
        'b' => ('\u{8}', 1),
        'f' => ('\u{c}', 1),
        'u' => match unit(escape) {
            Some(high @ 0xD800..=0xDBFF) => match low_after(escape) {
                Some(low) => {
                    let scalar = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                    (char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER), 11)
                }
                None => (char::REPLACEMENT_CHARACTER, 5),
            },
            Some(code) => (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 5),
            None => (char::REPLACEMENT_CHARACTER, 1),
        },
        other => (other, other.len_utf8()),
    }
}

/// The code unit of `uXXXX`.
fn unit(escape: &str) -> Option<u32> {
    escape.get(1..5).and_then(|hex| u32::from_str_radix(hex, 16).ok())
}

/// The low surrogate that stands right after `uXXXX`, if one does.
fn low_after(escape: &str) -> Option<u32> {
    let next = escape.get(5..)?.strip_prefix('\\')?;
    if !next.starts_with('u') {
        return None;
    }
    unit(next).filter(|low| (0xDC00..=0xDFFF).contains(low))
}

/// JSON text without lone surrogates: each such escape becomes `\ufffd`, all else stays as it is.
///
/// Works on any JSON text, since a backslash stands only inside strings. Cost: one pass over the
/// backslashes; borrowed when nothing changes.
pub(super) fn scalar_text(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| memchr(b'\\', rest.as_bytes())) {
        let slash = at + found;
        let escape = text.get(slash + 1..).unwrap_or("");
        let surrogate = Some(()).filter(|()| escape.starts_with('u')).and_then(|()| unit(escape));
        at = match surrogate {
            Some(0xD800..=0xDBFF) if low_after(escape).is_some() => slash + 12,
            Some(0xD800..=0xDFFF) => {
                out.push_str(text.get(copied..slash).unwrap_or(""));
                out.push_str("\\ufffd");
                copied = slash + 6;
                copied
            }
            _ => slash + 1 + escape.chars().next().map_or(0, char::len_utf8),
        };
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(copied..).unwrap_or(""));
    Cow::Owned(out)
}

/// Whether a string span holds nothing but white space.
pub(super) fn is_blank(string: &str) -> bool {
    let text = inside(string);
    match text.as_bytes().first() {
        None => true,
        Some(first) if first.is_ascii_graphic() && *first != b'\\' => false,
        Some(_) => unquote(string).trim().is_empty(),
    }
}

/// Appends `text` as a JSON string.
pub(super) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// A place in JSON text.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.blank();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Scan<()> {
        if self.take(byte) { Ok(()) } else { Err(Malformed) }
    }

    fn span(&self, from: usize) -> Scan<&'a str> {
        self.text.get(from..self.at).ok_or(Malformed)
    }

    fn string(&mut self) -> Scan<&'a str> {
        let from = self.at;
        if self.peek() != Some(b'"') {
            return Err(Malformed);
        }
        self.at += 1;
        loop {
            let rest = self.text.as_bytes().get(self.at..).ok_or(Malformed)?;
            let found = memchr2(b'"', b'\\', rest).ok_or(Malformed)?;
            self.at += found;
            if self.peek() == Some(b'"') {
                self.at += 1;
                return self.span(from);
            }
            self.at += 2;
        }
    }

    fn value(&mut self) -> Scan<&'a str> {
        self.blank();
        let from = self.at;
        match self.peek().ok_or(Malformed)? {
            b'"' => return self.string(),
            b'{' | b'[' => {
                let mut depth = 0_usize;
                loop {
                    match self.peek().ok_or(Malformed)? {
                        b'"' => {
                            self.string()?;
                            continue;
                        }
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth -= 1,
                        _ => {}
                    }
                    self.at += 1;
                    if depth == 0 {
                        return self.span(from);
                    }
                }
            }
            _ => {
                while !matches!(self.peek(), None | Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r')) {
                    self.at += 1;
                }
            }
        }
        if from == self.at { Err(Malformed) } else { self.span(from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_keep_their_spelling() {
        let text = r#" { "a" : 1e999 , "b":[ -0, "x\"]", {"c":{}} ],"\u0064": 18446744073709551616 } "#;
        let found = members(check(text).unwrap()).unwrap();
        assert_eq!(found[0], ("a".into(), "1e999"));
        assert_eq!(found[2], ("d".into(), "18446744073709551616"));
        assert_eq!(elements(found[1].1).unwrap(), ["-0", r#""x\"]""#, r#"{"c":{}}"#]);
        assert_eq!(member(text, "none").unwrap(), None);
    }

    #[test]
    fn a_lone_surrogate_becomes_one_replacement_character() {
        for (given, expected) in [
            (r#""a\ud83db""#, r#""a\ufffdb""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\uDC00é""#, r#""\\\ufffdé""#),
        ] {
            assert_eq!(scalar_text(given), expected, "{given}");
            assert_eq!(unquote(given), serde_json::from_str::<String>(expected).unwrap(), "{given}");
        }
    }

    #[test]
    fn blank_is_white_space_in_any_spelling() {
        for blank in [r#""""#, r#"" \n""#, r#""\u00a0\t""#] {
            assert!(is_blank(blank), "{blank}");
        }
        for full in [r#""a""#, r#""\u0061""#, r#""  .""#, r#""\ud83d""#] {
            assert!(!is_blank(full), "{full}");
        }
    }

    #[test]
    fn damaged_text_is_an_error() {
        for text in ["", "{", "{\"a\"", "{\"a\":", "[1,", "[}", "{\"a\\", "]"] {
            assert!(check(text).is_err() && members(text).is_err(), "{text}");
            assert!(elements(text).is_err(), "{text}");
        }
    }
}

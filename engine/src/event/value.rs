//! Equality of JSON by value, over verbatim text.
//!
//! Owns the canonical form: keys sorted by their bytes, no space, strings decoded, numbers as
//! exact decimals. Two texts have one canonical form exactly if they are equal by value: `1`,
//! `1.0` and `10e-1` are one number, and so are `0` and `-0`; `2^53` and `2^53 + 1` are two. No
//! number passes through a double. The form is for comparison alone; it is never written out.

use std::borrow::Cow;

use super::json::{Span, array_items, object_members, string_value};

/// A digest of a value that equal values share: BLAKE3 of the canonical form.
pub(crate) type ValueDigest = [u8; 16];

/// Whether the JSON values `a` and `b`, verbatim texts, are equal by value.
///
/// Key order, space and the spelling of numbers and strings do not count; the order of array items
/// does. Texts that are no JSON compare by their bytes.
pub fn equal_by_value(a: &str, b: &str) -> bool {
    a == b || canonical(a.as_bytes()) == canonical(b.as_bytes())
}

/// The canonical form of the value `raw`, which must be of checked grammar.
pub(crate) fn canonical(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    write(raw, &mut out);
    out
}

/// A verbatim value, and the paths of the members that are left out of it.
pub(crate) type Part<'a> = (&'a [u8], &'a [&'a [&'a str]]);

/// One digest over several values, each without the members that are left out of it.
pub(crate) fn digest_without(parts: &[Part<'_>]) -> ValueDigest {
    let mut out = Vec::with_capacity(256);
    for (raw, leave_out) in parts {
        if raw.first() == Some(&b'{') {
            write_object(raw, leave_out, &mut out);
        } else {
            write(raw, &mut out);
        }
        out.push(b';');
    }
    let mut digest = ValueDigest::default();
    digest.copy_from_slice(blake3::hash(&out).as_bytes().split_at(16).0);
    digest
}

fn write(raw: &[u8], out: &mut Vec<u8>) {
    match raw.first() {
        Some(b'{') => write_object(raw, &[], out),
        Some(b'[') => {
            out.push(b'[');
            for item in array_items(raw) {
                write(item, out);
                out.push(b',');
            }
            out.push(b']');
        }
        Some(b'"') => write_string(raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default(), out),
        Some(b'-' | b'0'..=b'9') => write_number(raw, out),
        _ => out.extend_from_slice(raw),
    }
}

fn write_object(raw: &[u8], leave_out: &[&[&str]], out: &mut Vec<u8>) {
    let mut members: Vec<(Cow<'_, [u8]>, Span)> =
        object_members(raw).into_iter().map(|(key, value)| (string_value(key.of(raw)), value)).collect();
    members.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    out.push(b'{');
    for (key, value) in members {
        // Most members are named by no path: no list is made for them.
        let below: Vec<&[&str]> = leave_out
            .iter()
            .filter_map(|path| path.split_first())
            .filter(|(first, _)| first.as_bytes() == &*key)
            .map(|(_, rest)| rest)
            .collect();
        if below.iter().any(|rest| rest.is_empty()) {
            continue;
        }
        write_length_prefixed(&key, out);
        if below.is_empty() || value.of(raw).first() != Some(&b'{') {
            write(value.of(raw), out);
        } else {
            write_object(value.of(raw), &below, out);
        }
        out.push(b',');
    }
    out.push(b'}');
}

fn write_string(raw: &[u8], out: &mut Vec<u8>) {
    write_length_prefixed(&string_value(raw), out);
}

/// Strings carry their length, so that no content can imitate structure.
fn write_length_prefixed(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text);
}

/// A number as sign, significant digits and decimal exponent, without leading or trailing zeroes.
fn write_number(raw: &[u8], out: &mut Vec<u8>) {
    let (negative, rest) = raw.strip_prefix(b"-").map_or((false, raw), |rest| (true, rest));
    let (mantissa, exponent) = match rest.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => {
            let (mantissa, exponent) = rest.split_at(at);
            (mantissa, exponent.get(1..).unwrap_or_default())
        }
        None => (rest, &[][..]),
    };
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let digits: Vec<u8> = mantissa.iter().copied().filter(u8::is_ascii_digit).collect();
    let leading = digits.iter().take_while(|digit| **digit == b'0').count();
    let trailing = digits.iter().rev().take_while(|digit| **digit == b'0').count();
    if leading == digits.len() {
        out.extend_from_slice(b"#0");
        return;
    }
    let significant = digits.get(leading..digits.len() - trailing).unwrap_or_default();
    // The value is 0.SIGNIFICANT times ten to the power of `shift` plus the written exponent.
    let shift = point as i128 - leading as i128;
    out.push(b'#');
    if negative {
        out.push(b'-');
    }
    out.extend_from_slice(significant);
    out.push(b'e');
    let written = std::str::from_utf8(exponent).ok().filter(|text| !text.is_empty()).unwrap_or("0");
    if let Ok(written) = written.parse::<i128>() {
        out.extend_from_slice(written.saturating_add(shift).to_string().as_bytes());
    } else {
        // An exponent of forty digits: compared as written.
        out.extend_from_slice(exponent);
        out.push(b'+');
        out.extend_from_slice(shift.to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_equal_whatever_their_spelling() {
        for (a, b) in [
            ("1", "1.0"),
            ("1", "10e-1"),
            ("0.5", "5E-1"),
            ("100", "1e2"),
            ("-0", "0"),
            (r#"{"a":1,"b":[2,3]}"#, r#"{ "b" : [2, 3.0], "\u0061":1 }"#),
            (r#""\u00e9""#, "\"é\""),
        ] {
            assert!(equal_by_value(a, b), "{a} and {b}");
        }
    }

    #[test]
    fn values_differ_where_they_differ() {
        for (a, b) in [
            ("9007199254740992", "9007199254740993"),
            ("1", "-1"),
            ("1e999", "1e998"),
            ("[1,2]", "[2,1]"),
            (r#"{"a":1}"#, r#"{"a":1,"b":null}"#),
            ("1", "\"1\""),
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#"["ab"]"#, r#"["a","b"]"#),
            ("10", "1"),
        ] {
            assert!(!equal_by_value(a, b), "{a} and {b}");
        }
    }

    #[test]
    fn what_is_left_out_does_not_count() {
        let a = br#"{"turn":1,"message":{"id":"x","content":[1]}}"#;
        let b = br#"{"message":{"content":[2,3],"id":"x"},"turn":1.0}"#;
        let c = br#"{"message":{"content":[1],"id":"y"},"turn":1}"#;
        let out: &[&[&str]] = &[&["message", "content"]];
        assert_eq!(digest_without(&[(a, out)]), digest_without(&[(b, out)]));
        assert_ne!(digest_without(&[(a, out)]), digest_without(&[(c, out)]));
    }
}

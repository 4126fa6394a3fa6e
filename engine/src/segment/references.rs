//! The objects that a text references, found by their digests' spelling.
//!
//! Finds more than image blocks, since any `blake3:` digest in a visible text counts: an object
//! too many is kept, none too few. Knows no JSON but the escapes that could hide a digest.

use std::borrow::Cow;

use memchr::memmem;

use crate::event::{Event, Kind, LogOnly};

const PREFIX: &[u8] = b"blake3:";

/// Calls `found` for each object that `event` may reference: in what reaches the model, and in
/// what waits for it in the inbox.
pub(crate) fn of_event(event: &Event, found: impl FnMut([u8; 32])) {
    match event.visible {
        Some(span) => for_each(span.of(&event.data), found),
        None if event.kind == Kind::LogOnly(LogOnly::InboxSpliced) => for_each(&event.data, found),
        None => {}
    }
}

/// Calls `found` for each digest in `text`, in order, repeated ones too.
pub(crate) fn for_each(text: &[u8], mut found: impl FnMut([u8; 32])) {
    let text = plain(text);
    for at in memmem::find_iter(&text, PREFIX) {
        let digits = text.get(at + PREFIX.len()..).and_then(|rest| rest.get(..64));
        if let Some(digest) = digits.and_then(digest) {
            found(digest);
        }
    }
}

/// `text` with escapes of ASCII characters undone: `\u0062lake3:` names an object as well.
fn plain(text: &[u8]) -> Cow<'_, [u8]> {
    const ESCAPE: &[u8] = b"\\u00";
    if memmem::find(text, ESCAPE).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut done = 0;
    for at in memmem::find_iter(text, ESCAPE) {
        let code = text.get(at + ESCAPE.len()..at + ESCAPE.len() + 2).and_then(|digits| {
            let [high, low] = digits.try_into().ok()?;
            Some(digit(high, true)? << 4 | digit(low, true)?)
        });
        let Some(code) = code.filter(u8::is_ascii) else { continue };
        out.extend_from_slice(text.get(done..at).unwrap_or_default());
        out.push(code);
        done = at + ESCAPE.len() + 2;
    }
    out.extend_from_slice(text.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

fn digest(digits: &[u8]) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    let (pairs, _) = digits.as_chunks::<2>();
    for (to, [high, low]) in out.iter_mut().zip(pairs) {
        *to = digit(*high, false)? << 4 | digit(*low, false)?;
    }
    Some(out)
}

fn digit(digit: u8, upper: bool) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' if upper => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    fn all(text: &str) -> Vec<[u8; 32]> {
        let mut found = Vec::new();
        super::for_each(text.as_bytes(), |digest| found.push(digest));
        found
    }

    #[test]
    fn digests_are_found_however_they_are_spelled() {
        let hex = "ab".repeat(32);
        let expected = vec![[0xab; 32]];
        assert_eq!(all(&format!(r#"{{"attachmentId":"blake3:{hex}"}}"#)), expected);
        assert_eq!(all(&format!(r#"{{"attachmentId":"\u0062lake3\u003A{hex}"}}"#)), expected);
        assert_eq!(all(&format!(r#"{{"a":"\u00e4 \u0062lake3:\u0061b{}"}}"#, "ab".repeat(31))), expected);
        assert!(all(&format!("blake3:{}", "ab".repeat(31))).is_empty());
        assert!(all(&format!("blake3:{}", "AB".repeat(32))).is_empty());
        assert!(all(&format!("sha256:{hex}")).is_empty());
    }
}

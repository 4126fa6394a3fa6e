//! JSON texts taken apart without being rewritten.
//!
//! Owns the way from a text to the texts of its fields and items, which keep their bytes and their
//! place. Tolerates what admission tolerates: lone surrogates and any number.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields of an object, in order, repeated ones too.
pub(crate) struct Fields<'a>(Vec<(Vec<u8>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// The fields of `text`; `None` where it is no object.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The text of the field `key`: of the last one where it is repeated, as readers have it.
    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().rev().find(|(name, _)| name == key.as_bytes()).map(|(_, value)| value.get())
    }

    /// The field `key` as a string.
    pub(crate) fn string(&self, key: &str) -> Option<Cow<'a, str>> {
        string(self.get(key)?)
    }

    /// Names and texts, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &'a str)> {
        self.0.iter().map(|(name, value)| (name.as_slice(), value.get()))
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    fields.push((key, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// A key as bytes: a lone surrogate is no fault of a key that nobody asks for.
struct Key(Vec<u8>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Key;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Key, E> {
                Ok(Key(bytes.to_vec()))
            }
            fn visit_str<E>(self, text: &str) -> Result<Key, E> {
                Ok(Key(text.as_bytes().to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// The texts of an array's items; `None` where `text` is no array.
pub(crate) fn items(text: &str) -> Option<Vec<&str>> {
    let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    Some(items.into_iter().map(RawValue::get).collect())
}

/// The string that `text` spells; `None` where it is no string, or holds a lone surrogate.
pub(crate) fn string(text: &str) -> Option<Cow<'_, str>> {
    #[derive(serde::Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(text).ok().map(|Text(text)| text)
}

/// Whether `text` is one JSON value.
pub(crate) fn is_value(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// `text` as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Where `part`, a piece of `whole`, stands in it.
pub(crate) fn place(whole: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    debug_assert!(start <= whole.len() && part.len() <= whole.len() - start, "a piece of the whole");
    start..start.wrapping_add(part.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_keep_their_bytes_and_their_place() {
        let text = r#" { "a" : -0 , "\ud83d" : 1 , "b":[ 1e999, "\ud83d" ],"a":"\u0041" } "#;
        let fields = Fields::of(text).unwrap();
        assert_eq!(fields.string("a").as_deref(), Some("A"));
        let list = fields.get("b").unwrap();
        assert_eq!(&text[place(text, list)], r#"[ 1e999, "\ud83d" ]"#);
        assert_eq!(items(list).unwrap(), ["1e999", r#""\ud83d""#]);
        assert!(Fields::of("[]").is_none() && items("{}").is_none());
        assert_eq!(string(r#""\ud83d""#), None);
    }
}

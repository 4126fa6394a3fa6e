//! JSON text as a tree that still knows its spelling.
//!
//! Owns the grammar of RFC 8259, the depth limit and the search for repeated keys. Strings are
//! UTF-16 units, so that lone surrogates are ordinary and `"a"` and `"\u0061"` are one key. Knows
//! no events. Slow on purpose: one pass, one tree, no tricks.

use std::fmt;

/// Deepest nesting that is read: the outermost object is level 1.
const DEPTH_MAX: usize = 128;

/// One JSON value and the text that it was read from.
#[derive(Clone, Debug)]
pub struct Json<'a> {
    /// The value's verbatim text, without the white space around it.
    pub raw: &'a str,
    /// What the text says.
    pub kind: Kind<'a>,
}

/// What a JSON value is.
#[derive(Clone, Debug)]
pub enum Kind<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number; its spelling is the value's raw text.
    Number,
    /// A string, unescaped, as UTF-16 units.
    String(Vec<u16>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object's members in their order; keys may repeat.
    Object(Vec<(Vec<u16>, Json<'a>)>),
}

/// Why text is not read. The caller names the rule; nothing can be repaired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The grammar is broken at this byte.
    #[error("no JSON at byte {0}")]
    Syntax(usize),
    /// The value opened at this byte is nested deeper than 128 levels.
    #[error("deeper than {DEPTH_MAX} levels at byte {0}")]
    Depth(usize),
}

impl<'a> Json<'a> {
    /// Reads `text`, which must be one value with nothing but white space around it.
    ///
    /// # Errors
    ///
    /// - [`JsonError::Syntax`]: the text is no JSON.
    /// - [`JsonError::Depth`]: it nests too deep.
    pub fn read(text: &'a str) -> Result<Self, JsonError> {
        let mut reader = Reader { text, at: 0 };
        reader.white();
        let value = reader.value(1)?;
        reader.white();
        if reader.at < text.len() {
            return Err(JsonError::Syntax(reader.at));
        }
        Ok(value)
    }

    /// The member called `key` of an object.
    pub fn get(&self, key: &str) -> Option<&Json<'a>> {
        let Kind::Object(members) = &self.kind else { return None };
        members.iter().find(|(name, _)| is_text(name, key)).map(|(_, value)| value)
    }

    /// The members of an object.
    pub fn members(&self) -> Option<&[(Vec<u16>, Json<'a>)]> {
        if let Kind::Object(members) = &self.kind { Some(members) } else { None }
    }

    /// The items of an array.
    pub fn items(&self) -> Option<&[Json<'a>]> {
        if let Kind::Array(items) = &self.kind { Some(items) } else { None }
    }

    /// Whether the value is the string `text`.
    pub fn is_str(&self, text: &str) -> bool {
        if let Kind::String(units) = &self.kind { is_text(units, text) } else { false }
    }

    /// Whether the value is any string.
    pub fn is_string(&self) -> bool {
        matches!(self.kind, Kind::String(_))
    }

    /// Whether the value is `true`.
    pub fn is_true(&self) -> bool {
        matches!(self.kind, Kind::Bool(true))
    }

    /// The value as an integer that a double holds exactly, spelled in plain digits.
    pub fn safe_integer(&self) -> Option<u64> {
        if !matches!(self.kind, Kind::Number) {
            return None;
        }
        self.raw.parse().ok().filter(|number| *number < 1 << 53)
    }

    /// A key that stands twice in one object, at any depth.
    pub fn repeated_key(&self) -> Option<String> {
        match &self.kind {
            Kind::Object(members) => {
                for (place, (key, value)) in members.iter().enumerate() {
                    if members.iter().take(place).any(|(earlier, _)| earlier == key) {
                        return Some(String::from_utf16_lossy(key));
                    }
                    if let Some(found) = value.repeated_key() {
                        return Some(found);
                    }
                }
                None
            }
            Kind::Array(items) => items.iter().find_map(Json::repeated_key),
            _ => None,
        }
    }

    /// Whether both say the same: key order, escapes and the spelling of numbers aside.
    pub fn same_value(&self, other: &Json<'_>) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Null, Kind::Null) => true,
            (Kind::Bool(one), Kind::Bool(two)) => one == two,
            (Kind::Number, Kind::Number) => decimal(self.raw) == decimal(other.raw),
            (Kind::String(one), Kind::String(two)) => one == two,
            (Kind::Array(one), Kind::Array(two)) => {
                one.len() == two.len() && one.iter().zip(two).all(|(left, right)| left.same_value(right))
            }
            (Kind::Object(one), Kind::Object(two)) => same_members(one, two, &[]),
            _ => false,
        }
    }

    /// Whether both are objects that say the same outside the members called `except`.
    pub fn same_but(&self, other: &Json<'_>, except: &str) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Object(one), Kind::Object(two)) => same_members(one, two, &[except]),
            _ => false,
        }
    }
}

fn same_members(one: &[(Vec<u16>, Json<'_>)], two: &[(Vec<u16>, Json<'_>)], except: &[&str]) -> bool {
    let kept = |key: &Vec<u16>| !except.iter().any(|name| is_text(key, name));
    let count = |members: &[(Vec<u16>, Json<'_>)]| members.iter().filter(|(key, _)| kept(key)).count();
    count(one) == count(two)
        && one.iter().filter(|(key, _)| kept(key)).all(|(key, value)| {
            two.iter().any(|(other_key, other)| key == other_key && value.same_value(other))
        })
}

fn is_text(units: &[u16], text: &str) -> bool {
    units.iter().copied().eq(text.encode_utf16())
}

/// A number's sign, significant digits and power of ten: equal for equal values, exact.
fn decimal(raw: &str) -> (bool, String, i128) {
    let (negative, rest) = raw.strip_prefix('-').map_or((false, raw), |rest| (true, rest));
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let trimmed = digits.trim_end_matches('0');
    // A power beyond i128 is spelled by more digits than any line that tests hold.
    let power = exponent.trim_start_matches('+').parse::<i128>().unwrap_or(i128::MAX / 2);
    let power = power - fraction.len() as i128 + (digits.len() - trimmed.len()) as i128;
    let significant = trimmed.trim_start_matches('0').to_owned();
    if significant.is_empty() { (false, significant, 0) } else { (negative, significant, power) }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong<T>(&self) -> Result<T, JsonError> {
        Err(JsonError::Syntax(self.at))
    }

    fn white(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.eat(byte) { Ok(()) } else { self.wrong() }
    }

    fn value(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{' | b'[') if DEPTH_MAX < depth => return Err(JsonError::Depth(self.at)),
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => Kind::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Kind::Bool(true))?,
            Some(b'f') => self.word("false", Kind::Bool(false))?,
            Some(b'n') => self.word("null", Kind::Null)?,
            _ => return self.wrong(),
        };
        let raw = self.text.get(start..self.at).ok_or(JsonError::Syntax(start))?;
        Ok(Json { raw, kind })
    }

    fn word(&mut self, word: &str, kind: Kind<'a>) -> Result<Kind<'a>, JsonError> {
        for byte in word.bytes() {
            self.expect(byte)?;
        }
        Ok(kind)
    }

    fn object(&mut self, depth: usize) -> Result<Kind<'a>, JsonError> {
        let mut members = Vec::new();
        self.expect(b'{')?;
        self.white();
        if self.eat(b'}') {
            return Ok(Kind::Object(members));
        }
        loop {
            self.white();
            let key = self.string()?;
            self.white();
            self.expect(b':')?;
            self.white();
            members.push((key, self.value(depth + 1)?));
            self.white();
            if self.eat(b'}') {
                return Ok(Kind::Object(members));
            }
            self.expect(b',')?;
        }
    }

    fn array(&mut self, depth: usize) -> Result<Kind<'a>, JsonError> {
        let mut items = Vec::new();
        self.expect(b'[')?;
        self.white();
        if self.eat(b']') {
            return Ok(Kind::Array(items));
        }
        loop {
            self.white();
            items.push(self.value(depth + 1)?);
            self.white();
            if self.eat(b']') {
                return Ok(Kind::Array(items));
            }
            self.expect(b',')?;
        }
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return self.wrong();
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Kind<'a>, JsonError> {
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _signed = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        Ok(Kind::Number)
    }

    fn string(&mut self) -> Result<Vec<u16>, JsonError> {
        self.expect(b'"')?;
        let mut units = Vec::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(next) = rest.chars().next() else { return self.wrong() };
            match next {
                '"' => {
                    self.at += 1;
                    return Ok(units);
                }
                '\\' => {
                    self.at += 1;
                    units.push(self.escape()?);
                }
                '\0'..='\u{1f}' => return self.wrong(),
                other => {
                    self.at += other.len_utf8();
                    units.extend_from_slice(other.encode_utf16(&mut [0; 2]));
                }
            }
        }
    }

    fn escape(&mut self) -> Result<u16, JsonError> {
        let unit = match self.peek() {
            Some(b'"') => 0x22,
            Some(b'\\') => 0x5c,
            Some(b'/') => 0x2f,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => 0x0a,
            Some(b'r') => 0x0d,
            Some(b't') => 0x09,
            Some(b'u') => {
                let hex = self.text.get(self.at + 1..self.at + 5).unwrap_or_default();
                if hex.len() != 4 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return self.wrong();
                }
                self.at += 4;
                u16::from_str_radix(hex, 16).map_err(|_| JsonError::Syntax(self.at))?
            }
            _ => return self.wrong(),
        };
        self.at += 1;
        Ok(unit)
    }
}

impl fmt::Display for Json<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.raw)
    }
}

#[cfg(test)]
mod tests {
    use super::{Json, JsonError};

    #[test]
    fn what_is_json_agrees_with_serde_json() {
        let texts = [
            "{}",
            " [1, 2.50e+7 ,-0]\r",
            "[01]",
            "[1.]",
            "[.5]",
            "[-]",
            "[1e]",
            "[NaN]",
            "{\"a\":1,}",
            "[,]",
            "{a:1}",
            "\"\\ud83d\"",
            "\"\\u12g4\"",
            "\"\\x\"",
            "\"tab\there\"",
            "{} {}",
            "",
            "nul",
            "truex",
            "\"open",
            "[1 2]",
            "\"\u{7f}\u{2028}\"",
            "{\"a\" : null}",
            "[1e999,18446744073709551616]",
            "[\u{a0}1]",
            "+1",
        ];
        for text in texts {
            let theirs = serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok();
            assert_eq!(Json::read(text).is_ok(), theirs, "{text}");
        }
    }

    #[test]
    fn a_hundred_and_twenty_eight_levels_are_the_most() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Json::read(&nested(128)).is_ok());
        assert_eq!(Json::read(&nested(129)).err(), Some(JsonError::Depth(128)));
    }

    #[test]
    fn an_escaped_key_is_the_same_key() {
        let repeated = |text: &str| Json::read(text).ok().and_then(|value| value.repeated_key());
        assert_eq!(repeated(r#"{"x":[{"a":1,"\u0061":2}]}"#), Some("a".to_owned()));
        assert_eq!(repeated(r#"{"\ud83d":1,"\ud83e":2,"\uD83D\uDE00":3}"#), None);
        assert_eq!(repeated(r#"{"\ud83d":1,"\uD83D":2}"#).map(|key| key.len()), Some(3));
        assert_eq!(repeated(r#"{"😀":1,"\uD83D\uDE00":3}"#), Some("😀".to_owned()));
    }

    #[test]
    fn numbers_are_equal_by_their_exact_value() {
        let same = |one: &str, two: &str| Json::read(one).unwrap().same_value(&Json::read(two).unwrap());
        for (one, two) in [("1", "1.0"), ("-0", "0"), ("100", "1E+2"), ("0.1", "1e-1"), ("[10]", "[1.0e1]")] {
            assert!(same(one, two), "{one} {two}");
        }
        for (one, two) in [("9007199254740993", "9007199254740992"), ("1", "-1"), ("1", "10"), ("1", "\"1\"")]
        {
            assert!(!same(one, two), "{one} {two}");
        }
        assert!(same(r#"{"a":1,"b":[2]}"#, r#"{"b":[2],"\u0061":1}"#));
    }
}

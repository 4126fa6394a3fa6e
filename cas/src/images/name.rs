//! The name under which an image is shown.
//!
//! A name is for people: no path, no control character, no direction mark that turns an ending
//! around, and short.

/// Longest display name, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 128;

/// What is shown of `name`: its last path component, for either kind of slash, without control and
/// direction characters, cut to [`NAME_BYTES_MAX`] bytes; `None` where nothing is left.
///
/// What this returns, it returns unchanged.
pub fn display_name(name: &str) -> Option<String> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut shown = String::with_capacity(last.len().min(NAME_BYTES_MAX));
    for character in last.chars().filter(|character| !is_hidden(*character)) {
        if NAME_BYTES_MAX < shown.len() + character.len_utf8() {
            break;
        }
        shown.push(character);
    }
    let trimmed = shown.trim();
    (!matches!(trimmed, "" | "." | "..")).then(|| trimmed.to_owned())
}

/// Control characters, line and paragraph separators, marks of direction and joining.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_shows_no_path_and_nothing_hidden() {
        for (name, shown) in [
            ("/home/someone/secret project/shot.png", Some("shot.png")),
            (r"C:\Users\someone\shot.png", Some("shot.png")),
            ("a\u{0}b\nc\u{202e}gnp.exe", Some("abcgnp.exe")),
            ("  shot.png ", Some("shot.png")),
            ("..", None),
            ("folder/", None),
            ("", None),
        ] {
            assert_eq!(display_name(name).as_deref(), shown, "{name:?}");
        }
        let long = display_name(&"ä".repeat(100)).unwrap();
        assert_eq!(long.len(), NAME_BYTES_MAX);
        assert_eq!(display_name(&long), Some(long.clone()));
    }
}

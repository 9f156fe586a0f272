//! Texts for terminals and logs, in which no letter acts on the reader: names of columns and files, and texts of clients, may
//! have any.

use std::borrow::Cow;

/// Whether a letter acts on a terminal or on the text around it: control characters of both sets, marks of direction, and
/// separators of lines; and those that show nothing.
#[must_use]
pub fn is_active(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Replaces active letters by their escapes in JSON, such as `\u001b`, except those that are kept: the text may be JSON,
/// where they are in strings only.
#[must_use]
pub fn plain_text<'a>(text: &'a str, keeps: &[char]) -> Cow<'a, str> {
    let is_replaced = |letter: char| is_active(letter) && !keeps.contains(&letter);
    if !text.contains(is_replaced) {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_replaced(letter) {
            plain.extend(letter.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            plain.push(letter);
        }
    }
    plain.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_letters_are_escaped_and_others_kept() {
        let words = "naïve \u{4e2d}\u{6587} \u{5e9} \u{1f469}\u{200d}\u{1f680} a\u{301}";
        assert!(matches!(plain_text(words, &[]), Cow::Borrowed(text) if text == words));
        assert_eq!(
            plain_text("a\u{1b}[2J\u{9b}\u{85}\u{7f}\r\n", &['\n']),
            "a\\u001b[2J\\u009b\\u0085\\u007f\\u000d\n"
        );
        assert_eq!(plain_text("\u{202e}\u{2066}\u{2028}\u{200f}", &[]), "\\u202e\\u2066\\u2028\\u200f");
        let text = "tag\u{e0041}, quote\", bell\u{7}\u{9b}";
        let json = serde_json::Value::from(text).to_string();
        let parsed: serde_json::Value = serde_json::from_str(&plain_text(&json, &[])).unwrap();
        assert_eq!(parsed, text);
    }
}

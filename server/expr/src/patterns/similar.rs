//! Patterns of SIMILAR TO as regular expressions.
//!
//! A pattern matches the whole text. `%` is any text and `_` one character, as in LIKE; `|`, `*`, `+`, `?`, `{m,n}`,
//! `(…)` and `[…]` are those of regular expressions. An escape makes the character after it plain, and every other
//! character is plain, `.`, `^` and `$` among them.

use std::{iter::Peekable, str::Chars};

/// The regular expression of a pattern, or why there is none.
pub(super) fn regex(pattern: &str, escape: char) -> Result<String, &'static str> {
    let mut regex = String::from("^(?s:");
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            letter if letter == escape => plain(escaped(&mut letters)?, &mut regex),
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '(' => regex.push_str("(?:"),
            ')' | '|' | '*' | '+' | '?' | '{' | '}' => regex.push(letter),
            '[' => set(&mut letters, escape, &mut regex)?,
            letter => plain(letter, &mut regex),
        }
    }
    regex.push_str(")$");
    Ok(regex)
}

fn escaped(letters: &mut Peekable<Chars>) -> Result<char, &'static str> {
    letters.next().ok_or("it ends with an escape")
}

fn plain(letter: char, regex: &mut String) {
    regex.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4])));
}

/// A set of characters: `[a-z]`, `[^a-z]` or `[[:alpha:]]`.
fn set(letters: &mut Peekable<Chars>, escape: char, regex: &mut String) -> Result<(), &'static str> {
    const UNCLOSED: &str = "a [ has no ]";
    regex.push('[');
    if letters.next_if_eq(&'^').is_some() {
        regex.push('^');
    }
    loop {
        match letters.next().ok_or(UNCLOSED)? {
            ']' => break,
            '[' if letters.next_if_eq(&':').is_some() => {
                regex.push_str("[:");
                loop {
                    let letter = letters.next().ok_or(UNCLOSED)?;
                    regex.push(letter);
                    if letter == ']' {
                        break;
                    }
                }
            }
            '-' => regex.push('-'),
            letter if letter == escape => plain(escaped(letters)?, regex),
            letter => plain(letter, regex),
        }
    }
    regex.push(']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, matching, others) in [
            ("b", &["b"][..], &["abc", "bb", ""][..]),
            ("a%", &["a", "abc", "a\nb"], &["ba", ""]),
            ("_", &["a", "é", "\n"], &["", "ab"]),
            ("a|bc", &["a", "bc"], &["ac", "abc", "b"]),
            ("(a|b)c", &["ac", "bc"], &["a", "c"]),
            ("a.c", &["a.c"], &["abc"]),
            ("^a$", &["^a$"], &["a"]),
            ("[0-9]{2,3}", &["12", "123"], &["1", "1234", "ab"]),
            ("[^a-c]+", &["xyz"], &["xa", ""]),
            ("[[:digit:].]*", &["1.5", ""], &["1,5"]),
            ("10\\%", &["10%"], &["100"]),
            ("a\\\\b", &["a\\b"], &["ab"]),
            ("[\\]&[]", &["]", "&", "["], &["\\", "&&"]),
            ("", &[""], &["a"]),
            ("%", &["", "a\n"], &[]),
        ] {
            let compiled = Regex::new(&regex(pattern, '\\').unwrap()).unwrap();
            for text in matching {
                assert!(compiled.is_match(text), "{text:?} SIMILAR TO {pattern:?}");
            }
            for text in others {
                assert!(!compiled.is_match(text), "{text:?} NOT SIMILAR TO {pattern:?}");
            }
        }
        assert_eq!(regex("a!%\\", '!').unwrap(), r"^(?s:a%\\)$");
        assert!(regex("a\\", '\\').is_err() && regex("[a", '\\').is_err() && regex("[[:a", '\\').is_err());
    }
}

//! Parser of Prometheus text, as strict as Prometheus: names, labels with escapes, numbers.
//!
//! The small crates for this format skip malformed lines and keep escapes in labels. `top` must distinguish an empty
//! page from a page in another format.

use std::{borrow::Cow, str::FromStr};

/// Characters quoted from a malformed line.
const QUOTED_CHARS: usize = 60;

/// Series with its value.
#[derive(Debug, PartialEq)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    labels: Vec<(&'a str, Cow<'a, str>)>,
    pub(super) value: f64,
}

/// Malformed line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not Prometheus text: {found:?}")]
pub(crate) struct LineError {
    /// Counted from 1.
    line: usize,
    /// Start of the line.
    found: String,
}

/// Returns the samples of a page, in order.
pub(super) fn samples(page: &str) -> impl Iterator<Item = Result<Sample<'_>, LineError>> {
    let lines = page.split('\n').enumerate();
    lines.filter_map(|(index, line)| {
        let line_text = blank_stripped(line);
        if line_text.is_empty() || line_text.starts_with('#') {
            return None;
        }
        let found = || LineError { line: index + 1, found: line_text.chars().take(QUOTED_CHARS).collect() };
        Some(sample(line_text).ok_or_else(found))
    })
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let (name, rest) = name(line, true)?;
    let (labels, rest) = match blank_stripped(rest).strip_prefix('{') {
        Some(inner) => labels(inner)?,
        // A blank ends a name without labels.
        None => (Vec::new(), rest.strip_prefix([' ', '\t'])?),
    };
    let mut words = rest.split([' ', '\t']).filter(|word| !word.is_empty());
    let value = number(words.next()?)?;
    let has_good_time = words.next().is_none_or(|time| i64::from_str(time).is_ok());
    (has_good_time && words.next().is_none()).then_some(Sample { name, labels, value })
}

/// Splits off a leading name. Only metric names may have colons.
fn name(text: &str, is_metric: bool) -> Option<(&str, &str)> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || is_metric && letter == ':';
    let end = text.find(|letter| !is_part(letter)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (!name.is_empty() && !name.starts_with(|letter: char| letter.is_ascii_digit())).then_some((name, rest))
}

type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// Splits off labels up to the closing brace.
fn labels(mut text: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = blank_stripped(text);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = name(text, false)?;
        let rest = blank_stripped(blank_stripped(rest).strip_prefix('=')?);
        let (value, rest) = quoted(rest.strip_prefix('"')?)?;
        labels.push((name, value));
        let rest = blank_stripped(rest);
        text = match rest.strip_prefix(',') {
            Some(next) => next,
            None if rest.starts_with('}') => rest,
            None => return None,
        };
    }
}

/// Splits off a label's value up to its closing quote, and resolves its escapes.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut value = Cow::Borrowed("");
    let mut rest = text;
    loop {
        let end = rest.find(['"', '\\'])?;
        value += &rest[..end];
        let after = &rest[end + 1..];
        if rest[end..].starts_with('"') {
            return Some((value, after));
        }
        let escaped = after.chars().next()?;
        value += match escaped {
            '\\' => "\\",
            '"' => "\"",
            'n' => "\n",
            _ => return None,
        };
        rest = &after[1..];
    }
}

/// Parses a number as written by Go; Rust accepts `+Inf` and `NaN` too.
fn number(word: &str) -> Option<f64> {
    word.parse().ok()
}

/// Strips blanks; this format has no other white space.
fn blank_stripped(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

// === impl Sample ===

impl Sample<'_> {
    /// Returns a label's value; empty if absent, as in Prometheus.
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(other, _)| *other == name).map_or("", |(_, value)| value)
    }

    pub(super) fn has_label(&self, name: &str) -> bool {
        self.labels.iter().any(|(other, _)| *other == name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(line: &str) -> Sample<'_> {
        samples(line).next().unwrap_or_else(|| panic!("{line:?} is nothing")).unwrap()
    }

    #[test]
    fn parses_series_with_labels_and_numbers() {
        let page = "# HELP a What it is\n# TYPE a counter\n\na 1\na{b=\"c\"} 2.5\n  x:y { b = \"c\" , d=\"\", } 1e3 1700000000000\n";
        let found: Vec<_> = samples(page).map(Result::unwrap).collect();
        assert_eq!(
            found.iter().map(|sample| (sample.name, sample.value)).collect::<Vec<_>>(),
            [("a", 1.0), ("a", 2.5), ("x:y", 1000.0)]
        );
        assert_eq!((found[1].label("b"), found[2].label("b"), found[2].label("none")), ("c", "c", ""));
        for (text, expected) in [("+Inf", f64::INFINITY), ("-Inf", f64::NEG_INFINITY), ("-0.5", -0.5_f64)] {
            assert_eq!(one(&format!("a {text}")).value.to_bits(), expected.to_bits(), "{text}");
        }
        assert!(one("a NaN").value.is_nan());
        assert_eq!(samples("").count() + samples("\n\n#\n").count(), 0);
    }

    #[test]
    fn resolves_escapes_once() {
        let cases = [
            (r#"a{b="\\n"} 1"#, r"\n"),
            (r#"a{b="x\ny"} 1"#, "x\ny"),
            (r#"a{b="\"} 1 {\""} 1"#, "\"} 1 {\""),
            (r#"a{b="é\\"} 1"#, r"é\"),
            ("a{b=\"\u{1b}[31m\"} 1", "\u{1b}[31m"),
            ("a{b=\"{}, =#\"} 1", "{}, =#"),
        ];
        for (line, expected) in cases {
            assert_eq!(one(line).label("b"), expected, "{line}");
        }
    }

    #[test]
    fn reports_the_number_of_a_malformed_line() {
        let lines = [
            "<!DOCTYPE html>",
            "a",
            "a ",
            "a b",
            "a 1 2 3",
            "a 1 soon",
            "a1} 2",
            "1a 2",
            "a{b} 1",
            "a{b=c} 1",
            "a{b=\"c} 1",
            "a{b=\"c\" d=\"e\"} 1",
            "a{b=\"c\"",
            "a{b=\"\\t\"} 1",
            "a{b=\"\\é\"} 1",
            "a{b=\"\\",
            "a{1=\"c\"} 1",
            "a{b:c=\"d\"} 1",
            "a{,} 1",
            "{} 1",
            "a 1\r",
            "\u{1b}[2J",
        ];
        for line in lines {
            let found = samples(&format!("ok 1\n{line}\n")).nth(1).map(Result::unwrap_err);
            assert!(found.is_some_and(|error| error.line == 2), "{line:?}");
        }
        let error = samples("\u{1b}[2J\u{9b}").next().unwrap().unwrap_err().to_string();
        assert!(!error.contains(char::is_control), "{error:?}");
        let error = samples(&"x".repeat(1 << 20)).next().unwrap().unwrap_err().to_string();
        assert!(error.len() < 200);
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in ".*", lines in proptest::collection::vec("[a-c{}\"\\\\=, \n#é1]{0,40}", 0..8)) {
            for page in [text, lines.join("\n")] {
                let read = samples(&page).count();
                prop_assert!(read <= page.split('\n').count());
            }
        }

        #[test]
        fn escaped_values_round_trip(value in "\\PC*|[\"\\\\\n a]*") {
            let escaped = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let line = format!("a{{b=\"{escaped}\"}} 1");
            let sample = one(&line);
            prop_assert_eq!(sample.label("b"), value);
        }
    }
}

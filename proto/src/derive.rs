//! `"derive": {"name": "expr", …}` in JSON, as Python writes it, becomes the list of messages that a plan has.
//!
//! Works on the text, so that the order of the names is kept, and so is the line of every later mistake.

use std::borrow::Cow;

/// The key, which no string value contains: quotes inside strings are escaped.
const KEY: &str = "\"derive\"";

/// Writes mappings of derived columns as lists. Text that is not such a mapping is returned as it is, for the reader's
/// own error.
pub(crate) fn with_lists(bytes: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Cow::Borrowed(bytes) };
    let mut written = String::new();
    let mut copied = 0;
    for (at, _) in text.match_indices(KEY) {
        let list = (at >= copied && !text[..at].ends_with('\\')).then(|| list(text, at + KEY.len())).flatten();
        let Some((start, end, list)) = list else { continue };
        written.push_str(&text[copied..start]);
        written.push_str(&list);
        copied = end;
    }
    if copied == 0 {
        return Cow::Borrowed(bytes);
    }
    written.push_str(&text[copied..]);
    Cow::Owned(written.into_bytes())
}

/// The mapping after a key, as a list, with its start and end in the text.
fn list(text: &str, after_key: usize) -> Option<(usize, usize, String)> {
    let start = symbol(text, after_key, ':')?;
    let start = space(text, start);
    let mut at = symbol(text, start, '{')?;
    let mut list = String::from("[");
    if let Some(end) = symbol(text, at, '}') {
        return Some((start, end, "[]".to_owned()));
    }
    loop {
        let name = string(text, space(text, at))?;
        let value = symbol(text, name.1, ':')?;
        let expr = string(text, space(text, value))?;
        list.push_str(&text[at..name.0]);
        for piece in ["{\"name\":", &text[name.0..name.1], ",\"expr\":", &text[value..expr.1], "}"] {
            list.push_str(piece);
        }
        let end = space(text, expr.1);
        list.push_str(&text[expr.1..end]);
        at = end + 1;
        match text.as_bytes().get(end)? {
            b',' => list.push(','),
            b'}' => return Some((start, at, list + "]")),
            _ => return None,
        }
    }
}

/// The place after a symbol that is next in the text.
fn symbol(text: &str, at: usize, symbol: char) -> Option<usize> {
    let at = space(text, at);
    text[at..].starts_with(symbol).then(|| at + symbol.len_utf8())
}

fn space(text: &str, at: usize) -> usize {
    at + text[at..].bytes().take_while(u8::is_ascii_whitespace).count()
}

/// The start and the end of the string that starts here, with its quotes.
fn string(text: &str, start: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    if bytes.get(start) != Some(&b'"') {
        return None;
    }
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some((start, at + 1)),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        decode,
        v1::{Derive, Plan, StreamRequest},
    };

    fn derived(text: &str) -> Vec<(String, String)> {
        let plan = decode::<Plan>(text.as_bytes()).unwrap().0;
        plan.derive.into_iter().map(|Derive { name, expr }| (name, expr)).collect()
    }

    #[test]
    fn a_mapping_is_a_list_in_its_order() {
        let pair = |name: &str, expr: &str| (name.to_owned(), expr.to_owned());
        let cases = [
            (r#"{"derive": {}}"#, vec![]),
            (r#"{"derive":{"late":"a > 1"}}"#, vec![pair("late", "a > 1")]),
            (
                "{\"derive\" : {\n \"z\\\"\" : \"'}' = \\\"x\\\"\" ,\n \"é\": \"b\"}, \"filter\": \"a\"}",
                vec![pair("z\"", "'}' = \"x\""), pair("é", "b")],
            ),
            (r#"{"filter": "\"derive\": {", "derive": [{"name": "x", "expr": "y"}]}"#, vec![pair("x", "y")]),
        ];
        for (text, expected) in cases {
            assert_eq!(derived(text), expected, "{text}");
        }
        let text =
            br#"{"dataset": "a", "plan": {"derive": {"x": "y"}}, "sources": [{"plan": {"derive": {"v": "w"}}}]}"#;
        let request = decode::<StreamRequest>(text).unwrap().0;
        assert_eq!(request.plan.unwrap().derive[0].name, "x");
        assert_eq!(request.sources[0].plan.as_ref().unwrap().derive[0].expr, "w");
    }

    #[test]
    fn lines_of_later_mistakes_are_kept() {
        let text = "{\"derive\": {\n\"a\": \"b\",\n\n\"c\": \"d\"\n},\n\"fliter\": 1}";
        let error = decode::<Plan>(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("line 6") && error.contains("\"filter\""), "{error}");
    }

    #[test]
    fn other_values_are_errors() {
        for value in
            ["{\"a\": 3}", "{\"a\"}", "{\"a\": \"b\",}", "{\"a\": \"b\"", "{\"a\": [\"b\"]}", "{a: \"b\"}", "3"]
        {
            assert!(decode::<Plan>(format!("{{\"derive\": {value}}}").as_bytes()).is_err(), "{value}");
        }
    }
}

//! YAML 1.2 and JSON to values with their positions. Scalars have JSON's types: `yes` is text, and `0x10` is too.

use std::borrow::Cow;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

use super::tree::{Entry, Mistake, Node, Position, Value};

/// Limit of nested values, as in JSON of the protocol.
const DEPTH_MAX: usize = 64;

/// A list or mapping whose end has not come.
struct Open {
    position: Position,
    items: Items,
}

enum Items {
    List(Vec<Node>),
    /// With the name of the next value.
    Map(Vec<Entry>, Option<(String, Position)>),
}

/// Reads the only document of a text.
pub(crate) fn read(text: &str) -> Result<Node, Mistake> {
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| mistake(*error.marker(), error.info()))?;
        let Some(node) = step(event, span, &mut open)? else { continue };
        let complete = match open.last_mut() {
            Some(parent) => parent.push(node)?,
            None if root.is_some() => {
                let reason = "a plan file is a single document".to_owned();
                return Err(Mistake { position: node.position, reason });
            }
            None => Some(node),
        };
        root = complete.or(root);
    }
    root.ok_or_else(|| Mistake { position: Position { line: 1, column: 1 }, reason: "the file is empty".to_owned() })
}

/// Opens a list or mapping, or returns the value that ends here.
fn step(event: Event<'_>, span: Span, open: &mut Vec<Open>) -> Result<Option<Node>, Mistake> {
    let items = match event {
        Event::Scalar(_, _, anchor, _) | Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _)
            if anchor > 0 =>
        {
            return Err(mistake(span.start, "anchors and aliases are not supported"));
        }
        Event::Alias(_) => return Err(mistake(span.start, "anchors and aliases are not supported")),
        Event::Scalar(_, _, _, Some(_)) | Event::SequenceStart(_, Some(_)) | Event::MappingStart(_, Some(_)) => {
            return Err(mistake(span.start, "tags are not supported"));
        }
        Event::Scalar(text, style, ..) => {
            return Ok(Some(Node { position: position(span.start), value: scalar(text, style) }));
        }
        Event::SequenceStart(..) => Items::List(Vec::new()),
        Event::MappingStart(..) => Items::Map(Vec::new(), None),
        Event::SequenceEnd | Event::MappingEnd => return Ok(open.pop().map(Open::into_node)),
        _ => return Ok(None),
    };
    if open.len() == DEPTH_MAX {
        return Err(mistake(span.start, &format!("nested more than {DEPTH_MAX} deep")));
    }
    open.push(Open { position: position(span.start), items });
    Ok(None)
}

fn scalar(text: Cow<'_, str>, style: ScalarStyle) -> Value {
    match &*text {
        _ if style != ScalarStyle::Plain => Value::Text(text.into_owned()),
        "" | "~" | "null" => Value::Plain("null".to_owned()),
        "true" | "false" => Value::Plain(text.into_owned()),
        // As written, so that no digit is lost.
        number if serde_json::from_str::<serde_json::Number>(number).is_ok() => Value::Plain(text.into_owned()),
        _ => Value::Text(text.into_owned()),
    }
}

fn position(marker: Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}

fn mistake(marker: Marker, reason: &str) -> Mistake {
    Mistake { position: position(marker), reason: reason.to_owned() }
}

// === impl Open ===

impl Open {
    /// Adds a value, or the name of the next one.
    fn push(&mut self, node: Node) -> Result<Option<Node>, Mistake> {
        match &mut self.items {
            Items::List(items) => items.push(node),
            Items::Map(entries, name) => match (name.take(), node.value) {
                (Some((name, position)), value) => {
                    entries.push(Entry { name, position, value: Node { position: node.position, value } });
                }
                (None, Value::Text(text) | Value::Plain(text)) => {
                    if entries.iter().any(|entry| entry.name == text) {
                        let reason = format!("\"{text}\" is set twice");
                        return Err(Mistake { position: node.position, reason });
                    }
                    *name = Some((text, node.position));
                }
                (None, _) => {
                    let reason = "names are texts, not lists or mappings".to_owned();
                    return Err(Mistake { position: node.position, reason });
                }
            },
        }
        Ok(None)
    }

    fn into_node(self) -> Node {
        let value = match self.items {
            Items::List(items) => Value::List(items),
            Items::Map(entries, _) => Value::Map(entries),
        };
        Node { position: self.position, value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_becomes_json() {
        let cases = [
            ("{}", "{}"),
            ("a: 1\nb: [x, 'y', \"2\", 3.50, -1e-7]", r#"{"a":1,"b":["x","y","2",3.50,-1e-7]}"#),
            ("a: 18446744073709551615\nb: 0x10\nc: 007", r#"{"a":18446744073709551615,"b":"0x10","c":"007"}"#),
            ("a: yes\nb: null\nc:\nd: ~\ne: true", r#"{"a":"yes","b":null,"c":null,"d":null,"e":true}"#),
            ("a: |\n  x\n  y\nb: >-\n  x\n  y", r#"{"a":"x\ny\n","b":"x y"}"#),
            ("# comment\na:\n  - b: c # comment\n    d: e\n", r#"{"a":[{"b":"c","d":"e"}]}"#),
            ("{\"a\": [\"\\u00e9\", {\"b\": null}]}", "{\"a\":[\"é\",{\"b\":null}]}"),
        ];
        for (yaml, json) in cases {
            assert_eq!(read(yaml).unwrap().json(), json, "{yaml}");
        }
        assert_eq!(read("a:\n  - b: c\n    d: e").unwrap().position_of("a[0].d"), Position { line: 3, column: 5 });
    }

    #[test]
    fn mistakes_have_their_place() {
        let deep = "[".repeat(1000);
        let cases = [
            ("", 1, "is empty"),
            ("a: 1\nb: [1, 2\nc: 3", 3, ""),
            ("a: 1\n\na: 2", 3, "\"a\" is set twice"),
            ("a: &x 1\nb: *x", 1, "anchors"),
            ("b: *x", 1, ""),
            ("a: !!int 1", 1, "tags"),
            ("---\na: 1\n---\nb: 1", 4, "single document"),
            ("? [a, b]\n: c", 1, "names are texts"),
            (&deep, 1, ""),
        ];
        for (yaml, line, reason) in cases {
            let found = read(yaml).unwrap_err();
            assert!(found.position.line == line && found.reason.contains(reason), "{yaml}: {found:?}");
        }
    }
}

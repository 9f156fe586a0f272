//! Values of a plan file with the lines and columns where they are. Knows neither the file's format nor what a plan has.

use std::fmt::Write as _;

/// Where a value begins: line and column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// A value and where it begins.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) position: Position,
    pub(crate) value: Value,
}

#[derive(Debug)]
pub(crate) enum Value {
    /// JSON of a number, a boolean or null.
    Plain(String),
    Text(String),
    List(Vec<Node>),
    /// Names in the order of the file.
    Map(Vec<Entry>),
}

/// A name of a mapping, where it begins, and its value.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) position: Position,
    pub(crate) value: Node,
}

/// Why a file is malformed, and where.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) position: Position,
    pub(crate) reason: String,
}

// === impl Node ===

impl Node {
    /// The value as one line of JSON.
    pub(crate) fn json(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        match &self.value {
            Value::Plain(json) => text.push_str(json),
            Value::Text(value) => push_quoted(text, value),
            Value::List(items) => {
                text.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    item.write(text);
                }
                text.push(']');
            }
            Value::Map(entries) => {
                text.push('{');
                for (index, entry) in entries.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    push_quoted(text, &entry.name);
                    text.push(':');
                    entry.value.write(text);
                }
                text.push('}');
            }
        }
    }

    /// Where a field such as `outputs[0].parts[1].columns[0]` begins, or the closest one around it that the file has.
    pub(crate) fn position_of(&self, path: &str) -> Position {
        let (mut node, mut position) = (self, self.position);
        for step in steps(path) {
            let found = match (&node.value, step.parse::<usize>()) {
                (Value::List(items), Ok(index)) => items.get(index).map(|item| (item.position, item)),
                // Derived columns may be a mapping.
                (Value::Map(entries), Ok(index)) => entries.get(index).map(|entry| (entry.position, &entry.value)),
                (Value::Map(entries), Err(_)) => {
                    entries.iter().find(|entry| entry.name == step).map(|entry| (entry.position, &entry.value))
                }
                _ => None,
            };
            let Some((at, next)) = found else { break };
            (position, node) = (at, next);
        }
        position
    }
}

fn push_quoted(text: &mut String, value: &str) {
    // Writing to a String cannot fail.
    let _ = write!(text, "{}", serde_json::Value::from(value));
}

/// The names and indices of a path.
fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[']).map(|step| step.trim_end_matches(']')).filter(|step| !step.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(line: usize, value: Value) -> Node {
        Node { position: Position { line, column: 1 }, value }
    }

    fn entry(line: usize, name: &str, value: Node) -> Entry {
        Entry { name: name.to_owned(), position: Position { line, column: 2 }, value }
    }

    #[test]
    fn finds_fields_and_the_closest_known_ones_around_them() {
        let output = node(3, Value::Map(vec![entry(3, "name", node(3, Value::Text("a\"\n".into())))]));
        let derive = node(5, Value::Map(vec![entry(6, "late", node(6, Value::Plain("1e400".into())))]));
        let outputs = node(2, Value::List(vec![output]));
        let plan = node(1, Value::Map(vec![entry(2, "outputs", outputs), entry(5, "derive", derive)]));
        let line = |path: &str| plan.position_of(path).line;
        let lines =
            ["", "outputs", "outputs[0]", "outputs[0].name", "outputs[7].name", "derive[0].expr", "units[3]"].map(line);
        assert_eq!(lines, [1, 2, 3, 3, 2, 6, 1]);
        assert_eq!(plan.json(), r#"{"outputs":[{"name":"a\"\n"}],"derive":{"late":1e400}}"#);
    }
}

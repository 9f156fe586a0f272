//! TOML to values with their positions.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::tree::{Entry, Mistake, Node, Position, Value};

/// Reads a file. Dates are texts.
pub(crate) fn read(text: &str) -> Result<Node, Mistake> {
    let positions = Positions { text };
    let table = DeTable::parse(text).map_err(|error| Mistake {
        position: positions.at(error.span().unwrap_or_default()),
        reason: error.message().to_owned(),
    })?;
    positions.table(table.get_ref(), Position { line: 1, column: 1 })
}

struct Positions<'a> {
    text: &'a str,
}

impl Positions<'_> {
    fn at(&self, span: Range<usize>) -> Position {
        let before = &self.text[..self.text.floor_char_boundary(span.start)];
        let line = before.rsplit('\n').next().unwrap_or_default();
        Position { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
    }

    /// The names in the order of the file, which is that of derived columns.
    fn table(&self, table: &DeTable<'_>, position: Position) -> Result<Node, Mistake> {
        let mut fields: Vec<_> = table.iter().collect();
        fields.sort_by_key(|(name, _)| name.span().start);
        let entries = fields.into_iter().map(|(name, value)| {
            let at = self.at(name.span());
            let value = self.value(value.get_ref(), self.at(value.span()))?;
            Ok(Entry { name: name.get_ref().to_string(), position: at, value })
        });
        Ok(Node { position, value: Value::Map(entries.collect::<Result<_, _>>()?) })
    }

    fn value(&self, value: &DeValue<'_>, position: Position) -> Result<Node, Mistake> {
        let value = match value {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Boolean(flag) => Value::Plain(flag.to_string()),
            DeValue::Datetime(time) => Value::Text(time.to_string()),
            DeValue::Integer(number) => {
                let parsed = i128::from_str_radix(number.as_str(), number.radix());
                let reason = |error: std::num::ParseIntError| Mistake { position, reason: error.to_string() };
                Value::Plain(parsed.map_err(reason)?.to_string())
            }
            DeValue::Float(number) => float(number.as_str()),
            DeValue::Array(items) => {
                let items = items.iter().map(|item| self.value(item.get_ref(), self.at(item.span())));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => return self.table(table, position),
        };
        Ok(Node { position, value })
    }
}

/// JSON of a number. The protocol writes infinities and NaN as texts.
fn float(digits: &str) -> Value {
    match digits.trim_start_matches('+') {
        "inf" => Value::Text("Infinity".to_owned()),
        "-inf" => Value::Text("-Infinity".to_owned()),
        "nan" | "-nan" => Value::Text("NaN".to_owned()),
        digits => Value::Plain(digits.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_becomes_json_in_its_order() {
        let text = "filter = 'a > 0'\n[derive]\nz = \"b\"\na = \"c\"\n\n[[outputs]]\nname = \"x\"\nparts = [{ columns = [\"a\"], \
                    ops = [{ clip = { min = -1.5, max = 0x10 } }, { fill_null = { value = inf } }] }]\n";
        let node = read(text).unwrap();
        assert_eq!(
            node.json(),
            r#"{"filter":"a > 0","derive":{"z":"b","a":"c"},"outputs":[{"name":"x","parts":[{"columns":["a"],"ops":[{"clip":{"min":-1.5,"max":16}},{"fill_null":{"value":"Infinity"}}]}]}]}"#
        );
        assert_eq!(node.position_of("derive[1].expr"), Position { line: 4, column: 1 });
        assert_eq!(node.position_of("outputs[0].name"), Position { line: 7, column: 1 });
    }

    #[test]
    fn mistakes_have_their_place() {
        let found = read("a = 1\nb = \n").unwrap_err();
        assert_eq!(found.position.line, 2, "{found:?}");
        assert_eq!(read("a = 1\na = 2").unwrap_err().position.line, 2);
    }
}

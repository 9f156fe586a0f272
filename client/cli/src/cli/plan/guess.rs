//! Guesses a plan from the types of columns and what they hold.

use arrow::datatypes::{DataType, Field};
use forebay_client::ColumnDescription;
use serde_json::{Map, Value, json};

use super::describe::Measured;
use crate::cli::failure::Failure;

/// Integers of at most this many values are categories.
const INTEGER_CATEGORIES_MAX: u64 = 64;

/// Columns of more values are hashed, because a vocabulary of them is large.
const VOCABULARY_MAX: u64 = 100_000;

/// A vocabulary of more values leaves out those that occur once.
const FREQUENT_ONLY: u64 = 1000;

/// Most buckets of a hash.
const BUCKETS_MAX: u64 = 1 << 20;

/// A plan, and why it leaves columns out.
#[derive(Debug)]
pub(super) struct Guess {
    pub(super) plan: Value,
    pub(super) notes: Vec<String>,
}

/// The use of a column.
#[derive(Debug, PartialEq, Eq)]
enum Role {
    Number,
    Flag,
    Category,
    Hashed { buckets: u64 },
    Time { has_hours: bool },
    Skipped(&'static str),
}

/// The parts of a plan.
#[derive(Default)]
struct Draft {
    filter: String,
    derive: Map<String, Value>,
    /// Columns and the ops for each of them; columns of equal ops share a part.
    numbers: Vec<(Vec<String>, Value)>,
    categories: Vec<(Vec<String>, Value)>,
    label: Option<Value>,
    notes: Vec<String>,
}

/// Guesses a plan of features, and of a label if one is named.
pub(super) fn plan(measured: &Measured, label: Option<&str>) -> Result<Guess, Failure> {
    let mut draft = Draft::default();
    if let Some(label) = label {
        draft.add_label(measured, label)?;
    }
    for (field, column) in measured.schema.fields().iter().zip(&measured.columns) {
        if Some(field.name().as_str()) != label {
            draft.add(field, column, measured);
        }
    }
    draft.finished()
}

// === impl Draft ===

impl Draft {
    fn add(&mut self, field: &Field, column: &ColumnDescription, measured: &Measured) {
        let name = field.name().clone();
        let has_nulls = has_nulls(field, column, measured);
        match role(field, column, measured.rows) {
            Role::Number => {
                if column.nans > 0 {
                    self.notes
                        .push(format!("{name} has NaN, which no op replaces: derive a column with nanvl, or filter"));
                }
                self.number(name, has_nulls);
            }
            Role::Flag => {
                let ops = if has_nulls { json!([{"fill_null": {"value": 0}}]) } else { json!([]) };
                add(&mut self.numbers, name, ops);
            }
            Role::Category => {
                let min_count =
                    if column.distinct.unwrap_or(0) > FREQUENT_ONLY { json!({"min_count": 2}) } else { json!({}) };
                add(&mut self.categories, name, json!([{"vocab": min_count}]));
            }
            Role::Hashed { buckets } => {
                let fill =
                    if is_text(value_type(field.data_type())) { json!({"text": ""}) } else { json!({"value": 0}) };
                let hash = json!({"hash_bucket": {"buckets": buckets}});
                let ops = if has_nulls { json!([{"fill_null": fill}, hash]) } else { json!([hash]) };
                add(&mut self.categories, name, ops);
            }
            Role::Time { has_hours } => self.time(&name, has_hours, has_nulls),
            Role::Skipped(why) => self.notes.push(format!("{name} is left out: {why}")),
        }
    }

    fn number(&mut self, name: String, has_nulls: bool) {
        let scale = json!({"standardize": {}});
        let ops = if has_nulls { json!([{"fill_null": {"stat": "MEAN"}}, scale]) } else { json!([scale]) };
        add(&mut self.numbers, name, ops);
    }

    /// Adds the parts of a date or time that often repeat.
    fn time(&mut self, name: &str, has_hours: bool, has_nulls: bool) {
        let parts = [("month", true), ("dow", true), ("hour", has_hours)];
        for (part, _) in parts.into_iter().filter(|(_, is_used)| *is_used) {
            let derived = format!("{name}_{part}");
            let column = name.replace('"', "\"\"");
            self.derive.insert(derived.clone(), format!("date_part('{part}', \"{column}\")").into());
            self.number(derived, has_nulls);
        }
    }

    fn add_label(&mut self, measured: &Measured, label: &str) -> Result<(), Failure> {
        let found = measured.schema.fields().iter().zip(&measured.columns).find(|(field, _)| field.name() == label);
        let Some((field, column)) = found else {
            return Err(Failure::Usage(format!("--label {label:?}: the dataset has no such column")));
        };
        let kind = value_type(field.data_type());
        self.label = Some(if is_number(kind) || *kind == DataType::Boolean {
            json!({"name": "label", "parts": [{"columns": [label]}]})
        } else if is_text(kind) {
            json!({"name": "label", "parts": [{"columns": [label], "ops": [{"vocab": {}}]}]})
        } else {
            return Err(Failure::Usage(format!("--label {label:?}: a {kind} is not a number, a boolean or text")));
        });
        if has_nulls(field, column, measured) {
            self.filter = format!("\"{}\" IS NOT NULL", label.replace('"', "\"\""));
        }
        Ok(())
    }

    fn finished(mut self) -> Result<Guess, Failure> {
        let output = |name: &str, parts: Vec<(Vec<String>, Value)>| {
            let parts: Vec<Value> = parts.into_iter().map(part).collect();
            (!parts.is_empty()).then(|| json!({"name": name, "parts": parts}))
        };
        let label = self.label.take();
        let outputs = [output("numbers", self.numbers), output("categories", self.categories), label];
        let outputs: Vec<Value> = outputs.into_iter().flatten().collect();
        if outputs.is_empty() {
            return Err(Failure::Usage(format!("no column can be guessed: {}", self.notes.join("; "))));
        }
        let mut plan = Map::new();
        if !self.filter.is_empty() {
            plan.insert("filter".to_owned(), self.filter.into());
        }
        if !self.derive.is_empty() {
            plan.insert("derive".to_owned(), self.derive.into());
        }
        plan.insert("outputs".to_owned(), outputs.into());
        Ok(Guess { plan: plan.into(), notes: self.notes })
    }
}

fn part((columns, ops): (Vec<String>, Value)) -> Value {
    match ops.as_array() {
        Some(none) if none.is_empty() => json!({"columns": columns}),
        _ => json!({"columns": columns, "ops": ops}),
    }
}

/// Adds a column to the part of its ops.
fn add(parts: &mut Vec<(Vec<String>, Value)>, name: String, ops: Value) {
    match parts.iter_mut().find(|(_, known)| *known == ops) {
        Some((columns, _)) => columns.push(name),
        None => parts.push((vec![name], ops)),
    }
}

/// Whether the plan must expect nulls: a sample without any proves nothing.
fn has_nulls(field: &Field, column: &ColumnDescription, measured: &Measured) -> bool {
    column.nulls > 0 || (!measured.is_whole && field.is_nullable())
}

fn role(field: &Field, column: &ColumnDescription, rows: u64) -> Role {
    let kind = value_type(field.data_type());
    let values = rows.saturating_sub(column.nulls);
    if values == 0 {
        return Role::Skipped("it has no values");
    }
    let distinct = column.distinct.unwrap_or(values);
    let is_constant = distinct == 1;
    let is_unique =
        distinct > 1 && distinct.saturating_mul(20) >= values.saturating_mul(19) && distinct > INTEGER_CATEGORIES_MAX;
    match kind {
        _ if is_constant => Role::Skipped("it has one value"),
        DataType::Boolean => Role::Flag,
        DataType::Date32 | DataType::Date64 => Role::Time { has_hours: false },
        DataType::Timestamp(..) => Role::Time { has_hours: true },
        kind if kind.is_integer() && is_unique => Role::Skipped("nearly every value is another one, as of an id"),
        kind if kind.is_integer() && distinct <= INTEGER_CATEGORIES_MAX && distinct.saturating_mul(2) < values => {
            Role::Category
        }
        kind if kind.is_integer() && is_id(field.name()) => category(distinct),
        kind if is_number(kind) => Role::Number,
        kind if is_text(kind) && is_unique => Role::Skipped("nearly every value is another one: text or an id"),
        kind if is_text(kind) => category(distinct),
        _ => Role::Skipped("its type needs ops that fit its meaning"),
    }
}

fn category(distinct: u64) -> Role {
    if distinct <= VOCABULARY_MAX {
        Role::Category
    } else {
        Role::Hashed { buckets: distinct.next_power_of_two().min(BUCKETS_MAX) }
    }
}

fn is_id(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "id" || name.ends_with("_id")
}

fn value_type(kind: &DataType) -> &DataType {
    if let DataType::Dictionary(_, values) = kind { values } else { kind }
}

fn is_number(kind: &DataType) -> bool {
    use DataType::{Decimal32, Decimal64, Decimal128, Decimal256};
    let is_decimal = matches!(kind, Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..));
    kind.is_integer() || kind.is_floating() || is_decimal
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Schema, TimeUnit};
    use forebay_client::plan_from_json;

    use super::*;

    fn measured(columns: &[(&str, DataType, u64, u64)], is_whole: bool) -> Measured {
        let fields: Vec<Field> = columns.iter().map(|(name, kind, ..)| Field::new(*name, kind.clone(), true)).collect();
        let described = columns.iter().map(|(name, _, distinct, nulls)| ColumnDescription {
            name: (*name).to_owned(),
            distinct: Some(*distinct),
            nulls: *nulls,
            ..ColumnDescription::default()
        });
        Measured { schema: Arc::new(Schema::new(fields)), rows: 1_000_000, is_whole, columns: described.collect() }
    }

    #[test]
    fn types_and_cardinalities_decide() {
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        let columns = [
            ("row", DataType::Int64, 1_000_000, 0),
            ("delay", DataType::Float64, 5000, 10),
            ("distance", DataType::Int32, 5000, 0),
            ("month", DataType::Int8, 12, 0),
            ("user_id", DataType::Int64, 300_000, 0),
            ("carrier", DataType::Utf8, 16, 5),
            ("tail", DataType::Utf8, 5000, 0),
            ("url", DataType::Utf8, 400_000, 1),
            ("name", DataType::Utf8, 999_000, 0),
            ("late", DataType::Boolean, 2, 0),
            ("year", DataType::Int32, 1, 0),
            ("at", time, 900_000, 0),
            ("blob", DataType::Binary, 7, 0),
            ("empty", DataType::Float32, 0, 1_000_000),
        ];
        let guess = plan(&measured(&columns, true), None).unwrap();
        let parts = |output: usize| &guess.plan["outputs"][output]["parts"];
        assert_eq!(
            parts(0),
            &json!([
                {"columns": ["delay"], "ops": [{"fill_null": {"stat": "MEAN"}}, {"standardize": {}}]},
                {"columns": ["distance", "at_month", "at_dow", "at_hour"], "ops": [{"standardize": {}}]},
                {"columns": ["late"]}
            ])
        );
        assert_eq!(
            parts(1),
            &json!([
                {"columns": ["month", "carrier"], "ops": [{"vocab": {}}]},
                {"columns": ["user_id"], "ops": [{"hash_bucket": {"buckets": 524_288}}]},
                {"columns": ["tail"], "ops": [{"vocab": {"min_count": 2}}]},
                {"columns": ["url"], "ops": [{"fill_null": {"text": ""}}, {"hash_bucket": {"buckets": 524_288}}]}
            ])
        );
        assert_eq!(guess.plan["derive"]["at_hour"], "date_part('hour', \"at\")");
        let skipped: Vec<&str> = guess.notes.iter().filter_map(|note| note.split(' ').next()).collect();
        assert_eq!(skipped, ["row", "name", "year", "blob", "empty"]);
        plan_from_json(guess.plan.to_string().as_bytes()).unwrap();
    }

    #[test]
    fn a_sample_without_nulls_proves_nothing() {
        let columns = [("x", DataType::Float32, 100_000, 0)];
        let ops =
            |is_whole| plan(&measured(&columns, is_whole), None).unwrap().plan["outputs"][0]["parts"][0]["ops"].clone();
        assert_eq!(ops(true), json!([{"standardize": {}}]));
        assert_eq!(ops(false), json!([{"fill_null": {"stat": "MEAN"}}, {"standardize": {}}]));
    }

    #[test]
    fn a_label_is_no_feature_and_its_nulls_are_filtered() {
        let columns =
            [("x", DataType::Float32, 9000, 0), ("arr \"y\"", DataType::Float64, 9, 3), ("t", DataType::Binary, 5, 0)];
        let measured = measured(&columns, true);
        let guess = plan(&measured, Some("arr \"y\"")).unwrap();
        assert_eq!(guess.plan["filter"], "\"arr \"\"y\"\"\" IS NOT NULL");
        assert_eq!(guess.plan["outputs"][1], json!({"name": "label", "parts": [{"columns": ["arr \"y\""]}]}));
        assert_eq!(guess.plan["outputs"].as_array().unwrap().len(), 2);
        assert!(matches!(plan(&measured, Some("no")), Err(Failure::Usage(_))));
        assert!(matches!(plan(&measured, Some("t")), Err(Failure::Usage(_))));
    }
}

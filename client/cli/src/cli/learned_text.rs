//! Fitted plan as text: a row per op, with its parameters.

use std::collections::BTreeMap;

use forebay_client::FitResult;
use forebay_proto::v1::{DType, Output, Plan};
use serde_json::Value;

use super::output::{self, Align};

/// Maximum number of values shown of a list.
const VALUES_SHOWN: usize = 5;

/// Maximum number of characters shown of a text.
const TEXT_SHOWN: usize = 32;

/// Formats the plan's id, filter and derived columns, and the ops of each output's columns.
pub(super) fn table(result: &FitResult) -> String {
    let mut head = vec![vec!["plan_id".to_owned(), result.plan_id.clone()]];
    let mut rows = vec![["OUTPUT", "DTYPE", "COLUMN", "OP", "WITH"].map(str::to_owned).to_vec()];
    if let Some(plan) = &result.plan {
        head.extend(plan.join.iter().map(|join| {
            let names: Vec<String> = join.columns.iter().map(|column| format!("{}{column}", join.prefix)).collect();
            vec!["join".to_owned(), format!("{} from {} on {} = {}", names.join(", "), join.table, join.on, join.key)]
        }));
        if !plan.filter.is_empty() {
            head.push(vec!["filter".to_owned(), plan.filter.clone()]);
        }
        head.extend(plan.derive.iter().map(|derive| vec![derive.name.clone(), derive.expr.clone()]));
        rows.extend(output_rows(plan));
    }
    output::columns(&[Align::Left; 2], &head) + "\n" + &output::columns(&[Align::Left; 5], &rows)
}

/// Blanks repeated names.
fn output_rows(plan: &Plan) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for output in &plan.outputs {
        let mut first = [output.name.clone(), dtype_name(output)];
        for part in &output.parts {
            let mut column = part.columns.join(", ");
            let mut ops: Vec<[String; 2]> = part.ops.iter().map(|op| op_cells(&forebay_proto::to_json(op))).collect();
            if ops.is_empty() {
                ops.push([String::new(), String::new()]);
            }
            for op in ops {
                let [name, dtype] = std::mem::take(&mut first);
                let [op, with] = op;
                rows.push(vec![name, dtype, std::mem::take(&mut column), op, with]);
            }
        }
    }
    rows
}

fn dtype_name(output: &Output) -> String {
    let number = output.dtype.unwrap_or_default();
    DType::try_from(number).map_or_else(|_| number.to_string(), |dtype| dtype.as_str_name().to_owned())
}

/// Returns an op's name and its parameters in one line, for any op: `vocab`, `min_count 10, 16 strings: "UA", "B6", …`.
fn op_cells(json: &str) -> [String; 2] {
    let Ok(Value::Object(op)) = serde_json::from_str(json) else { return [json.to_owned(), String::new()] };
    let mut texts = Vec::new();
    for parameters in op.values() {
        collect(parameters, &mut texts);
    }
    [op.keys().cloned().collect::<Vec<_>>().concat(), texts.join(", ")]
}

fn collect(parameters: &Value, texts: &mut Vec<String>) {
    let Value::Object(fields) = parameters else { return };
    // Sorted by name.
    for (name, value) in fields.iter().collect::<BTreeMap<_, _>>() {
        match value {
            Value::Null => {}
            Value::Array(values) if values.is_empty() => {}
            Value::String(text) if text.is_empty() => {}
            // The keys of the columns that tell groups apart.
            Value::Array(values) if values.iter().all(Value::is_object) => {
                for value in values {
                    collect(value, texts);
                }
            }
            Value::Array(values) => texts.push(list_text(name, values)),
            Value::Object(_) => collect(value, texts),
            value => texts.push(format!("{name} {}", shortened(value))),
        }
    }
}

fn list_text(name: &str, values: &[Value]) -> String {
    let shown: Vec<String> = values.iter().take(VALUES_SHOWN).map(shortened).collect();
    let more = if values.len() > VALUES_SHOWN { ", …" } else { "" };
    format!("{} {name}: {}{more}", output::count(values.len() as u64), shown.join(", "))
}

/// Formats a value as JSON, which keeps texts distinct and on one line; long texts are cut.
fn shortened(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().count() > TEXT_SHOWN => {
            let start: String = text.chars().take(TEXT_SHOWN).collect();
            format!("{}…", Value::from(start))
        }
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use forebay_client::plan_from_json;

    use super::*;

    #[test]
    fn shows_learned_parameters_and_shortens_vocabularies() {
        let plan = br#"{"join": [{"table": "planes", "on": "tail", "key": "id", "columns": ["year", "seats"], "prefix": "p_"}],
            "filter": "arr_delay IS NOT NULL", "derive": [{"name": "late", "expr": "arr_delay > 15"}], "outputs": [
            {"name": "dense", "parts": [{"columns": ["dep_delay"], "ops": [
                {"fill_null": {"value": 12.5}}, {"standardize": {"mean": 12.5, "std": 40.25}}, {"log1p": {}}]}]},
            {"name": "cats", "dtype": "INT32", "parts": [
                {"columns": ["carrier"], "ops": [
                    {"vocab": {"min_count": 10, "values": {"strings": ["UA", "B6\n", "EV", "DL", "AA", "MQ"]}}}]},
                {"columns": ["dest"], "ops": [{"fill_null": {"text": "NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN"}},
                    {"vocab": {"values": {"integers": [7, 8]}}}]}]},
            {"name": "scaled", "parts": [{"columns": ["late"], "ops": [{"robust": {"by": ["k", "n"], "scales": {
                "keys": [{"strings": ["a", "b", "c", "d", "e", "f"]}, {"integers": [1, 2, 3, 4, 5, 6]}],
                "shifts": [0, 1, 2, 3, 4, 5], "divisors": [1, 1, 1, 1, 1, 1]}}}]}]},
            {"name": "label", "parts": [{"columns": ["late"]}]}]}"#;
        let plan = Some(plan_from_json(plan).unwrap());
        let result = FitResult { version: 1, plan_id: "5f3a".into(), plan, ..FitResult::default() };
        let text = table(&result);
        let expected = [
            "plan_id  5f3a",
            "join     p_year, p_seats from planes on tail = id",
            "filter   arr_delay IS NOT NULL",
            "late     arr_delay > 15",
            "",
            "OUTPUT  DTYPE    COLUMN     OP           WITH",
            "dense   FLOAT32  dep_delay  fill_null    value 12.5",
            "                            standardize  mean 12.5, std 40.25",
            "                            log1p",
            r#"cats    INT32    carrier    vocab        max_size 0, min_count 10, oov_buckets 0, 6 strings: "UA", "B6\n", "EV", "DL", "AA", …"#,
            r#"                 dest       fill_null    text "NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN"…"#,
            "                            vocab        max_size 0, min_count 0, oov_buckets 0, 2 integers: 7, 8",
            r#"scaled  FLOAT32  late       robust       2 by: "k", "n", 6 divisors: 1.0, 1.0, 1.0, 1.0, 1.0, …, 6 strings: "a", "b", "c", "d", "e", …, 6 integers: 1, 2, 3, 4, 5, …, 6 shifts: 0.0, 1.0, 2.0, 3.0, 4.0, …"#,
            "label   FLOAT32  late",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}

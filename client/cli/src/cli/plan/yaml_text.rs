//! A plan as YAML: a line per derived column and per part, with JSON as the values, which is YAML too.

use serde_json::Value;

use crate::cli::cell_text::plain;

/// Writes a guessed plan, with notes as comments.
pub(super) fn write(plan: &Value, notes: &[String]) -> String {
    let mut lines: Vec<String> = notes.iter().map(|note| format!("# {}", plain(note))).collect();
    lines.extend(plan.get("filter").map(|filter| format!("filter: {filter}")));
    if let Some(derive) = plan.get("derive").and_then(Value::as_object) {
        lines.push("derive:".to_owned());
        let column = |(name, expression): (&String, &Value)| format!("  {}: {expression}", Value::from(name.as_str()));
        lines.extend(derive.iter().map(column));
    }
    lines.push("outputs:".to_owned());
    for output in plan.get("outputs").and_then(Value::as_array).into_iter().flatten() {
        lines.push(format!("  - name: {}", output["name"]));
        lines.push("    parts:".to_owned());
        for part in output["parts"].as_array().into_iter().flatten() {
            lines.push(format!("      - columns: {}", part["columns"]));
            lines.extend(part.get("ops").map(|ops| format!("        ops: {ops}")));
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use forebay_client::plan_from_json;
    use serde_json::json;

    use super::*;
    use crate::cli::plan_file;

    #[test]
    fn the_yaml_is_the_plan() {
        let plan = json!({
            "filter": "\"y: z\" > 'a\tb'",
            "derive": {"a #": "1", "no": "2", "\u{1}": "3"},
            "outputs": [
                {"name": "x", "parts": [
                    {"columns": ["a #", "- b"], "ops": [{"clip": {"min": -1.5}}]}, {"columns": ["no"]}]},
                {"name": "y", "parts": [{"columns": ["é\n"]}]}
            ]
        });
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), write(&plan, &["left\nout: {".to_owned()])).unwrap();
        let expected = plan_from_json(plan.to_string().as_bytes()).unwrap();
        assert_eq!(plan_file::read(file.path()).unwrap(), expected);
    }
}

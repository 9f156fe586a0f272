//! `forebay fit DATASET --plan FILE`: let the server learn what a plan leaves open, and print the fitted plan.

use std::path::PathBuf;

use clap::Args;
use forebay_client::{FitProgress, FitResult};
use forebay_proto::v1::{DType, Output};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::output::{self, Align};
use super::{Failure, Session, plan_file};

/// Fits a plan to a dataset; `--json > plan.json` makes a file of the fitted plan
#[derive(Debug, Args)]
pub(crate) struct Fit {
    /// Name of the dataset on the server
    dataset: String,

    /// JSON file of the plan; - reads stdin
    #[arg(long, env = "FOREBAY_PLAN", value_name = "FILE", required = true)]
    plan: PathBuf,
}

impl Fit {
    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        let plan = plan_file::read(&self.plan)?;
        // Drawn on stderr, and only when that is a terminal.
        let bar = ProgressBar::no_length().with_style(style());
        let result = session.client.fit(&self.dataset, plan, |progress| draw(&bar, progress)).await;
        bar.finish_and_clear();
        let result = result?;
        output::write(&if session.json { format!("{}\n", forebay_proto::to_json(&result)) } else { text(&result) })
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} rows, {per_sec}, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn draw(bar: &ProgressBar, progress: &FitProgress) {
    bar.set_length(progress.rows_total);
    bar.set_message(format!("pass {} of {}", progress.pass, progress.passes));
    bar.set_position(progress.rows_done);
}

/// The plan's id, its rows, and each output with what was learned for its columns.
fn text(result: &FitResult) -> String {
    let mut rows = vec![vec!["plan_id".to_owned(), result.plan_id.clone()]];
    if let Some(plan) = &result.plan {
        if !plan.filter.is_empty() {
            rows.push(vec!["filter".to_owned(), plan.filter.clone()]);
        }
        rows.extend(plan.outputs.iter().flat_map(output_rows));
    }
    output::columns(&[Align::Left; 4], &rows)
}

fn output_rows(output: &Output) -> Vec<Vec<String>> {
    let dtype =
        DType::try_from(output.dtype).map_or_else(|_| output.dtype.to_string(), |dtype| dtype.as_str_name().to_owned());
    let parts = output.parts.iter().map(|part| {
        let ops: Vec<String> = part.ops.iter().map(|op| op_text(&forebay_proto::to_json(op))).collect();
        vec![output.name.clone(), dtype.clone(), part.columns.join(", "), ops.join(" · ")]
    });
    parts.collect()
}

/// An op in one line, whatever ops there are: `standardize(mean=12.6, std=40.2)`, `vocab(min_count=10, strings=16 values)`.
fn op_text(json: &str) -> String {
    let Ok(Value::Object(op)) = serde_json::from_str(json) else { return json.to_owned() };
    let texts: Vec<String> = op.iter().map(|(name, parameters)| name.clone() + &parameters_text(parameters)).collect();
    texts.concat()
}

fn parameters_text(parameters: &Value) -> String {
    let mut texts = Vec::new();
    collect(parameters, &mut texts);
    if texts.is_empty() { String::new() } else { format!("({})", texts.join(", ")) }
}

/// Values named by their fields; of a list only its length, as a vocabulary may have millions of values.
fn collect(parameters: &Value, texts: &mut Vec<String>) {
    let Value::Object(fields) = parameters else { return };
    for (name, value) in fields {
        match value {
            Value::Null => {}
            Value::Array(values) if values.is_empty() => {}
            Value::Array(values) => texts.push(format!("{name}={} values", values.len())),
            Value::Object(_) => collect(value, texts),
            Value::String(text) => texts.push(format!("{name}={text}")),
            value => texts.push(format!("{name}={value}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_client::plan_from_json;

    use super::*;

    #[test]
    fn the_summary_says_what_was_learned() {
        let plan = br#"{"filter": "arr_delay IS NOT NULL", "outputs": [
            {"name": "dense", "parts": [{"columns": ["dep_delay"], "ops": [
                {"fill_null": {"value": 12.5}}, {"standardize": {"mean": 12.5, "std": 40.25}}, {"log1p": {}}]}]},
            {"name": "cats", "dtype": "INT32", "parts": [{"columns": ["carrier"], "ops": [
                {"vocab": {"min_count": 10, "values": {"strings": ["UA", "B6"]}}}]}]}]}"#;
        let result = FitResult { version: 1, plan_id: "5f3a".into(), plan: Some(plan_from_json(plan).unwrap()) };
        let text = text(&result);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "plan_id  5f3a");
        assert_eq!(lines[1], "filter   arr_delay IS NOT NULL");
        assert_eq!(
            lines[2],
            "dense    FLOAT32  dep_delay  fill_null(value=12.5) · standardize(mean=12.5, std=40.25) · log1p"
        );
        let vocab = "vocab(min_count=10, max_size=0, oov_buckets=0, strings=2 values)";
        for part in ["cats     INT32    carrier    vocab(", "min_count=10", "strings=2 values"] {
            assert!(lines[3].contains(part), "{} lacks {part} of {vocab}", lines[3]);
        }
    }
}

//! `forebay plan check FILE`: the types of a plan's outputs, nulls, and what a fit would learn.

use std::path::PathBuf;

use clap::Args;
use forebay_client::{CheckedOutput, LearnedStatistic, PlanCheck};

use crate::cli::{
    cell_text::plain,
    failure::Failure,
    output::{self, Align},
    plan_file::PlanFile,
    session::Session,
};

/// Check a plan on a dataset without reading its rows: the type of every output, columns whose nulls would end a
/// stream, and what a fit would learn
#[derive(Debug, Args)]
pub(super) struct PlanCheckOptions {
    /// JSON, YAML or TOML file of the plan; - reads JSON from stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Name of the dataset on the server
    #[arg(long, env = "FOREBAY_DATASET", value_name = "NAME", required = true)]
    dataset: String,
}

impl PlanCheckOptions {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let file = PlanFile::read(&self.file)?;
        let checked = session.client.check_plan(&self.dataset, file.plan.clone()).await;
        let checked = checked.map_err(|error| file.located(&error.to_string()).unwrap_or_else(|| error.into()))?;
        output::write(&if session.json { forebay_proto::to_pretty_json(&checked) + "\n" } else { text(&checked) })
    }
}

fn text(checked: &PlanCheck) -> String {
    let names = ["OUTPUT", "TYPE", "WIDTH", "NULLS"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = [names].into_iter().chain(checked.outputs.iter().map(row)).collect();
    let outputs = output::columns(&[Align::Left, Align::Left, Align::Right, Align::Left], &rows);
    let reads = format!("reads {} of {}\n", plain(&checked.columns.join(", ")), plain(&checked.dataset));
    if checked.learns.is_empty() {
        return outputs + &reads + "needs no fit\n";
    }
    let passes = if checked.passes == 1 { "one pass".to_owned() } else { format!("{} passes", checked.passes) };
    let names = ["PASS", "OUTPUT", "COLUMN", "OP", "LEARNS"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = [names].into_iter().chain(checked.learns.iter().map(learned)).collect();
    let learns = output::columns(&[Align::Right, Align::Left, Align::Left, Align::Left, Align::Left], &rows);
    format!("{outputs}{reads}\na fit learns in {passes} over the rows:\n{learns}")
}

fn row(output: &CheckedOutput) -> Vec<String> {
    let is_list = output.r#type.contains("list<");
    let width = match output.width {
        Some(width) => width.to_string(),
        None if is_list => "–".to_owned(),
        None => "by fit".to_owned(),
    };
    let nulls = if output.nullable {
        "kept".to_owned()
    } else if output.null_columns.is_empty() {
        "none".to_owned()
    } else {
        format!("of {} end the stream: use fill_null or a filter", output.null_columns.join(", "))
    };
    vec![output.name.clone(), output.r#type.clone(), width, nulls]
}

fn learned(learned: &LearnedStatistic) -> Vec<String> {
    let LearnedStatistic { output, column, op, statistic, pass } = learned;
    vec![pass.to_string(), output.clone(), column.clone(), op.clone(), statistic.clone()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_types_nulls_and_what_is_learned() {
        let output = |name: &str, kind: &str, width| CheckedOutput {
            name: name.into(),
            r#type: kind.into(),
            width,
            ..CheckedOutput::default()
        };
        let mut checked = PlanCheck {
            dataset: "flights".into(),
            columns: vec!["a".into(), "b".into()],
            outputs: vec![
                CheckedOutput { null_columns: vec!["a".into()], ..output("x", "float", Some(2)) },
                CheckedOutput { nullable: true, ..output("y", "string", Some(1)) },
                output("z", "float", None),
                output("l", "list<item: int32>", None),
            ],
            ..PlanCheck::default()
        };
        let table = text(&checked);
        assert_eq!(
            table,
            "OUTPUT  TYPE                WIDTH  NULLS\n\
             x       float                   2  of a end the stream: use fill_null or a filter\n\
             y       string                  1  kept\n\
             z       float              by fit  none\n\
             l       list<item: int32>       –  none\n\
             reads a, b of flights\n\
             needs no fit\n"
        );
        checked.learns = vec![LearnedStatistic {
            output: "x".into(),
            column: "a".into(),
            op: "standardize".into(),
            statistic: "mean and deviation".into(),
            pass: 1,
        }];
        checked.passes = 1;
        let table = text(&checked);
        assert!(
            table.ends_with(
                "a fit learns in one pass over the rows:\n\
             PASS  OUTPUT  COLUMN  OP           LEARNS\n   \
                1  x       a       standardize  mean and deviation\n"
            ),
            "{table}"
        );
    }
}

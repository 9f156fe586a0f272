//! Dry run of a fit: rejects plans that cannot be fitted, from the columns' types alone.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use forebay_kernels::{Prefix, Program};
use forebay_plan::{Answer, PlanError, Question, Statistic, Tables};
use forebay_proto::v1;
use forebay_runtime::error::near_names;

use super::{groups::key_question, shared::SharedVocabularies};
use crate::error::StreamError;

/// What a fit would do.
#[derive(Debug)]
pub(crate) struct DryRun {
    /// The plan with placeholders for what a fit learns.
    pub plan: v1::Plan,
    pub program: Arc<Program>,
    /// The questions of each pass.
    pub passes: Vec<Vec<Question>>,
}

/// Runs all passes with placeholder answers, so that a plan that cannot be fitted fails before any data is read.
pub(crate) fn dry_run(plan: &v1::Plan, schema: &Schema, tables: &Tables) -> Result<DryRun, StreamError> {
    let mut plan = plan.clone();
    let mut passes = Vec::new();
    // Check shape and names first: their errors name the field.
    match forebay_plan::output_specs(&plan, schema, tables) {
        Err(PlanError::NotFitted { .. }) | Ok(_) => {}
        Err(other) => return Err(other.into()),
    }
    let read = forebay_plan::chain_schema(&plan, schema)?;
    loop {
        let questions = forebay_plan::questions(&plan, tables)?;
        if questions.is_empty() {
            let program = Arc::new(forebay_plan::compile(&plan, schema, false, tables)?);
            return Ok(DryRun { plan, program, passes });
        }
        let mut shared = SharedVocabularies::default();
        for question in &questions {
            let prefix = checked_prefix(question, &read)?;
            shared.check(question, prefix.data_type())?;
            let is_text = is_text(prefix.data_type());
            let answer = match &question.statistic {
                Statistic::Mode if is_text => Answer::Text(String::new()),
                Statistic::Mean | Statistic::Median | Statistic::Mode | Statistic::MaxAbs => Answer::Number(0.0),
                Statistic::MeanAndDeviation | Statistic::Range | Statistic::MedianAndQuartiles => {
                    Answer::Pair(0.0, 1.0)
                }
                Statistic::Quantiles(count) => Answer::Boundaries(vec![0.0; *count as usize - 1]),
                Statistic::Vocabulary { .. } => Answer::Values(v1::VocabValues::default()),
                Statistic::Counts => Answer::Counts(v1::VocabValues::default(), Vec::new()),
                Statistic::OfGroups { by, .. } => {
                    by.iter()
                        .try_for_each(|column| checked_prefix(&key_question(question, column), &read).map(drop))?;
                    let keys = vec![v1::VocabValues::default(); by.len()];
                    Answer::Scales(v1::Scales { keys, shifts: Vec::new(), divisors: Vec::new() })
                }
                Statistic::TargetMean { label, folds, .. } => {
                    check_label(label, question, schema)?;
                    Answer::Means(v1::VocabValues::default(), vec![0.0; *folds as usize + 1])
                }
            };
            forebay_plan::learn(&mut plan, question, answer);
        }
        passes.push(questions);
    }
}

/// Compiles the ops of a chain before a question's op, and checks that the op can learn from their values.
pub(crate) fn checked_prefix(question: &Question, schema: &Schema) -> Result<Prefix, StreamError> {
    if schema.index_of(&question.column).is_err() {
        let near = near_names(&question.column, schema.fields().iter().map(|field| field.name().as_str()));
        return Err(
            PlanError::UnknownColumn { path: question.path.clone(), column: question.column.clone(), near }.into()
        );
    }
    let prefix = Prefix::compile(&question.column, &question.prefix, schema)
        .map_err(|error| PlanError::of_chain(question.chain_path(), question.renumbered(error), schema))?;
    let is_counted = question.statistic.is_counted();
    // Counting distinguishes decimals by all their digits; arithmetic uses float64.
    let prefix = if is_counted { prefix.with_exact_decimals() } else { prefix };
    match prefix.data_type() {
        DataType::Utf8 if is_counted => Ok(prefix),
        data_type if data_type.is_numeric() => Ok(prefix),
        other => {
            let reason = format!("column \"{}\" is {other} here, but this op learns from numbers", question.column);
            Err(PlanError::Field { path: question.path.clone(), reason }.into())
        }
    }
}

/// Checks that a label is a column of numbers.
fn check_label(label: &str, question: &Question, schema: &Schema) -> Result<(), StreamError> {
    let path = format!("{}.label", question.path);
    let Ok(field) = schema.field_with_name(label) else {
        let near = near_names(label, schema.fields().iter().map(|field| field.name().as_str()));
        return Err(PlanError::UnknownColumn { path, column: label.to_owned(), near }.into());
    };
    match field.data_type() {
        data_type if data_type.is_numeric() => Ok(()),
        DataType::Boolean | DataType::Null => Ok(()),
        other => {
            let reason = format!("column \"{label}\" is {other}: the mean of a label needs numbers or booleans");
            Err(PlanError::field(path, reason).into())
        }
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8)
}

//! What can be said of a fit before any data is read: every question of the plan is asked of the columns' types.

use arrow::datatypes::{DataType, Schema};
use forebay_kernels::Prefix;
use forebay_proto::v1;

use crate::plan::{self, Answer, Question, Tables, Wanted};
use crate::stream::StreamError;

/// Walks through all passes with made-up answers, so that a plan that cannot be fitted is refused before data is read.
pub(crate) fn dry_run(plan: &v1::Plan, schema: &Schema, tables: &Tables) -> Result<(), StreamError> {
    let mut plan = plan.clone();
    // Shape and names first: their errors name the field.
    match plan::output_specs(&plan, schema, tables) {
        Err(plan::PlanError::NotFitted { .. }) | Ok(_) => {}
        Err(other) => return Err(other.into()),
    }
    loop {
        let questions = plan::questions(&plan, tables)?;
        if questions.is_empty() {
            plan::compile(&plan, schema, false, tables)?;
            return Ok(());
        }
        for question in &questions {
            let prefix = checked_prefix(question, schema)?;
            let is_text = is_text(prefix.data_type());
            let answer = match &question.wanted {
                Wanted::Mode if is_text => Answer::Text(String::new()),
                Wanted::Mean | Wanted::Median | Wanted::Mode | Wanted::MaxAbs => Answer::Number(0.0),
                Wanted::MeanAndDeviation | Wanted::Range | Wanted::MedianAndQuartiles => Answer::Pair(0.0, 1.0),
                Wanted::Quantiles(count) => Answer::Boundaries(vec![0.0; *count as usize - 1]),
                Wanted::Vocabulary { .. } => Answer::Values(v1::VocabValues::default()),
            };
            plan::learn(&mut plan, question, answer);
        }
    }
}

/// The front of a question's chain, if what is wanted can be learned from its values.
pub(crate) fn checked_prefix(question: &Question, schema: &Schema) -> Result<Prefix, StreamError> {
    if schema.index_of(&question.column).is_err() {
        let near =
            crate::error::near_names(&question.column, schema.fields().iter().map(|field| field.name().as_str()));
        return Err(plan::PlanError::UnknownColumn {
            path: question.path.clone(),
            column: question.column.clone(),
            near,
        }
        .into());
    }
    let prefix = Prefix::compile(&question.column, &question.prefix, schema)
        .map_err(|error| plan::PlanError::of_chain(question.chain_path(), error, schema))?;
    let is_counted = question.wanted.is_counted();
    // Values that are counted are told apart by all their digits; arithmetic is done in float64.
    let prefix = if is_counted { prefix.with_exact_decimals() } else { prefix };
    match prefix.data_type() {
        DataType::Utf8 if is_counted => Ok(prefix),
        data_type if data_type.is_numeric() => Ok(prefix),
        other => {
            let reason = format!("column \"{}\" is {other} here, and this must learn from numbers", question.column);
            Err(plan::PlanError::Field { path: question.path.clone(), reason }.into())
        }
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8)
}

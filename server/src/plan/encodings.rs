//! `count_encode` and `target_mean` of a canonical plan: their parameters, and what they have learned as numbers of the kernels.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use forebay_kernels::{Encoding, Folds, Op, VocabValues};
use forebay_proto::v1::{self, op::Op as OpMessage};

use super::{error::PlanError, path::chain_path, row_id::ROW_ID};

/// The most folds: each has a number per value.
const FOLDS_MAX: u32 = 64;

/// Returns folds and smoothing of a `target_mean`.
pub(super) fn folds_and_smoothing(message: &v1::TargetMean, path: &str) -> Result<(u32, f64), PlanError> {
    check(message, path)?;
    Ok((message.folds.unwrap_or_default(), message.smoothing.unwrap_or_default()))
}

/// Converts a fitted `count_encode`.
pub(super) fn counts(message: &v1::CountEncode, values: VocabValues) -> Op {
    let numbers = [0].iter().chain(&message.counts).map(|count| *count as f64).collect();
    Op::Encode(Arc::new(Encoding { op: "count_encode", values: Arc::new(values), numbers, folds: None }))
}

/// Converts a fitted `target_mean`.
pub(super) fn means(message: &v1::TargetMean, values: VocabValues, path: &str) -> Result<Op, PlanError> {
    check(message, path)?;
    let count = message.folds.unwrap_or_default();
    // The last mean of a row is for rows without a fold.
    let numbers: Vec<f64> = match count {
        0 => message.means.clone(),
        _ => message.means.chunks(count as usize + 1).flat_map(|row| &row[..row.len() - 1]).copied().collect(),
    };
    if !message.means.len().is_multiple_of(count as usize + 1) {
        let reason = format!("{} means are no rows of {} (folds + 1)", message.means.len(), count + 1);
        return Err(PlanError::field(format!("{path}.means"), reason));
    }
    let folds = (count > 0).then(|| Folds { count, seed: message.seed, row_ids: ROW_ID.to_owned() });
    Ok(Op::Encode(Arc::new(Encoding { op: "target_mean", values: Arc::new(values), numbers, folds })))
}

fn check(message: &v1::TargetMean, path: &str) -> Result<(), PlanError> {
    if message.label.is_empty() {
        return Err(PlanError::field(format!("{path}.label"), "missing: the column whose mean each value becomes"));
    }
    if let Some(folds) = message.folds.filter(|folds| *folds == 1 || *folds > FOLDS_MAX) {
        let reason = format!("{folds} folds: set 2 to {FOLDS_MAX}, or 0 for one mean of all rows");
        return Err(PlanError::field(format!("{path}.folds"), reason));
    }
    match message.smoothing {
        Some(smoothing) if !(smoothing.is_finite() && smoothing >= 0.0) => Err(PlanError::field(
            format!("{path}.smoothing"),
            format!("{smoothing} is not a finite number of 0 or more"),
        )),
        _ => Ok(()),
    }
}

/// Returns the plan for rows without ids: a `target_mean` takes the mean of all rows.
#[must_use]
pub fn without_folds(mut plan: v1::Plan) -> v1::Plan {
    for op in target_means(&mut plan) {
        let width = op.folds.unwrap_or_default() as usize + 1;
        op.means = op.means.chunks(width).filter_map(|row| row.last()).copied().collect();
        op.folds = Some(0);
    }
    plan
}

fn target_means(plan: &mut v1::Plan) -> impl Iterator<Item = &mut v1::TargetMean> {
    let ops = plan.outputs.iter_mut().flat_map(|output| &mut output.parts).flat_map(|part| &mut part.ops);
    ops.filter_map(|op| if let Some(OpMessage::TargetMean(message)) = &mut op.op { Some(message) } else { None })
}

/// Returns the columns that chains may read: the schema's, and [`ROW_ID`] if an op of the plan chooses by fold.
pub fn chain_schema(plan: &v1::Plan, schema: &Schema) -> Result<Schema, PlanError> {
    let mut fields = schema.fields().to_vec();
    if let Some(path) = first_folds(plan) {
        if schema.index_of(ROW_ID).is_ok() {
            return Err(PlanError::row_id_column(path, ROW_ID));
        }
        fields.push(Arc::new(Field::new(ROW_ID, DataType::UInt64, false)));
    }
    Ok(Schema::new(fields))
}

/// The path of the first op that chooses by fold.
fn first_folds(plan: &v1::Plan) -> Option<String> {
    let chains = plan.outputs.iter().enumerate().flat_map(|(output_index, output)| {
        output.parts.iter().enumerate().map(move |(part_index, part)| (output_index, part_index, part))
    });
    chains.into_iter().find_map(|(output_index, part_index, part)| {
        let is_folded =
            |op: &v1::Op| matches!(&op.op, Some(OpMessage::TargetMean(message)) if message.folds.unwrap_or_default() > 0);
        let number = part.ops.iter().position(is_folded)?;
        Some(format!("{}.ops[{number}].target_mean", chain_path(output_index, part_index)))
    })
}

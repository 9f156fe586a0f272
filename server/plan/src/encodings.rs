//! `count_encode` and `target_mean` of a canonical plan: their parameters, and what they have learned as numbers of the kernels.
//!
//! A row of a fit takes the mean without its own fold. Whether a row of a stream is a row of the fit follows from the
//! [`v1::FittedRows`] of the op: rows of another snapshot are not, and a column decides for those that another filter
//! or sample lets pass.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use arrow::datatypes::{DataType, Field, Schema};
use forebay_kernels::{Encoding, Folds, Op, VocabValues};
use forebay_proto::v1::{self, op::Op as OpMessage};
use forebay_runtime::state::short_digest;
use prost::Message as _;

use super::{error::PlanError, path::chain_path, row_id::ROW_ID, sample::Sample};

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
    if !message.means.len().is_multiple_of(count as usize + 1) {
        let reason = format!("{} means are not a multiple of {} (folds + 1)", message.means.len(), count + 1);
        return Err(PlanError::field(format!("{path}.means"), reason));
    }
    let row_ids = message.rows.as_ref().map_or_else(|| ROW_ID.to_owned(), fitted_column);
    let folds = (count > 0).then_some(Folds { count, seed: message.seed, row_ids });
    let numbers = message.means.clone();
    Ok(Op::Encode(Arc::new(Encoding { op: "target_mean", values: Arc::new(values), numbers, folds })))
}

fn check(message: &v1::TargetMean, path: &str) -> Result<(), PlanError> {
    if message.label.is_empty() {
        return Err(PlanError::field(format!("{path}.label"), "missing: the column whose mean each value becomes"));
    }
    if message.folds == Some(1) {
        return Err(PlanError::field(format!("{path}.folds"), "1 fold: set 2 or more, or 0 for one mean of all rows"));
    }
    Ok(())
}

/// Returns the plan for rows without ids: a `target_mean` takes the mean of all rows.
#[must_use]
pub fn without_folds(mut plan: v1::Plan) -> v1::Plan {
    target_means_mut(&mut plan).for_each(drop_folds);
    plan
}

fn drop_folds(op: &mut v1::TargetMean) {
    let width = op.folds.unwrap_or_default() as usize + 1;
    op.means = op.means.chunks(width).filter_map(|row| row.last()).copied().collect();
    (op.folds, op.rows) = (Some(0), None);
}

/// Returns the plan for rows of a snapshot, all of them or a sample: only the rows that its fit read have folds. What is
/// left of [`v1::FittedRows`] has a column of [`fitted_columns`].
pub fn of_snapshot<'a>(plan: &'a v1::Plan, snapshot: &str, sample: Option<Sample>) -> Cow<'a, v1::Plan> {
    if target_means(plan).all(|op| op.rows.is_none()) {
        return Cow::Borrowed(plan);
    }
    let mut plan = plan.clone();
    let filter = plan.filter.clone();
    for op in target_means_mut(&mut plan) {
        let Some(rows) = &op.rows else { continue };
        let is_sampled = rows.sample_end == 0 || sample.is_some_and(|sample| sample.is_of(rows));
        if rows.snapshot != snapshot {
            drop_folds(op);
        } else if rows.filter == filter && is_sampled {
            op.rows = None;
        }
    }
    Cow::Owned(plan)
}

/// Whether a `target_mean` with folds was fitted to another snapshot.
pub fn is_of_other_rows(plan: &v1::Plan, snapshot: &str) -> bool {
    target_means(plan).filter_map(|op| op.rows.as_ref()).any(|rows| rows.snapshot != snapshot)
}

/// The columns that decide which rows a fit read, and the SQL of each: the row's id, or null.
pub fn fitted_columns(plan: &v1::Plan) -> BTreeMap<String, String> {
    let column = |rows: &v1::FittedRows| {
        let filter = if rows.filter.is_empty() { "true" } else { &rows.filter };
        let sample = match rows.sample_end {
            0 => String::new(),
            end => format!(" AND hash64({ROW_ID}, {}) < {end}", rows.sample_seed),
        };
        // The filter may end with a comment.
        (fitted_column(rows), format!("CASE WHEN (\n{filter}\n){sample} THEN {ROW_ID} END"))
    };
    target_means(plan).filter_map(|op| op.rows.as_ref()).map(column).collect()
}

fn fitted_column(rows: &v1::FittedRows) -> String {
    format!("__fitted_row_id_{}", short_digest(&[&rows.encode_to_vec()]))
}

/// Writes which rows a fit has read into each `target_mean` with folds that it has learned.
pub fn write_fitted_rows(plan: &mut v1::Plan, before: &v1::Plan, snapshot: &str, sample: Option<Sample>) {
    let (sample_seed, sample_end) = sample.map_or((0, 0), Sample::seed_and_end);
    let (filter, snapshot) = (plan.filter.clone(), snapshot.to_owned());
    let rows = v1::FittedRows { snapshot, filter, sample_seed, sample_end };
    for (op, before) in target_means_mut(plan).zip(target_means(before)) {
        if before.values.is_some() {
            // It was fitted before, to other rows.
            op.clone_from(before);
        } else if op.folds != Some(0) {
            op.rows = Some(rows.clone());
        }
    }
}

fn target_means(plan: &v1::Plan) -> impl Iterator<Item = &v1::TargetMean> {
    let ops = plan.outputs.iter().flat_map(|output| &output.parts).flat_map(|part| &part.ops);
    ops.filter_map(|op| if let Some(OpMessage::TargetMean(message)) = &op.op { Some(message) } else { None })
}

fn target_means_mut(plan: &mut v1::Plan) -> impl Iterator<Item = &mut v1::TargetMean> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(filter: &str, rows: Option<v1::FittedRows>) -> v1::Plan {
        let mean = v1::TargetMean {
            folds: Some(2),
            means: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            rows,
            ..v1::TargetMean::default()
        };
        let op = v1::Op { op: Some(OpMessage::TargetMean(mean)) };
        let part = v1::Part { ops: vec![op], ..v1::Part::default() };
        let output = v1::Output { parts: vec![part], ..v1::Output::default() };
        v1::Plan { filter: filter.to_owned(), outputs: vec![output], ..v1::Plan::default() }
    }

    #[test]
    fn only_the_rows_of_the_fit_have_folds() {
        let seen = |filter: &str, end| v1::FittedRows {
            snapshot: "s".to_owned(),
            filter: filter.to_owned(),
            sample_seed: 7,
            sample_end: end,
        };
        let half = Sample::check(Some(0.5), 7).unwrap();
        let quarter = Sample::check(Some(0.25), 7).unwrap();
        let other = Sample::check(Some(0.25), 8).unwrap();
        // The plan's filter, the rows of the fit, the stream's snapshot and sample: the folds, and whether a column decides.
        for (filter, rows, snapshot, sample, folds, is_decided) in [
            ("a > 1", None, "s", None, 2, false),
            ("a > 1", Some(seen("a > 1", 0)), "s", None, 2, false),
            ("a > 1", Some(seen("a > 1", 0)), "t", None, 0, false),
            ("a > 2", Some(seen("a > 1", 0)), "s", None, 2, true),
            ("", Some(seen("a > 1", 0)), "s", half, 2, true),
            ("", Some(seen("", 1 << 63)), "s", None, 2, true),
            ("", Some(seen("", 1 << 63)), "s", half, 2, false),
            ("", Some(seen("", 1 << 63)), "s", quarter, 2, false),
            ("", Some(seen("", 1 << 63)), "s", other, 2, true),
            ("", Some(seen("", 1 << 62)), "s", half, 2, true),
        ] {
            let plan = plan(filter, rows);
            let found = of_snapshot(&plan, snapshot, sample);
            let op = target_means(&found).next().unwrap();
            assert_eq!((op.folds, fitted_columns(&found).len()), (Some(folds), usize::from(is_decided)), "{plan:?}");
            assert_eq!(op.means.len(), if folds == 0 { 2 } else { 6 });
        }
    }

    #[test]
    fn a_fit_writes_its_rows_and_keeps_those_of_earlier_ones() {
        let mut learned = plan("a > 1", None);
        let open = learned.clone();
        write_fitted_rows(&mut learned, &open, "s", Sample::check(Some(0.5), 7).unwrap());
        let rows = v1::FittedRows {
            snapshot: "s".to_owned(),
            filter: "a > 1".to_owned(),
            sample_seed: 7,
            sample_end: 1 << 63,
        };
        assert_eq!(target_means(&learned).next().unwrap().rows, Some(rows));
        let sql = fitted_columns(&learned).into_values().next().unwrap();
        assert_eq!(sql, "CASE WHEN (\na > 1\n) AND hash64(__row_id, 7) < 9223372036854775808 THEN __row_id END");

        let earlier = v1::FittedRows { snapshot: "before".to_owned(), ..v1::FittedRows::default() };
        let mut fitted = plan("a > 1", Some(earlier));
        target_means_mut(&mut fitted).for_each(|op| op.values = Some(v1::VocabValues::default()));
        let mut again = of_snapshot(&fitted, "s", None).into_owned();
        assert_eq!(target_means(&again).next().unwrap().folds, Some(0));
        write_fitted_rows(&mut again, &fitted, "s", None);
        assert_eq!(again, fitted);
    }
}

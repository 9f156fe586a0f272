//! Row ids: a row's index in its snapshot.

use forebay_proto::v1::{self, op::Op as OpMessage};

/// Name of the column with each row's index in the snapshot, added on request.
pub const ROW_ID: &str = "__row_id";

/// Whether what a plan computes may depend on row ids: its expressions name them, or an op chooses by fold.
pub fn reads_row_ids(plan: &v1::Plan) -> bool {
    // Names without quotes are found in any case.
    let names_them = |expr: &str| expr.to_ascii_lowercase().contains(ROW_ID);
    let mut ops = plan.outputs.iter().flat_map(|output| &output.parts).flat_map(|part| &part.ops);
    // An op that does not say the number of its folds has the default.
    let has_folds = |op: &v1::Op| matches!(&op.op, Some(OpMessage::TargetMean(message)) if message.folds != Some(0));
    names_them(&plan.filter) || plan.derive.iter().any(|derive| names_them(&derive.expr)) || ops.any(has_folds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_that_read_row_ids() {
        let plan = |filter: &str, expr: &str, folds: Option<Option<u32>>| {
            let op = |folds| v1::Op {
                op: Some(OpMessage::TargetMean(v1::TargetMean { folds, ..v1::TargetMean::default() })),
            };
            let part = v1::Part { ops: folds.map(op).into_iter().collect(), ..v1::Part::default() };
            v1::Plan {
                filter: filter.to_owned(),
                derive: vec![v1::Derive { name: "d".to_owned(), expr: expr.to_owned() }],
                outputs: vec![v1::Output { parts: vec![part], ..v1::Output::default() }],
                ..v1::Plan::default()
            }
        };
        for (filter, expr, folds, want) in [
            ("a > 1", "b", None, false),
            ("hash64(__row_id, 1) % 2 = 0", "b", None, true),
            ("a > 1", "__ROW_ID + 1", None, true),
            ("a > 1", "b", Some(Some(0)), false),
            ("a > 1", "b", Some(Some(5)), true),
            ("a > 1", "b", Some(None), true),
        ] {
            assert_eq!(reads_row_ids(&plan(filter, expr, folds)), want, "{filter} {expr} {folds:?}");
        }
    }
}

//! Row ids: a row's index in its snapshot.

use forebay_proto::v1::{self, decode_image::Crop, op::Op as OpMessage};

/// Name of the column with each row's index in the snapshot, added on request.
pub const ROW_ID: &str = "__row_id";

/// Whether what a plan computes may depend on row ids: its expressions name them, or an op chooses by fold or draws.
pub fn reads_row_ids(plan: &v1::Plan) -> bool {
    let mut ops = plan.outputs.iter().flat_map(|output| &output.parts).flat_map(|part| &part.ops);
    let reads_them = |op: &v1::Op| match &op.op {
        // An op that does not say the number of its folds has the default.
        Some(OpMessage::TargetMean(message)) => message.folds != Some(0),
        Some(OpMessage::DecodeImage(message)) => message.flip || message.crop() == Crop::Random,
        _ => false,
    };
    names_row_ids(&plan.filter) || plan.derive.iter().any(|derive| names_row_ids(&derive.expr)) || ops.any(reads_them)
}

/// Whether an expression may read row ids. Names without quotes are found in any case.
pub(super) fn names_row_ids(expr: &str) -> bool {
    expr.to_ascii_lowercase().contains(ROW_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_that_read_row_ids() {
        let plan = |filter: &str, expr: &str, op: Option<OpMessage>| {
            let op = op.map(|op| v1::Op { op: Some(op) });
            let part = v1::Part { ops: op.into_iter().collect(), ..v1::Part::default() };
            v1::Plan {
                filter: filter.to_owned(),
                derive: vec![v1::Derive { name: "d".to_owned(), expr: expr.to_owned() }],
                outputs: vec![v1::Output { parts: vec![part], ..v1::Output::default() }],
                ..v1::Plan::default()
            }
        };
        let target = |folds| Some(OpMessage::TargetMean(v1::TargetMean { folds, ..v1::TargetMean::default() }));
        let image = |crop: Crop, flip| {
            Some(OpMessage::DecodeImage(v1::DecodeImage { crop: crop.into(), flip, ..v1::DecodeImage::default() }))
        };
        for (filter, expr, op, want) in [
            ("a > 1", "b", None, false),
            ("hash64(__row_id, 1) % 2 = 0", "b", None, true),
            ("a > 1", "__ROW_ID + 1", None, true),
            ("a > 1", "b", target(Some(0)), false),
            ("a > 1", "b", target(Some(5)), true),
            ("a > 1", "b", target(None), true),
            ("a > 1", "b", image(Crop::Center, false), false),
            ("a > 1", "b", image(Crop::Random, false), true),
            ("a > 1", "b", image(Crop::None, true), true),
        ] {
            let plan = plan(filter, expr, op);
            assert_eq!(reads_row_ids(&plan), want, "{plan:?}");
        }
    }
}

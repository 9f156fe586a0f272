//! `standardize`, `min_max` and `robust` with `by`: the columns that tell groups of rows apart, and what a fit has learned
//! of each group.

use std::sync::Arc;

use forebay_kernels::{GroupScales, Op};
use forebay_proto::{ops, v1::op::Op as OpMessage};

use super::{
    by::check_by,
    error::PlanError,
    grouped_ops::{by, scales},
    values::vocab_values,
};

/// Checks the columns of an op at a path.
pub(super) fn check(op: &OpMessage, path: &str) -> Result<(), PlanError> {
    let (by, has_scales) = (by(op), scales(op).is_some());
    if by.is_empty() {
        let reason = "set by too: the columns that tell the groups apart";
        return if has_scales { Err(PlanError::field(format!("{path}.scales"), reason)) } else { Ok(()) };
    }
    let of_all_rows = match op {
        OpMessage::Standardize(op) => op.mean.is_some(),
        OpMessage::MinMax(op) => op.min.is_some(),
        OpMessage::Robust(op) => op.center.is_some(),
        _ => false,
    };
    if of_all_rows {
        let reason = "its numbers are those of all rows: leave them out, or by";
        return Err(PlanError::field(format!("{path}.by"), reason));
    }
    check_by(by, None, path)
}

/// Converts an op that has learned of each group; `None` if it has no groups.
pub(super) fn kernel_op(op: &OpMessage, path: &str) -> Result<Option<Op>, PlanError> {
    check(op, path)?;
    let Some(scales) = scales(op) else { return Ok(None) };
    let keys = scales.keys.iter().enumerate();
    let keys = keys.map(|(index, keys)| vocab_values(keys, &format!("{path}.scales.keys[{index}]")).map(Arc::new));
    let keys = keys.collect::<Result<_, _>>()?;
    let (shifts, divisors) = (scales.shifts.clone(), scales.divisors.clone());
    Ok(Some(Op::ScaleGroups(Arc::new(GroupScales { op: ops::name(op), by: by(op).to_vec(), keys, shifts, divisors }))))
}

#[cfg(test)]
mod tests {
    use forebay_proto::v1;

    use super::*;

    fn kernel(json: &str) -> Result<Option<Op>, String> {
        let op = forebay_proto::decode::<v1::Op>(json.as_bytes()).unwrap().0.op.unwrap();
        kernel_op(&op, "op").map_err(|error| error.to_string())
    }

    #[test]
    fn scales_become_those_of_the_kernels() {
        let json = r#"{"min_max": {"by": ["k"], "scales": {"keys": [{"integers": [7, 9]}], "shifts": [0, 1], "divisors": [1, 2]}}}"#;
        let Op::ScaleGroups(scales) = kernel(json).unwrap().unwrap() else { panic!("a scaler of groups") };
        assert_eq!(
            (scales.op, scales.by.as_slice(), &scales.divisors[..]),
            ("min_max", &["k".to_owned()][..], &[1.0, 2.0][..])
        );
        for json in [r#"{"robust": {"by": ["k"]}}"#, r#"{"standardize": {"mean": 1, "std": 2}}"#, r#"{"abs": {}}"#] {
            assert_eq!(kernel(json), Ok(None), "{json}");
        }
    }

    #[test]
    fn what_does_not_fit_is_rejected_with_the_field() {
        for (json, expected) in [
            (r#"{"robust": {"by": ["k", "k"]}}"#, "op.by[1]: \"k\" is named twice"),
            (r#"{"min_max": {"by": ["k"], "min": 0, "max": 1}}"#, "op.by: its numbers are those of all rows"),
            (r#"{"standardize": {"scales": {}}}"#, "op.scales: set by too"),
            (
                r#"{"robust": {"by": ["k"], "scales": {"keys": [{"integers": [1], "floats": [1]}]}}}"#,
                "op.scales.keys[0]: set only one of strings",
            ),
        ] {
            let error = kernel(json).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}

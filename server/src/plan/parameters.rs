//! Parameters that are compared with values of a column: bounds, boundaries and ids, as doubles or exact integers. And the
//! sides of lists.

use forebay_kernels::{Op, Side};
use forebay_proto::v1;

use super::error::PlanError;

/// A bound of a clip.
#[derive(Clone, Copy)]
enum Bound {
    Number(f64),
    Whole(i128),
}

/// Converts a clip; it is exact if every bound is an integer.
pub(super) fn clip(message: &v1::Clip, path: &str) -> Result<Op, PlanError> {
    let bound = |name: &str, number: Option<f64>, integer: Option<i64>, unsigned: Option<u64>| {
        let given = [
            number.map(Bound::Number),
            integer.map(|value| Bound::Whole(value.into())),
            unsigned.map(|value| Bound::Whole(value.into())),
        ];
        let mut given = given.into_iter().flatten();
        match (given.next(), given.next()) {
            (bound, None) => Ok(bound),
            _ => Err(PlanError::field(path, format!("set only one of {name}, {name}_integer and {name}_unsigned"))),
        }
    };
    let min = bound("min", message.min, message.min_integer, message.min_unsigned)?;
    let max = bound("max", message.max, message.max_integer, message.max_unsigned)?;
    let bounds = [min, max];
    let is_exact = bounds.iter().flatten().any(|bound| matches!(bound, Bound::Whole(_)));
    if is_exact && bounds.iter().flatten().all(|bound| bound.whole().is_some()) {
        let whole = |bound: Option<Bound>| bound.and_then(Bound::whole);
        return Ok(Op::ClipWhole { min: whole(min), max: whole(max) });
    }
    Ok(Op::Clip { min: min.map(Bound::number), max: max.map(Bound::number) })
}

/// Converts a pad.
pub(super) fn pad(message: &v1::Pad, path: &str) -> Result<Op, PlanError> {
    Ok(Op::Pad { n: message.n, value: message.value, side: side(message.side, path)? })
}

/// Converts an attention mask.
pub(super) fn attention_mask(message: v1::AttentionMask, path: &str) -> Result<Op, PlanError> {
    Ok(Op::AttentionMask { n: message.n, side: side(message.side, path)? })
}

/// Converts the side of lists that is padded.
fn side(side: i32, path: &str) -> Result<Side, PlanError> {
    match v1::pad::Side::try_from(side) {
        Ok(v1::pad::Side::Right) => Ok(Side::Right),
        Ok(v1::pad::Side::Left) => Ok(Side::Left),
        Err(_) => Err(PlanError::field(format!("{path}.side"), "expected one of RIGHT, LEFT")),
    }
}

/// Returns whether a bucketize has boundaries, given or learned.
pub(super) fn has_boundaries(message: &v1::Bucketize) -> bool {
    !message.boundaries.is_empty() || !message.integers.is_empty() || !message.unsigned.is_empty()
}

/// Converts a bucketize that has boundaries.
pub(super) fn bucketize(message: &v1::Bucketize, path: &str) -> Result<Op, PlanError> {
    let filled = [!message.boundaries.is_empty(), !message.integers.is_empty(), !message.unsigned.is_empty()];
    if filled.iter().filter(|filled| **filled).count() > 1 {
        return Err(PlanError::field(path, "set only one of boundaries, integers, unsigned"));
    }
    let whole: Vec<i128> = if message.unsigned.is_empty() {
        message.integers.iter().map(|edge| i128::from(*edge)).collect()
    } else {
        message.unsigned.iter().map(|edge| i128::from(*edge)).collect()
    };
    if whole.is_empty() {
        return Ok(Op::Bucketize { boundaries: message.boundaries.clone() });
    }
    Ok(Op::BucketizeWhole { boundaries: whole })
}

/// Converts a mapping of ids.
pub(super) fn map_id(message: &v1::MapId, path: &str) -> Result<Op, PlanError> {
    if !message.ids.is_empty() && !message.unsigned.is_empty() {
        return Err(PlanError::field(path, "set only one of ids and unsigned"));
    }
    let ids = message.ids.iter().map(|id| i128::from(*id));
    let ids = ids.chain(message.unsigned.iter().map(|id| i128::from(*id))).collect();
    Ok(Op::MapId { ids, values: message.values.clone(), default: message.default })
}

impl Bound {
    fn number(self) -> f64 {
        match self {
            Self::Number(number) => number,
            Self::Whole(whole) => whole as f64,
        }
    }

    /// Returns the bound as an integer; none for a fraction and for a number beyond every 64-bit integer.
    fn whole(self) -> Option<i128> {
        match self {
            Self::Number(number) => (number.fract() == 0.0 && number.abs() < 1e30).then_some(number as i128),
            Self::Whole(whole) => Some(whole),
        }
    }
}

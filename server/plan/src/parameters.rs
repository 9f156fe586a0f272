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

/// Converts the side of lists that is padded.
pub(super) fn side(side: v1::pad::Side) -> Side {
    match side {
        v1::pad::Side::Right => Side::Right,
        v1::pad::Side::Left => Side::Left,
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

//! Parameters that are values of a column, in the type that a plan gives them in.

use forebay_kernels::Op;
use forebay_proto::v1;

use super::error::PlanError;

/// A bound as a plan has it.
#[derive(Clone, Copy)]
enum Bound {
    Number(f64),
    Whole(i128),
}

/// The kernels' form of a clip: exact where every bound is a whole number.
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
            _ => Err(PlanError::field(path, format!("give one of {name}, {name}_integer and {name}_unsigned"))),
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

/// Whether a bucketize has boundaries, given or learned.
pub(super) fn has_boundaries(message: &v1::Bucketize) -> bool {
    !message.boundaries.is_empty() || !message.integers.is_empty() || !message.unsigned.is_empty()
}

/// The kernels' form of a bucketize that has boundaries.
pub(super) fn bucketize(message: &v1::Bucketize, path: &str) -> Result<Op, PlanError> {
    let filled = [!message.boundaries.is_empty(), !message.integers.is_empty(), !message.unsigned.is_empty()];
    if filled.iter().filter(|filled| **filled).count() > 1 {
        return Err(PlanError::field(path, "only one of boundaries, integers, unsigned may be filled"));
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

/// The kernels' form of a mapping of ids.
pub(super) fn map_id(message: &v1::MapId, path: &str) -> Result<Op, PlanError> {
    if !message.ids.is_empty() && !message.unsigned.is_empty() {
        return Err(PlanError::field(path, "only one of ids and unsigned may be filled"));
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

    /// The whole number that it is; none for a fraction and for what is far beyond every integer.
    fn whole(self) -> Option<i128> {
        match self {
            Self::Number(number) => (number.fract() == 0.0 && number.abs() < 1e30).then_some(number as i128),
            Self::Whole(whole) => Some(whole),
        }
    }
}

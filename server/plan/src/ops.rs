//! Ops of a fitted plan → ops of the kernels.

use forebay_kernels::{ExactDecimal, Fill, Op};
use forebay_proto::{
    ops,
    v1::{self, fill_null::Fill as FillMessage, op::Op as OpMessage},
};

use super::{encodings, error::PlanError, group_scales, lookup::Tables, parameters, values::vocab_values};

/// Converts a fitted op.
pub(super) fn kernel_op(op: &v1::Op, path: &str, number: usize, tables: &Tables) -> Result<Op, PlanError> {
    let message = checked_op(op, path, number)?;
    if let Some(op) = group_scales::kernel_op(message, &format!("{path}.ops[{number}].{}", ops::name(message)))? {
        return Ok(op);
    }
    let list = |values| vocab_values(values, &format!("{path}.ops[{number}].{}.values", ops::name(message)));
    let unlearned = || PlanError::NotFitted { path: format!("{path}.ops[{number}]"), op: ops::name(message) };
    Ok(match message {
        OpMessage::FillNull(message) => Op::FillNull(fill(message, path, number)?),
        OpMessage::Clip(message) => parameters::clip(message, &format!("{path}.ops[{number}].clip"))?,
        OpMessage::Log1p(_) => Op::Log1p,
        OpMessage::Standardize(message) => match (message.mean, message.std) {
            (Some(mean), Some(std)) => Op::Standardize { mean, std },
            _ => return Err(unlearned()),
        },
        OpMessage::MinMax(message) => match (message.min, message.max) {
            (Some(min), Some(max)) => Op::MinMax { min, max },
            _ => return Err(unlearned()),
        },
        OpMessage::Bucketize(message) if !parameters::has_boundaries(message) && message.quantiles > 0 => {
            return Err(unlearned());
        }
        OpMessage::Bucketize(message) => parameters::bucketize(message, &format!("{path}.ops[{number}].bucketize"))?,
        OpMessage::Vocab(message) => {
            let values = message.values.as_ref().ok_or_else(unlearned)?;
            Op::Vocab { values: list(values)?.into(), oov_buckets: message.oov_buckets }
        }
        OpMessage::HashBucket(message) => Op::HashBucket { buckets: message.buckets, seed: message.seed },
        OpMessage::OneHot(message) => Op::OneHot { size: message.size },
        OpMessage::Sqrt(_) => Op::Sqrt,
        OpMessage::Abs(_) => Op::Abs,
        OpMessage::Logit(message) => Op::Logit { eps: message.eps },
        OpMessage::BoxCox(message) => Op::BoxCox { lambda: message.lambda },
        OpMessage::MaxAbs(message) => Op::MaxAbs { max_abs: message.max_abs.ok_or_else(unlearned)? },
        OpMessage::Robust(message) => match (message.center, message.scale) {
            (Some(center), Some(scale)) => Op::Robust { center, scale },
            _ => return Err(unlearned()),
        },
        OpMessage::Cross(message) => {
            Op::Cross { columns: message.columns.clone(), buckets: message.buckets, seed: message.seed }
        }
        OpMessage::MultiHot(message) => Op::MultiHot { size: message.size },
        OpMessage::FirstN(message) => Op::FirstN { n: message.n, value: message.value },
        OpMessage::LastN(message) => Op::LastN { n: message.n, value: message.value },
        OpMessage::Pad(message) => {
            Op::Pad { n: message.n, value: message.value, side: parameters::side(message.side()) }
        }
        OpMessage::AttentionMask(message) => Op::AttentionMask { n: message.n, side: parameters::side(message.side()) },
        OpMessage::Bytes(message) => Op::Bytes { n: message.n },
        OpMessage::Ngram(message) => Op::Ngram { n: message.n, buckets: message.buckets, seed: message.seed },
        OpMessage::SigridHash(message) => Op::SigridHash { salt: message.salt, max_value: message.max_value },
        OpMessage::MapId(message) => parameters::map_id(message, &format!("{path}.ops[{number}].map_id"))?,
        OpMessage::PositiveMod(message) => Op::PositiveMod { modulus: message.modulus },
        OpMessage::CountEncode(message) => {
            let values = message.values.as_ref().ok_or_else(unlearned)?;
            encodings::counts(message, list(values)?)
        }
        OpMessage::TargetMean(message) => {
            let values = message.values.as_ref().ok_or_else(unlearned)?;
            let values = list(values)?;
            encodings::means(message, values, &format!("{path}.ops[{number}].target_mean"))?
        }
        // The chain of a program begins after them.
        OpMessage::Tokenize(_)
        | OpMessage::DecodeImage(_)
        | OpMessage::Udf(_)
        | OpMessage::Lag(_)
        | OpMessage::Diff(_)
        | OpMessage::Rolling(_) => return Err(misplaced(message, &format!("{path}.ops[{number}]"))),
        OpMessage::Lookup(message) => Op::Lookup(tables.get(message, &format!("{path}.ops[{number}].lookup"))?),
    })
}

/// The error of an op at a place of a chain where it cannot be.
fn misplaced(op: &OpMessage, path: &str) -> PlanError {
    let reason = match op {
        OpMessage::Tokenize(_) => "must be the first op of its part, or the second after fill_null with a text",
        _ => "must be the first op of its part",
    };
    PlanError::field(format!("{path}.{}", ops::name(op)), reason)
}

/// Converts the value of a `fill_null`.
fn fill(message: &v1::FillNull, path: &str, number: usize) -> Result<Fill, PlanError> {
    Ok(match &message.fill {
            Some(FillMessage::Value(value)) => Fill::Number(*value),
            Some(FillMessage::Integer(value)) => Fill::Integer(*value),
            Some(FillMessage::Unsigned(value)) => Fill::Unsigned(*value),
            Some(FillMessage::Decimal(text)) => Fill::Decimal(ExactDecimal::parse(text).ok_or_else(|| {
                let reason = format!(
                    "{text:?} is not a decimal of up to 76 digits: write digits, with a point before a fraction, such as -123.45"
                );
                PlanError::field(format!("{path}.ops[{number}].fill_null.decimal"), reason)
            })?),
            Some(FillMessage::Text(text)) => Fill::Text(text.clone()),
            Some(FillMessage::Stat(_)) => return Err(PlanError::NotFitted { path: format!("{path}.ops[{number}]"), op: "fill_null" }),
            None => {
                let reason = "expected one of value, text, integer, unsigned, decimal, or stat (MEAN, MEDIAN, MODE)";
                return Err(PlanError::field(format!("{path}.ops[{number}].fill_null"), reason));
            }
        })
}

/// Returns the op of a message; an empty message is an error, and so are parameters that the table of ops does not allow.
pub(super) fn checked_op<'a>(op: &'a v1::Op, path: &str, number: usize) -> Result<&'a OpMessage, PlanError> {
    let path = || format!("{path}.ops[{number}]");
    let Some(op) = &op.op else {
        return Err(PlanError::field(path(), format!("empty: expected one of {}", ops::NAMES.join(", "))));
    };
    match ops::problem(op) {
        None => Ok(op),
        Some(problem) => Err(not_allowed(problem, &format!("{}.{}", path(), ops::name(op)))),
    }
}

/// Checks the parameters of an op at a path, as far as the table of ops bounds them.
pub(super) fn check_parameters(op: &OpMessage, path: &str) -> Result<(), PlanError> {
    ops::problem(op).map_or(Ok(()), |problem| Err(not_allowed(problem, path)))
}

fn not_allowed(ops::Problem { parameter, reason }: ops::Problem, path: &str) -> PlanError {
    PlanError::field(parameter.map_or_else(|| path.to_owned(), |parameter| format!("{path}.{parameter}")), reason)
}

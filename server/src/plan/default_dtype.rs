//! The dtype of an output that names none: an integer for indices and bytes, FLOAT32 for everything else.

use forebay_proto::v1::{self, fill_null::Fill, op::Op as OpMessage};

const INT32_MAX: u64 = i32::MAX as u64;

/// The dtype of an output: the one it names or, if it names none, UINT8 if every part ends in `bytes`, that of [`of_image`] for an image, INT32 if
/// it is packed or every part ends in indices (INT64 if an index may exceed INT32), FLOAT32 otherwise.
pub(super) fn dtype_of(output: &v1::Output) -> i32 {
    output.dtype.unwrap_or_else(|| {
        if let Some(dtype) = output.parts.first().and_then(of_image) {
            return dtype.into();
        }
        if !output.parts.is_empty() && output.parts.iter().all(ends_in_bytes) {
            return v1::DType::Uint8.into();
        }
        let others = if output.pack.is_some() { v1::DType::Int32 } else { v1::DType::Float32 };
        let parts: Option<Vec<u64>> = output.parts.iter().map(|part| largest_index(&part.ops)).collect();
        let dtype = match parts.and_then(|parts| parts.into_iter().max()) {
            Some(largest) if largest <= INT32_MAX => v1::DType::Int32,
            Some(_) => v1::DType::Int64,
            None => others,
        };
        dtype.into()
    })
}

/// The dtype of an image, the only part of its output: AS_STORED if it is encoded, UINT8 if every op keeps bytes, and
/// FLOAT32 otherwise; none for other parts.
fn of_image(part: &v1::Part) -> Option<v1::DType> {
    let mut ops = part.ops.iter().map(|op| op.op.as_ref());
    let Some(Some(OpMessage::DecodeImage(image))) = ops.next() else { return None };
    let keeps_bytes = |op: Option<&OpMessage>| match op {
        Some(OpMessage::Clip(_)) => true,
        Some(OpMessage::FillNull(v1::FillNull { fill: Some(fill) })) => match fill {
            Fill::Value(value) => whole(*value).is_some(),
            Fill::Integer(_) | Fill::Unsigned(_) => true,
            Fill::Text(_) | Fill::Stat(_) | Fill::Decimal(_) => false,
        },
        _ => false,
    };
    Some(if image.encoded {
        v1::DType::AsStored
    } else if image.normalize.is_none() && ops.all(keeps_bytes) {
        v1::DType::Uint8
    } else {
        v1::DType::Float32
    })
}

fn ends_in_bytes(part: &v1::Part) -> bool {
    matches!(part.ops.last().and_then(|op| op.op.as_ref()), Some(OpMessage::Bytes(_)))
}

/// A bound of the indices that a chain ends in; `None` if it ends in other values.
fn largest_index(ops: &[v1::Op]) -> Option<u64> {
    let mut largest = 0;
    for op in ops.iter().rev() {
        let op = op.op.as_ref()?;
        if let Some(bound) = index_bound(op) {
            return Some(largest.max(bound));
        }
        largest = largest.max(added_index(op)?);
    }
    None
}

/// A bound of the indices that an op computes; `None` for other ops.
fn index_bound(op: &OpMessage) -> Option<u64> {
    Some(match op {
        // The sizes of plans bound the boundaries and the values far below the largest INT32. Token ids are INT32.
        OpMessage::Bucketize(_) | OpMessage::Tokenize(_) | OpMessage::AttentionMask(_) => 0,
        OpMessage::Vocab(vocab) => vocab.oov_buckets.into(),
        OpMessage::HashBucket(v1::HashBucket { buckets, .. })
        | OpMessage::Cross(v1::Cross { buckets, .. })
        | OpMessage::Ngram(v1::Ngram { buckets, .. }) => *buckets,
        OpMessage::SigridHash(hash) => hash.max_value.unsigned_abs(),
        OpMessage::PositiveMod(step) => step.modulus.unsigned_abs(),
        OpMessage::MapId(map) => map.values.iter().chain(&map.default).map(|id| id.unsigned_abs()).max().unwrap_or(0),
        _ => return None,
    })
}

/// A bound of the indices that an op adds to a chain of indices; `None` for ops that do not keep indices.
fn added_index(op: &OpMessage) -> Option<u64> {
    match op {
        OpMessage::FillNull(v1::FillNull { fill: Some(fill) }) => match fill {
            Fill::Value(value) => whole(*value),
            Fill::Integer(value) => Some(value.unsigned_abs()),
            Fill::Unsigned(value) => Some(*value),
            Fill::Text(_) | Fill::Stat(_) | Fill::Decimal(_) => None,
        },
        OpMessage::Pad(v1::Pad { value, .. }) | OpMessage::FirstN(v1::FirstN { value: Some(value), .. }) => {
            whole(*value)
        }
        OpMessage::FirstN(v1::FirstN { value: None, .. }) => Some(0),
        _ => None,
    }
}

/// The magnitude of a whole number, saturated; `None` for other numbers.
fn whole(value: f64) -> Option<u64> {
    (value.fract() == 0.0).then_some(value.abs() as u64)
}

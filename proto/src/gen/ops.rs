// Generated from the options of plan.proto by tests/generated.

/// The names of the ops, sorted.
pub const NAMES: [&str; 35] = [
    "abs",
    "attention_mask",
    "box_cox",
    "bucketize",
    "bytes",
    "clip",
    "count_encode",
    "cross",
    "decode_image",
    "diff",
    "fill_null",
    "first_n",
    "hash_bucket",
    "lag",
    "last_n",
    "log1p",
    "logit",
    "lookup",
    "map_id",
    "max_abs",
    "min_max",
    "multi_hot",
    "ngram",
    "one_hot",
    "pad",
    "positive_mod",
    "robust",
    "rolling",
    "sigrid_hash",
    "sqrt",
    "standardize",
    "target_mean",
    "tokenize",
    "udf",
    "vocab",
];

/// Returns the name of an op in a plan.
pub fn name(op: &OneOp) -> &'static str {
    match op {
        OneOp::FillNull(_) => "fill_null",
        OneOp::Clip(_) => "clip",
        OneOp::Log1p(_) => "log1p",
        OneOp::Standardize(_) => "standardize",
        OneOp::MinMax(_) => "min_max",
        OneOp::Bucketize(_) => "bucketize",
        OneOp::Vocab(_) => "vocab",
        OneOp::HashBucket(_) => "hash_bucket",
        OneOp::OneHot(_) => "one_hot",
        OneOp::Sqrt(_) => "sqrt",
        OneOp::Abs(_) => "abs",
        OneOp::Logit(_) => "logit",
        OneOp::BoxCox(_) => "box_cox",
        OneOp::MaxAbs(_) => "max_abs",
        OneOp::Robust(_) => "robust",
        OneOp::Cross(_) => "cross",
        OneOp::MultiHot(_) => "multi_hot",
        OneOp::FirstN(_) => "first_n",
        OneOp::Pad(_) => "pad",
        OneOp::Lookup(_) => "lookup",
        OneOp::Ngram(_) => "ngram",
        OneOp::SigridHash(_) => "sigrid_hash",
        OneOp::MapId(_) => "map_id",
        OneOp::PositiveMod(_) => "positive_mod",
        OneOp::CountEncode(_) => "count_encode",
        OneOp::TargetMean(_) => "target_mean",
        OneOp::Bytes(_) => "bytes",
        OneOp::Udf(_) => "udf",
        OneOp::Tokenize(_) => "tokenize",
        OneOp::AttentionMask(_) => "attention_mask",
        OneOp::DecodeImage(_) => "decode_image",
        OneOp::LastN(_) => "last_n",
        OneOp::Lag(_) => "lag",
        OneOp::Diff(_) => "diff",
        OneOp::Rolling(_) => "rolling",
    }
}

/// Returns why a parameter is not allowed.
pub fn problem(op: &OneOp) -> Option<Problem> {
    match op {
        OneOp::Standardize(op) => together([("mean", op.mean.is_some()), ("std", op.std.is_some())]),
        OneOp::MinMax(op) => together([("min", op.min.is_some()), ("max", op.max.is_some())]),
        OneOp::HashBucket(op) => whole("buckets", op.buckets.into(), 1, i64::MAX.into()),
        OneOp::Logit(op) => op.eps.and_then(|value| number("eps", value, 0.0, 0.5)),
        OneOp::MaxAbs(op) => op.max_abs.and_then(|value| number("max_abs", value, 0.0, f64::INFINITY)),
        OneOp::Robust(op) => op.scale.and_then(|value| number("scale", value, 0.0, f64::INFINITY)).or_else(|| together([("center", op.center.is_some()), ("scale", op.scale.is_some())])),
        OneOp::Cross(op) => whole("buckets", op.buckets.into(), 1, i64::MAX.into()),
        OneOp::FirstN(op) => whole("n", op.n.into(), 1, 65536),
        OneOp::Pad(op) => whole("n", op.n.into(), 1, 65536).or_else(|| named("side", op.side, &["RIGHT", "LEFT"])),
        OneOp::Ngram(op) => whole("n", op.n.into(), 1, 256).or_else(|| whole("buckets", op.buckets.into(), 1, i64::MAX.into())),
        OneOp::SigridHash(op) => whole("max_value", op.max_value.into(), 1, i64::MAX.into()),
        OneOp::PositiveMod(op) => whole("modulus", op.modulus.into(), 1, i64::MAX.into()),
        OneOp::TargetMean(op) => op.smoothing.and_then(|value| number("smoothing", value, 0.0, f64::INFINITY)).or_else(|| op.folds.and_then(|value| whole("folds", value.into(), 0, 64))),
        OneOp::Bytes(op) => whole("n", op.n.into(), 1, 65536),
        OneOp::Tokenize(op) => named("truncation", op.truncation, &["RIGHT", "LEFT", "ERROR"]),
        OneOp::AttentionMask(op) => whole("n", op.n.into(), 1, 65536).or_else(|| named("side", op.side, &["RIGHT", "LEFT"])),
        OneOp::DecodeImage(op) => whole("height", op.height.into(), 1, 16384).or_else(|| whole("width", op.width.into(), 1, 16384).or_else(|| named("resize", op.resize, &["BILINEAR", "NEAREST", "BICUBIC", "LANCZOS", "BOX", "HAMMING"]).or_else(|| named("crop", op.crop, &["NONE", "CENTER", "RANDOM"]).or_else(|| named("on_error", op.on_error, &["FAIL", "NULL", "SKIP"]).or_else(|| named("orientation", op.orientation, &["APPLY", "IGNORE"])))))),
        OneOp::LastN(op) => whole("n", op.n.into(), 1, 65536),
        OneOp::Lag(op) => whole("n", op.n.into(), 1, 65536),
        OneOp::Diff(op) => whole("n", op.n.into(), 1, 65536),
        OneOp::Rolling(op) => named("stat", op.stat, &["MEAN", "STD", "MIN", "MAX", "SUM", "COUNT"]).or_else(|| whole("length", op.length.into(), 1, 65536)),
        _ => None,
    }
}

/// Returns a bound of the indices that an op computes; `None` for other ops.
pub fn index_bound(op: &OneOp) -> Option<u64> {
    match op {
        OneOp::Vocab(op) => Some(largest([Some(op.oov_buckets.into())])),
        OneOp::HashBucket(op) => Some(largest([Some(op.buckets)])),
        OneOp::Cross(op) => Some(largest([Some(op.buckets)])),
        OneOp::Ngram(op) => Some(largest([Some(op.buckets)])),
        OneOp::SigridHash(op) => Some(largest([Some(op.max_value.unsigned_abs())])),
        OneOp::MapId(op) => Some(largest([op.values.iter().map(|value| value.unsigned_abs()).max(), op.default.map(i64::unsigned_abs)])),
        OneOp::PositiveMod(op) => Some(largest([Some(op.modulus.unsigned_abs())])),
        OneOp::Bucketize(_) | OneOp::Tokenize(_) | OneOp::AttentionMask(_) => Some(0),
        _ => None,
    }
}

/// Returns a bound of the indices that an op adds to a chain of indices; `None` for ops that do not keep indices.
pub fn added_index(op: &OneOp) -> Option<u64> {
    match op {
        OneOp::FillNull(op) => match &op.fill { Some(v1::fill_null::Fill::Value(value)) => magnitude(*value), Some(v1::fill_null::Fill::Integer(value)) => Some(value.unsigned_abs()), Some(v1::fill_null::Fill::Unsigned(value)) => Some(*value), _ => None },
        OneOp::FirstN(op) => op.value.map_or(Some(0), magnitude),
        OneOp::Pad(op) => magnitude(op.value),
        OneOp::LastN(op) => op.value.map_or(Some(0), magnitude),
        _ => None,
    }
}

/// The names of the ops that compute a number from a number.
pub const ARITHMETIC: [&str; 10] = ["clip", "log1p", "standardize", "min_max", "sqrt", "abs", "logit", "box_cox", "max_abs", "robust"];

/// Returns whether an op computes a number from a number.
pub fn is_arithmetic(op: &OneOp) -> bool {
    matches!(op, OneOp::Clip(_) | OneOp::Log1p(_) | OneOp::Standardize(_) | OneOp::MinMax(_) | OneOp::Sqrt(_) | OneOp::Abs(_) | OneOp::Logit(_) | OneOp::BoxCox(_) | OneOp::MaxAbs(_) | OneOp::Robust(_))
}

/// Returns whether a fit has yet to set parameters of an op.
pub fn learns(op: &OneOp) -> bool {
    match op {
        OneOp::FillNull(op) => matches!(op.fill, Some(v1::fill_null::Fill::Stat(_))),
        OneOp::Standardize(op) => op.mean.is_none() && op.std.is_none() && op.scales.is_none(),
        OneOp::MinMax(op) => op.min.is_none() && op.max.is_none() && op.scales.is_none(),
        OneOp::Bucketize(op) => op.boundaries.is_empty() && op.integers.is_empty() && op.unsigned.is_empty(),
        OneOp::Vocab(op) => op.values.is_none(),
        OneOp::MaxAbs(op) => op.max_abs.is_none(),
        OneOp::Robust(op) => op.center.is_none() && op.scale.is_none() && op.scales.is_none(),
        OneOp::CountEncode(op) => op.values.is_none(),
        OneOp::TargetMean(op) => op.values.is_none(),
        _ => false,
    }
}

/// Sets the parameters that are absent and have a default.
pub fn write_defaults(op: &mut OneOp) {
    match op {
        OneOp::TargetMean(op) => { op.smoothing.get_or_insert(20.0); op.folds.get_or_insert(5); }
        OneOp::Tokenize(op) => { op.add_special_tokens.get_or_insert(true); }
        OneOp::DecodeImage(op) => { op.channels.get_or_insert(3); }
        _ => {}
    }
}

//! The ops of a plan and the steps that they compile to.
//!
//! One op per file, with its semantics, its errors, the reference function that it matches, and tests against that
//! reference. An op's `compile` checks its parameters and the domain of its input; its `apply` transforms a tile and
//! cannot fail; its `write` calls its device function, which is in `cuda/math.cu`.

pub(crate) mod abs;
pub(crate) mod as_of;
pub(crate) mod attention_mask;
pub(crate) mod box_cox;
pub(crate) mod bucketize;
pub(crate) mod bytes;
pub(crate) mod clip;
pub(crate) mod cross;
pub(crate) mod decimal;
pub(crate) mod encoding;
pub(crate) mod exact_decimal;
pub(crate) mod fill_null;
pub(crate) mod first_n;
pub(crate) mod group_scales;
pub(crate) mod hash;
pub(crate) mod hash_bucket;
pub(crate) mod list;
pub(crate) mod log1p;
pub(crate) mod logit;
pub(crate) mod lookup;
pub(crate) mod lookup_keys;
pub(crate) mod map_id;
pub(crate) mod max_abs;
pub(crate) mod min_max;
pub(crate) mod multi_hot;
pub(crate) mod nearest;
pub(crate) mod ngram;
pub(crate) mod number_op;
pub(crate) mod one_hot;
pub(crate) mod pad;
pub(crate) mod parameter;
pub(crate) mod positive_mod;
pub(crate) mod robust;
pub(crate) mod scale;
pub(crate) mod sigrid_hash;
pub(crate) mod sqrt;
pub(crate) mod standardize;
pub(crate) mod step;
pub(crate) mod vocab;
pub(crate) mod vocab_index;

use std::sync::Arc;

use crate::ops::{
    encoding::Encoding, fill_null::Fill, group_scales::GroupScales, lookup::LookupTable, pad::Side, vocab::VocabValues,
};

/// One op of a chain, with all learned parameters filled in.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Replaces nulls with a value. NaN is not null.
    FillNull(Fill),
    /// Limits values to the range from `min` to `max`; NaN stays NaN. One bound may be missing.
    Clip {
        /// Lower bound.
        min: Option<f64>,
        /// Upper bound.
        max: Option<f64>,
    },
    /// `clip` with integer bounds, which a double may not represent exactly.
    ClipWhole {
        /// Lower bound.
        min: Option<i128>,
        /// Upper bound.
        max: Option<i128>,
    },
    /// ln(1 + x).
    Log1p,
    /// (x − mean) / std; a std of 0 divides by 1.
    Standardize {
        /// The mean.
        mean: f64,
        /// The population standard deviation.
        std: f64,
    },
    /// (x − min) / (max − min); a range of 0 divides by 1.
    MinMax {
        /// The value that becomes 0.
        min: f64,
        /// The value that becomes 1.
        max: f64,
    },
    /// The count of boundaries ≤ x.
    Bucketize {
        /// The boundaries, in non-decreasing order.
        boundaries: Vec<f64>,
    },
    /// `bucketize` with integer boundaries, which a double may not represent exactly.
    BucketizeWhole {
        /// The boundaries, in non-decreasing order.
        boundaries: Vec<i128>,
    },
    /// The position of a value in a list, from 1; 0 for null and for values that are not in the list.
    Vocab {
        /// The list. Chains that share it share its index.
        values: Arc<VocabValues>,
        /// The number of hashed indices after the list for unseen values, in place of 0.
        oov_buckets: u32,
    },
    /// XXH3-64 of the value, modulo `buckets`.
    HashBucket {
        /// The number of buckets.
        buckets: u64,
        /// The seed of the hash.
        seed: u64,
    },
    /// Expands index i to `size` columns with a 1 in column i.
    OneHot {
        /// The number of columns; 0 for the number of indices of the preceding op.
        size: u32,
    },
    /// The square root.
    Sqrt,
    /// The absolute value.
    Abs,
    /// ln(x / (1 − x)).
    Logit {
        /// x is first clipped to [eps, 1 − eps].
        eps: Option<f64>,
    },
    /// (x^λ − 1) / λ, ln x for λ = 0.
    BoxCox {
        /// λ.
        lambda: f64,
    },
    /// x / `max_abs`.
    MaxAbs {
        /// The largest absolute value.
        max_abs: f64,
    },
    /// (x − center) / scale.
    Robust {
        /// The median.
        center: f64,
        /// The interquartile range.
        scale: f64,
    },
    /// A scaler with what it learned of each group of rows.
    ScaleGroups(Arc<GroupScales>),
    /// The hash of a tuple of the chain's value and other columns, modulo `buckets`.
    Cross {
        /// The other columns.
        columns: Vec<String>,
        /// The number of buckets.
        buckets: u64,
        /// The seed of the hash.
        seed: u64,
    },
    /// Expands a list of indices to `size` columns with a 1 in the column of each index.
    MultiHot {
        /// The number of columns; 0 for the number of indices of the preceding op.
        size: u32,
    },
    /// The first n elements of a list.
    FirstN {
        /// The number of elements.
        n: u32,
        /// The value that pads shorter lists, so that the result is n columns.
        value: Option<f64>,
    },
    /// The last n elements of a list.
    LastN {
        /// The number of elements.
        n: u32,
        /// The value that pads shorter lists at their start, so that the result is n columns.
        value: Option<f64>,
    },
    /// Expands a list to n columns.
    Pad {
        /// The number of elements.
        n: u32,
        /// The value that pads shorter lists.
        value: f64,
        /// Where lists are padded and cut.
        side: Side,
    },
    /// Expands a list of integers to n columns: 1 for each of its elements, and 0 where `Pad` pads.
    AttentionMask {
        /// The number of elements.
        n: u32,
        /// Where lists are padded and cut.
        side: Side,
    },
    /// Each byte of a value as a column.
    Bytes {
        /// The number of bytes of every value.
        n: u32,
    },
    /// A left join on a unique key.
    Lookup(Arc<LookupTable>),
    /// A value's learned number.
    Encode(Arc<Encoding>),
    /// The runs of n elements of a list, each as the hash of its tuple, modulo `buckets`.
    Ngram {
        /// The number of elements per run.
        n: u32,
        /// The number of buckets.
        buckets: u64,
        /// The seed of the hash.
        seed: u64,
    },
    /// TorchArrow's hash of an id.
    SigridHash {
        /// The initial value of the hash.
        salt: i64,
        /// The exclusive upper bound of the hash.
        max_value: i64,
    },
    /// Replaces `ids[i]` with `values[i]`.
    MapId {
        /// The ids, each once. An id that the column's type cannot hold matches no value.
        ids: Vec<i128>,
        /// One value per id.
        values: Vec<i64>,
        /// The value for all other ids; `None` for null.
        default: Option<i64>,
    },
    /// x modulo `modulus`, never negative.
    PositiveMod {
        /// The modulus.
        modulus: i64,
    },
}

impl Op {
    /// The shift and the divisor of `standardize`, `min_max` and `robust`; `None` for other ops, and if a parameter is not
    /// valid.
    pub fn shift_and_divisor(&self) -> Option<(f64, f64)> {
        let scale = match self {
            Self::Standardize { mean, std } => standardize::compile(*mean, *std),
            Self::MinMax { min, max } => min_max::compile(*min, *max),
            Self::Robust { center, scale } => robust::compile(*center, *scale),
            _ => return None,
        };
        scale.ok().map(|scale| (scale.shift, scale.divisor))
    }

    /// The op's name in a plan.
    pub fn name(&self) -> &'static str {
        match self {
            Self::FillNull(_) => "fill_null",
            Self::Clip { .. } | Self::ClipWhole { .. } => "clip",
            Self::Log1p => "log1p",
            Self::Standardize { .. } => "standardize",
            Self::MinMax { .. } => "min_max",
            Self::Bucketize { .. } | Self::BucketizeWhole { .. } => "bucketize",
            Self::Vocab { .. } => "vocab",
            Self::HashBucket { .. } => "hash_bucket",
            Self::OneHot { .. } => "one_hot",
            Self::Sqrt => "sqrt",
            Self::Abs => "abs",
            Self::Logit { .. } => "logit",
            Self::BoxCox { .. } => "box_cox",
            Self::MaxAbs { .. } => "max_abs",
            Self::Robust { .. } => "robust",
            Self::ScaleGroups(scales) => scales.op,
            Self::Cross { .. } => "cross",
            Self::MultiHot { .. } => "multi_hot",
            Self::FirstN { .. } => "first_n",
            Self::LastN { .. } => "last_n",
            Self::Pad { .. } => "pad",
            Self::AttentionMask { .. } => "attention_mask",
            Self::Bytes { .. } => "bytes",
            Self::Lookup(_) => "lookup",
            Self::Encode(encoding) => encoding.op,
            Self::Ngram { .. } => "ngram",
            Self::SigridHash { .. } => "sigrid_hash",
            Self::MapId { .. } => "map_id",
            Self::PositiveMod { .. } => "positive_mod",
        }
    }
}

//! One op of a chain as a plan gives it.

use std::sync::Arc;

use crate::ops::fill_null::Fill;
use crate::ops::lookup::LookupTable;
use crate::ops::vocab::VocabValues;

/// One op of a chain, with everything learned filled in.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A null becomes a value. NaN is not null.
    FillNull(Fill),
    /// Values below `min` become `min`, above `max` become `max`; NaN stays NaN. One bound may be missing.
    Clip {
        /// Lower bound.
        min: Option<f64>,
        /// Upper bound.
        max: Option<f64>,
    },
    /// The same with bounds that a double may not hold: integers.
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
        /// The population's deviation.
        std: f64,
    },
    /// (x − min) / (max − min); a range of 0 divides by 1.
    MinMax {
        /// What becomes 0.
        min: f64,
        /// What becomes 1.
        max: f64,
    },
    /// The count of boundaries ≤ x.
    Bucketize {
        /// The boundaries, in non-decreasing order.
        boundaries: Vec<f64>,
    },
    /// The same with boundaries that a double may not hold: integers.
    BucketizeWhole {
        /// The boundaries, in non-decreasing order.
        boundaries: Vec<i128>,
    },
    /// A value's place in a list, from 1; 0 for null and for values that are not in it.
    Vocab {
        /// The list. Chains that share it share its index.
        values: Arc<VocabValues>,
        /// Unseen values go to so many hashed indices behind the list, in place of 0.
        oov_buckets: u32,
    },
    /// XXH3-64 of the value, modulo `buckets`.
    HashBucket {
        /// How many buckets.
        buckets: u64,
        /// The hash's seed.
        seed: u64,
    },
    /// Index i becomes `size` columns with a 1 in column i.
    OneHot {
        /// How many columns; 0: as many as the op before has indices.
        size: u32,
    },
    /// The square root.
    Sqrt,
    /// The absolute value.
    Abs,
    /// ln(x / (1 − x)).
    Logit {
        /// x is clipped to [eps, 1 − eps] first.
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
        /// The distance between the quartiles.
        scale: f64,
    },
    /// The hash of a tuple of the chain's value and other columns, modulo `buckets`.
    Cross {
        /// The other columns.
        columns: Vec<String>,
        /// How many buckets.
        buckets: u64,
        /// The hash's seed.
        seed: u64,
    },
    /// A list of indices becomes `size` columns with a 1 in the column of each.
    MultiHot {
        /// How many columns; 0: as many as the op before has indices.
        size: u32,
    },
    /// The first n elements of a list.
    FirstN {
        /// How many.
        n: u32,
        /// What fills shorter lists up, so that there are n columns.
        value: Option<f64>,
    },
    /// A list becomes n columns.
    Pad {
        /// How many.
        n: u32,
        /// What fills shorter lists up.
        value: f64,
    },
    /// A left join on a unique key.
    Lookup(Arc<LookupTable>),
    /// The runs of n elements of a list, each as the hash of its tuple, modulo `buckets`.
    Ngram {
        /// Elements of a run.
        n: u32,
        /// How many buckets.
        buckets: u64,
        /// The hash's seed.
        seed: u64,
    },
    /// TorchArrow's hash of an id.
    SigridHash {
        /// What the hash is begun with.
        salt: i64,
        /// The hash is below it.
        max_value: i64,
    },
    /// `ids[i]` becomes `values[i]`.
    MapId {
        /// The ids, each once. One that the column's type cannot hold is none of its values.
        ids: Vec<i128>,
        /// As many values.
        values: Vec<i64>,
        /// What another id becomes; null if there is none.
        default: Option<i64>,
    },
    /// x modulo `modulus`, never below 0.
    PositiveMod {
        /// The modulus.
        modulus: i64,
    },
}

impl Op {
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
            Self::Cross { .. } => "cross",
            Self::MultiHot { .. } => "multi_hot",
            Self::FirstN { .. } => "first_n",
            Self::Pad { .. } => "pad",
            Self::Lookup(_) => "lookup",
            Self::Ngram { .. } => "ngram",
            Self::SigridHash { .. } => "sigrid_hash",
            Self::MapId { .. } => "map_id",
            Self::PositiveMod { .. } => "positive_mod",
        }
    }
}

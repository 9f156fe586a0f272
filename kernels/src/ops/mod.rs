//! The ops: what a plan may say of a column, and the steps it compiles to.
//!
//! One op a file, each with its meaning, its errors, the function whose meaning it matches, and its oracle tests. An op's
//! `compile` looks at its parameters and at the domain that reaches it; its `apply` runs over a tile and cannot fail.

pub(crate) mod abs;
pub(crate) mod box_cox;
pub(crate) mod bucketize;
pub(crate) mod clip;
pub(crate) mod cross;
pub(crate) mod decimal;
pub(crate) mod exact_decimal;
pub(crate) mod fill_null;
pub(crate) mod first_n;
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
pub(crate) mod ngram;
pub(crate) mod one_hot;
pub(crate) mod pad;
pub(crate) mod positive_mod;
pub(crate) mod robust;
pub(crate) mod scale;
pub(crate) mod sigrid_hash;
pub(crate) mod sqrt;
pub(crate) mod standardize;
pub(crate) mod vocab;
pub(crate) mod vocab_index;

use std::sync::Arc;

pub use exact_decimal::ExactDecimal;
pub use lookup::LookupTable;

use crate::error::OpProblem;
use crate::vector::tile::Tile;

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

/// What a null becomes.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// A number.
    Number(f64),
    /// An integer that a double may not hold.
    Integer(i64),
    /// One that an i64 may not hold either.
    Unsigned(u64),
    /// A decimal that a double may not hold.
    Decimal(ExactDecimal),
    /// Text, for columns of text.
    Text(String),
}

/// A vocabulary in index order, in the type of the column's values. An empty list of any type fits any column.
#[derive(Clone, Debug, PartialEq)]
pub enum VocabValues {
    /// For text.
    Strings(Vec<String>),
    /// For integers up to 64 bits, Boolean and times.
    Integers(Vec<i64>),
    /// For `UInt64`.
    Unsigned(Vec<u64>),
    /// For floating-point numbers, and for decimals as the doubles that they are nearest to.
    Floats(Vec<f64>),
    /// For decimals with all their digits, as texts ([`ExactDecimal`]).
    Decimals(Vec<String>),
}

impl Fill {
    /// The number as a double; NaN for text, which is none.
    pub(crate) fn double(&self) -> f64 {
        match self {
            Self::Number(value) => *value,
            Self::Integer(value) => *value as f64,
            Self::Unsigned(value) => *value as f64,
            Self::Decimal(value) => value.double(),
            Self::Text(_) => f64::NAN,
        }
    }
}

/// A compiled op over numbers.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    FillNull(fill_null::FillNull),
    Clip(clip::Clip),
    Log1p,
    Sqrt,
    Abs,
    Logit(logit::Logit),
    BoxCox(box_cox::BoxCox),
    Scale(scale::Scale),
    Bucketize(bucketize::Bucketize),
    Vocab(vocab::Vocab),
    HashBucket(hash_bucket::HashBucket),
    SigridHash(sigrid_hash::SigridHash),
    MapId(map_id::MapId),
    PositiveMod(positive_mod::PositiveMod),
    /// The hash that is part of a tuple's.
    Component,
    /// Integers go to f64.
    ToFloat,
}

/// A compiled op that turns text or bytes into integers.
#[derive(Clone, Debug)]
pub(crate) enum Encoder {
    Vocab(vocab::Vocab),
    HashBucket(hash_bucket::HashBucket),
    Component,
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

impl Step {
    pub(crate) fn apply(&self, tile: &mut Tile) {
        match self {
            Self::FillNull(step) => step.apply(tile),
            Self::Clip(step) => step.apply(tile),
            Self::Log1p => log1p::apply(tile),
            Self::Sqrt => sqrt::apply(tile),
            Self::Abs => abs::apply(tile),
            Self::Logit(step) => step.apply(tile),
            Self::BoxCox(step) => step.apply(tile),
            Self::Scale(step) => step.apply(tile),
            Self::Bucketize(step) => step.apply(tile),
            Self::Vocab(step) => step.apply(tile),
            Self::HashBucket(step) => step.apply(tile),
            Self::SigridHash(step) => step.apply(tile),
            Self::MapId(step) => step.apply(tile),
            Self::PositiveMod(step) => step.apply(tile),
            Self::Component => cross::components(tile),
            Self::ToFloat => tile.make_floats(),
        }
    }
}

impl Encoder {
    /// The seed of the hash that it begins with.
    pub(crate) fn seed(&self) -> u64 {
        match self {
            Self::Vocab(_) | Self::Component => 0,
            Self::HashBucket(hash) => hash.seed(),
        }
    }

    /// The integer of a value's bytes.
    pub(crate) fn code(&self, bytes: &[u8]) -> i64 {
        match self {
            Self::Vocab(vocab) => vocab.bytes(bytes),
            Self::HashBucket(hash) => hash.bytes(bytes),
            Self::Component => cross::component(bytes),
        }
    }
}

/// A finite parameter, or the sentence that says it is not.
pub(crate) fn finite(name: &str, value: f64) -> Result<f64, OpProblem> {
    if value.is_finite() {
        Ok(value)
    } else {
        Err(OpProblem::Parameter(format!("{name} must be a finite number, not {value}")))
    }
}

/// The integer that a double is, if it is one and an i64 holds it.
pub(crate) fn exact_i64(value: f64) -> Option<i64> {
    // 2^63 is the first double past the largest i64; a double that large is never converted.
    ((-TWO_63..TWO_63).contains(&value) && value.fract() == 0.0).then_some(value as i64)
}

/// The unsigned integer that a double is, if it is one and a u64 holds it.
pub(crate) fn exact_u64(value: f64) -> Option<u64> {
    ((0.0..2.0 * TWO_63).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

/// 2^63.
pub(crate) const TWO_63: f64 = 9_223_372_036_854_775_808.0;

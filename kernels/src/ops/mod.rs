//! The ops of a plan and the steps that they compile to.
//!
//! One op per file, with its semantics, its errors, the reference function that it matches, and tests against that
//! reference. An op's `compile` checks its parameters and the domain of its input; its `apply` transforms a tile and
//! cannot fail.

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
pub(crate) mod one_hot;
pub(crate) mod op;
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

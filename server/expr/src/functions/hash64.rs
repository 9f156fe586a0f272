//! `hash64`: the kernels' XXH3-64 of a value, for splits and samples. `hash64(x, seed) % n` is the bucket that
//! `hash_bucket` gives for `n` buckets.
//!
//! It is never null: with SQL's usual null, a row without a value would pass no filter of a split, such as
//! `hash64(x) % 10 = 0` and `hash64(x) % 10 <> 0`, and would be lost silently. The hash of a null is that of an empty string.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{DataFusionError, ScalarValue, exec_err, plan_err};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

const NAME: &str = "hash64";

/// `hash64(value [, seed])`.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Hash64 { signature: Signature::user_defined(Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Hash64 {
    signature: Signature,
}

// === impl Hash64 ===

impl ScalarUDFImpl for Hash64 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Values are hashed as stored; the seed keeps its integer type.
    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        let [value, rest @ ..] = arg_types else { return plan_err!("hash64 expects a value and optionally a seed") };
        if rest.len() > 1 {
            return plan_err!("hash64 expects a value and optionally a seed, not {} arguments", arg_types.len());
        }
        if !forebay_kernels::is_hashable(value) {
            return plan_err!("hash64 cannot hash {value}: hash a number, boolean, date, time, string or binary value");
        }
        if rest.iter().any(|seed| !seed.is_integer()) {
            return not_a_seed();
        }
        Ok(arg_types.to_vec())
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(DataType::UInt64)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef, DataFusionError> {
        if args.scalar_arguments.get(1).is_some_and(|seed| seed.and_then(seed_of).is_none()) {
            return not_a_seed();
        }
        Ok(Arc::new(Field::new(NAME, DataType::UInt64, false)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let seed = match args.args.get(1) {
            None => Some(0),
            Some(ColumnarValue::Scalar(seed)) => seed_of(seed),
            Some(ColumnarValue::Array(_)) => None,
        };
        let Some(seed) = seed else { return not_a_seed() };
        let hashed = match args.args.first() {
            Some(ColumnarValue::Array(values)) => {
                forebay_kernels::hash64(values.as_ref(), seed).map(|hashes| ColumnarValue::Array(Arc::new(hashes)))
            }
            Some(ColumnarValue::Scalar(value)) => forebay_kernels::hash64(value.to_array()?.as_ref(), seed)
                .map(|hashes| ColumnarValue::Scalar(ScalarValue::UInt64(Some(hashes.value(0))))),
            None => None,
        };
        hashed.map_or_else(|| exec_err!("hash64 cannot hash this value"), Ok)
    }
}

fn seed_of(seed: &ScalarValue) -> Option<u64> {
    match seed {
        ScalarValue::UInt64(seed) => *seed,
        ScalarValue::Int64(seed) => (*seed)?.try_into().ok(),
        ScalarValue::UInt32(seed) => (*seed).map(u64::from),
        ScalarValue::Int32(seed) => (*seed)?.try_into().ok(),
        _ => None,
    }
}

fn not_a_seed<T>() -> Result<T, DataFusionError> {
    plan_err!("the seed of hash64 must be an integer literal from 0 to {}", u64::MAX)
}

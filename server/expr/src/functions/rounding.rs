//! `round` and `trunc` of floats to a number of decimal places, which may be more than a float has.
//!
//! As in `DuckDB`, a float is multiplied by a power of ten or, for a negative number of places, divided by it. A product that
//! overflows means that the float has no digits so far after the point, so that it is returned as it is.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, Int64Array},
    compute::{cast, kernels::arity::binary},
    datatypes::{DataType, FieldRef, Float64Type, Int64Type},
};
use datafusion_common::{DataFusionError, ScalarValue};
use datafusion_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Rounding {
    /// The function for integers and decimals.
    exact: Arc<ScalarUDF>,
    is_round: bool,
}

/// `round(x [, digits])`.
pub(super) fn round() -> Arc<ScalarUDF> {
    of(datafusion_functions::math::round(), true)
}

/// `trunc(x [, digits])`.
pub(super) fn trunc() -> Arc<ScalarUDF> {
    of(datafusion_functions::math::trunc(), false)
}

fn of(exact: Arc<ScalarUDF>, is_round: bool) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Rounding { exact, is_round }))
}

// === impl Rounding ===

impl Rounding {
    fn rounded(&self, value: f64, digits: i64) -> f64 {
        if !value.is_finite() {
            return value;
        }
        let power = 10_f64.powi(digits.unsigned_abs().min(1000) as i32);
        let whole = |value: f64| if self.is_round { value.round() } else { value.trunc() };
        if digits < 0 {
            // Beyond the largest power of ten, every float is nearer to 0.
            return if power.is_finite() { whole(value / power) * power } else { value * 0.0 };
        }
        let rounded = whole(value * power) / power;
        if rounded.is_finite() { rounded } else { value }
    }
}

impl ScalarUDFImpl for Rounding {
    fn name(&self) -> &str {
        self.exact.name()
    }

    fn signature(&self) -> &Signature {
        self.exact.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        self.exact.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef, DataFusionError> {
        self.exact.return_field_from_args(args)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let to = args.return_field.data_type().clone();
        if !args.args.first().is_some_and(|value| value.data_type().is_floating()) || !to.is_floating() {
            return self.exact.invoke_with_args(args);
        }
        let has_one_row = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let values = cast(&arrays[0], &DataType::Float64)?;
        let digits = match arrays.get(1) {
            Some(digits) => cast(digits, &DataType::Int64)?.as_primitive::<Int64Type>().clone(),
            None => Int64Array::from(vec![0; values.len()]),
        };
        let values = values.as_primitive::<Float64Type>();
        let rounded: Float64Array = binary(values, &digits, |value, digits| self.rounded(value, digits))?;
        let rounded: ArrayRef = cast(&rounded, &to)?;
        Ok(if has_one_row {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&rounded, 0)?)
        } else {
            ColumnarValue::Array(rounded)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_keep_the_digits_that_they_have() {
        let of = |is_round| Rounding { exact: datafusion_functions::math::round(), is_round };
        for (value, digits, rounded, truncated) in [
            (1.25, 1, 1.3, 1.2),
            (-2.5, 0, -3.0, -2.0),
            (1.25, 400, 1.25, 1.25),
            (1e300, 10, 1e300, 1e300),
            (12_345.0, -2, 12_300.0, 12_300.0),
            (12_350.0, -2, 12_400.0, 12_300.0),
            (12_345.0, -400, 0.0, 0.0),
            (f64::INFINITY, 2, f64::INFINITY, f64::INFINITY),
            (f64::INFINITY, -400, f64::INFINITY, f64::INFINITY),
            (0.0, i64::MAX, 0.0, 0.0),
        ] {
            let found = [true, false].map(|is_round| of(is_round).rounded(value, digits));
            assert!(
                found.iter().zip([rounded, truncated]).all(|(found, want)| found.total_cmp(&want).is_eq()),
                "{value}, {digits}: {found:?}"
            );
        }
        assert!(of(true).rounded(f64::NAN, 2).is_nan());
    }
}

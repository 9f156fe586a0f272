//! `ceil` and `floor` of decimals: decimals without fraction, with one more digit before the point.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray},
    datatypes::{ArrowNativeType, ArrowNativeTypeOp, DataType, Decimal128Type, Decimal256Type, DecimalType},
};
use datafusion_common::{DataFusionError, ScalarValue, plan_err};
use datafusion_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, expr::ScalarFunction,
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole {
    is_ceil: bool,
    signature: Signature,
}

/// A function that rounds decimals up or down.
pub(crate) fn function(is_ceil: bool) -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Whole { is_ceil, signature }))
}

/// A decimal expression rounded up or down.
pub(super) fn call(is_ceil: bool, decimal: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction { func: function(is_ceil), args: vec![decimal] })
}

// === impl Whole ===

impl Whole {
    fn rounded<T: DecimalType>(&self, values: &ArrayRef, scale: i8, to: &DataType) -> ArrayRef {
        let values = values.as_primitive::<T>();
        let ten = <T as ArrowPrimitiveType>::Native::usize_as(10);
        let Ok(unit) = ten.pow_checked(u32::from(scale.unsigned_abs())) else {
            // Only zero has more places than a decimal has digits.
            return Arc::new(values.clone().with_data_type(to.clone()));
        };
        let round = |value: T::Native| {
            let (whole, rest) = (value.div_wrapping(unit), value.mod_wrapping(unit));
            match rest.compare(T::Native::ZERO) {
                std::cmp::Ordering::Greater if self.is_ceil => whole.add_wrapping(T::Native::ONE),
                std::cmp::Ordering::Less if !self.is_ceil => whole.sub_wrapping(T::Native::ONE),
                _ => whole,
            }
        };
        let rounded: PrimitiveArray<T> = values.unary(round);
        Arc::new(rounded.with_data_type(to.clone()))
    }

    fn of(&self, values: &ArrayRef, to: &DataType) -> Result<ArrayRef, DataFusionError> {
        match values.data_type() {
            // Already whole.
            data_type if data_type == to => Ok(Arc::clone(values)),
            DataType::Decimal128(_, scale) => Ok(self.rounded::<Decimal128Type>(values, *scale, to)),
            DataType::Decimal256(_, scale) => Ok(self.rounded::<Decimal256Type>(values, *scale, to)),
            other => plan_err!("expected decimals, not {other}"),
        }
    }
}

impl ScalarUDFImpl for Whole {
    fn name(&self) -> &'static str {
        if self.is_ceil { "ceil" } else { "floor" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        // A digit more for 9.9, which becomes 10.
        let digits = |precision: u8, scale: i8| (precision.saturating_sub(scale.unsigned_abs()) + 1).max(1);
        match arg_types {
            [whole @ (DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale))] if *scale <= 0 => {
                Ok(whole.clone())
            }
            [DataType::Decimal128(precision, scale)] => Ok(DataType::Decimal128(digits(*precision, *scale), 0)),
            [DataType::Decimal256(precision, scale)] => Ok(DataType::Decimal256(digits(*precision, *scale), 0)),
            _ => plan_err!("{} expects a number", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let to = args.return_field.data_type();
        match args.args.as_slice() {
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(self.of(values, to)?)),
            [ColumnarValue::Scalar(value)] => {
                let whole = self.of(&value.to_array()?, to)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&whole, 0)?))
            }
            _ => plan_err!("{} takes one argument", self.name()),
        }
    }
}

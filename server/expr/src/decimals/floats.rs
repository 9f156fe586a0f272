//! The conversion of decimals to the nearest float, for casts. SQL cannot call it by name.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, new_null_array},
    compute::cast,
    datatypes::DataType,
};
use datafusion_common::{DataFusionError, ScalarValue, plan_err};
use datafusion_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, expr::ScalarFunction,
};
use forebay_kernels::{float32_of_decimals, float64_of_decimals};

#[derive(Debug, PartialEq, Eq, Hash)]
struct NearestFloat {
    to: DataType,
    signature: Signature,
}

/// The nearest float of a type for each decimal.
pub(crate) fn function(to: DataType) -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(NearestFloat { to, signature }))
}

/// The nearest float of a type for each value of a decimal expression.
pub(super) fn call(to: DataType, decimal: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction { func: function(to), args: vec![decimal] })
}

// === impl NearestFloat ===

impl ScalarUDFImpl for NearestFloat {
    fn name(&self) -> &'static str {
        "nearest_float"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(self.to.clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        match args.args.as_slice() {
            [ColumnarValue::Array(decimals)] => Ok(ColumnarValue::Array(nearest(decimals, &self.to)?)),
            [ColumnarValue::Scalar(decimal)] => {
                let floats = nearest(&decimal.to_array()?, &self.to)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&floats, 0)?))
            }
            _ => plan_err!("a conversion takes one value"),
        }
    }
}

fn nearest(decimals: &ArrayRef, to: &DataType) -> Result<ArrayRef, DataFusionError> {
    if decimals.data_type().is_null() {
        return Ok(new_null_array(to, decimals.len()));
    }
    let floats: Option<ArrayRef> = match to {
        DataType::Float64 => float64_of_decimals(decimals).map(|floats| Arc::new(floats) as _),
        DataType::Float32 => float32_of_decimals(decimals).map(|floats| Arc::new(floats) as _),
        // Half a float has too few digits for two roundings to differ often; SQL has no such type.
        _ => float32_of_decimals(decimals).map(|floats| cast(&floats, to)).transpose()?,
    };
    floats.map_or_else(|| plan_err!("expected decimals, not {}", decimals.data_type()), Ok)
}

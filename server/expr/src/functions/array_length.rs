//! `array_length` and its alias `size`: the number of elements of a list, 0 of an empty one, null of a null.

use std::sync::Arc;

use arrow::{
    compute::{cast, kernels::length::length},
    datatypes::DataType,
};
use datafusion_common::{DataFusionError, ScalarValue, plan_err};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// `array_length(list)`.
pub(super) fn function() -> Arc<ScalarUDF> {
    let (signature, aliases) = (Signature::user_defined(Volatility::Immutable), vec!["size".to_owned()]);
    Arc::new(ScalarUDF::new_from_impl(ArrayLength { signature, aliases }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayLength {
    signature: Signature,
    aliases: Vec<String>,
}

// === impl ArrayLength ===

impl ScalarUDFImpl for ArrayLength {
    fn name(&self) -> &'static str {
        "array_length"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        match arg_types {
            [DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Null] => {
                Ok(arg_types.to_vec())
            }
            [other] => plan_err!("array_length expects a list, not {other}: length() is for text"),
            _ => plan_err!("array_length expects one argument, a list"),
        }
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let Some(list) = args.args.first() else { return plan_err!("array_length expects one argument, a list") };
        if list.data_type().is_null() {
            return Ok(ColumnarValue::Scalar(ScalarValue::Int64(None)));
        }
        let lengths = match list {
            ColumnarValue::Array(lists) => length(lists.as_ref())?,
            ColumnarValue::Scalar(list) => length(list.to_array()?.as_ref())?,
        };
        let lengths = cast(&lengths, &DataType::Int64)?;
        Ok(match list {
            ColumnarValue::Array(_) => ColumnarValue::Array(lengths),
            ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&lengths, 0)?),
        })
    }
}

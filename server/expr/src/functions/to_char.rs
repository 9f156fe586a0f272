//! `to_char` of timestamps of any unit and zone. DataFusion's version converts those with a zone to nanoseconds, which
//! end in 2262.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::{DataFusionError, plan_err};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion_functions::datetime;

use super::instant;

/// `to_char(date, time, timestamp or duration, format)`.
pub(super) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(ToChar { signature, inner: datetime::to_char() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToChar {
    signature: Signature,
    inner: Arc<ScalarUDF>,
}

// === impl ToChar ===

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &'static str {
        "to_char"
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        let [source, format] = arg_types else { return plan_err!("to_char expects a date or time and a format") };
        if !format.is_string() && !format.is_null() {
            return plan_err!("the format of to_char must be a text, not {format}");
        }
        let source = match instant::read_as(source) {
            DataType::Null => instant::READ_AS,
            source if source.is_temporal() && !matches!(source, DataType::Interval(_)) => source,
            other => return plan_err!("to_char expects a date, a time, a timestamp or a duration, not {other}"),
        };
        Ok(vec![source, DataType::Utf8])
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        self.inner.return_type(arg_types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        self.inner.invoke_with_args(args)
    }
}

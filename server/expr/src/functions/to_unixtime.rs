//! `to_unixtime` of texts of any year. DataFusion's version counts nanoseconds, which end in 2262.

use std::sync::Arc;

use arrow::{array::Int64Array, datatypes::DataType};
use datafusion_common::{DataFusionError, ScalarValue};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};
use datafusion_functions::datetime;

use super::to_timestamp;

const NANOSECONDS_PER_SECOND: i128 = 1_000_000_000;

/// `to_unixtime(x [, format, …])`.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(ToUnixtime { inner: datetime::to_unixtime() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToUnixtime {
    inner: Arc<ScalarUDF>,
}

// === impl ToUnixtime ===

impl ScalarUDFImpl for ToUnixtime {
    fn name(&self) -> &'static str {
        "to_unixtime"
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        self.inner.return_type(arg_types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let (source, formats) = match args.args.split_first() {
            Some((source, formats)) if source.data_type().is_string() => (source, formats),
            _ => return self.inner.invoke_with_args(args),
        };
        let is_scalar = args.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let formats = to_timestamp::formats_of(formats, rows)?;
        let read = to_timestamp::read_all(self.name(), &source.to_array(rows)?, &formats)?;
        let seconds = read.into_iter().map(|value| i64::try_from(value? / NANOSECONDS_PER_SECOND).ok());
        let seconds: Int64Array = seconds.collect();
        if is_scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&seconds, 0)?));
        }
        Ok(ColumnarValue::Array(Arc::new(seconds)))
    }
}

//! A cast to a timestamp with a time zone, from dates, texts and timestamps without a zone. Arrow's cast fails for local
//! times that the zone has never or twice.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, timezone::Tz},
    compute::cast,
    datatypes::{DataType, TimeUnit},
};
use datafusion_common::{DataFusionError, ScalarValue, exec_datafusion_err, exec_err};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::{instant, local};

/// A cast to a timestamp of this unit and zone; `is_try` if values that cannot be cast become null.
pub(crate) fn function(unit: TimeUnit, zone: &Arc<str>, is_try: bool) -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Zoned { signature, unit, zone: Arc::clone(zone), is_try }))
}

/// SQL cannot call it by name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Zoned {
    signature: Signature,
    unit: TimeUnit,
    zone: Arc<str>,
    is_try: bool,
}

// === impl Zoned ===

impl ScalarUDFImpl for Zoned {
    fn name(&self) -> &'static str {
        "zoned"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(DataType::Timestamp(self.unit, Some(Arc::clone(&self.zone))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        match args.args.as_slice() {
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(self.cast(values)?)),
            [ColumnarValue::Scalar(value)] => {
                let array = self.cast(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
            _ => exec_err!("a cast takes one argument"),
        }
    }
}

impl Zoned {
    fn cast(&self, values: &ArrayRef) -> Result<ArrayRef, DataFusionError> {
        let zone: Tz = self.zone.parse()?;
        let target = DataType::Timestamp(self.unit, Some(Arc::clone(&self.zone)));
        let step = instant::nanoseconds(self.unit);
        let fits = |value: i128| i64::try_from(value.div_euclid(step)).is_ok();
        let placed = |value: Option<i128>, shown: &dyn Fn() -> String| match value.filter(|value| fits(*value)) {
            Some(value) => Ok(Some(value)),
            None if self.is_try => Ok(None),
            None => Err(exec_datafusion_err!("cannot cast {} to {target}", shown())),
        };
        if values.data_type().is_string() {
            let texts = cast(values, &DataType::Utf8)?;
            let texts = texts.as_string::<i32>();
            let read = |text: Option<&str>| {
                text.map_or(Ok(None), |text| placed(local::read(text, zone), &|| format!("'{text}'")))
            };
            return instant::array(texts.iter().map(read), &target);
        }
        let values = instant::all(values)?;
        let read = |value: Option<i128>| {
            value.map_or(Ok(None), |value| placed(local::of_local(value, zone), &|| format!("{value} ns since 1970")))
        };
        instant::array(values.into_iter().map(read), &target)
    }
}

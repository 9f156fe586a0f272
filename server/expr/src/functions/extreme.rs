//! `greatest` and `least` of intervals, by their lengths. Arrow's kernels compare months, then days, then nanoseconds.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef},
    compute::{cast, interleave},
    datatypes::{DataType, IntervalUnit},
};
use datafusion_common::DataFusionError;
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::span::{self, Span};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// `greatest`, or `least`, of intervals and durations.
pub(crate) fn function(is_greatest: bool) -> Arc<ScalarUDF> {
    let signature = Signature::variadic_any(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Extreme { signature, is_greatest }))
}

/// SQL cannot call it by name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    signature: Signature,
    is_greatest: bool,
}

// === impl Extreme ===

impl ScalarUDFImpl for Extreme {
    fn name(&self) -> &'static str {
        if self.is_greatest { "greatest_interval" } else { "least_interval" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(INTERVAL)
    }

    /// Nulls are ignored; of equal lengths, the first is the result.
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let arrays = args.args.iter().map(|argument| Ok(cast(&argument.to_array(args.number_rows)?, &INTERVAL)?));
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_, DataFusionError>>()?;
        let spans: Vec<Vec<Option<Span>>> = arrays.iter().map(span::all).collect::<Result<_, _>>()?;
        let chosen = |row: usize| {
            let mut best: Option<(usize, i128)> = None;
            for (argument, spans) in spans.iter().enumerate() {
                let Some(length) = spans[row].map(Span::length) else { continue };
                let is_better = |best: i128| if self.is_greatest { length > best } else { length < best };
                if best.is_none_or(|(_, best)| is_better(best)) {
                    best = Some((argument, length));
                }
            }
            (best.map_or(0, |(argument, _)| argument), row)
        };
        let chosen: Vec<(usize, usize)> = (0..args.number_rows).map(chosen).collect();
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(interleave(&arrays, &chosen)?))
    }
}

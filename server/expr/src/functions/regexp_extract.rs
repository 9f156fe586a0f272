//! `regexp_extract`, as in Spark: the text of a group of the first match, by default of group 1; group 0 is the whole
//! match. The result is an empty text where nothing matches, and null where the text is null.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, GenericStringArray, OffsetSizeTrait},
    datatypes::DataType,
};
use datafusion_common::{DataFusionError, ScalarValue, exec_datafusion_err, exec_err, plan_err};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use regex::Regex;

/// `regexp_extract(text, pattern [, group])`. The pattern is a literal, whose cost is checked before.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(RegexpExtract { signature: Signature::user_defined(Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RegexpExtract {
    signature: Signature,
}

// === impl RegexpExtract ===

impl ScalarUDFImpl for RegexpExtract {
    fn name(&self) -> &'static str {
        "regexp_extract"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        let ([text, _] | [text, _, _]) = arg_types else {
            return plan_err!("regexp_extract expects a text, a pattern and optionally the number of a group");
        };
        let mut types = vec![text_type(text)?, DataType::Utf8];
        if arg_types.len() == 3 {
            types.push(DataType::Int64);
        }
        Ok(types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        let Some(text) = arg_types.first() else { return plan_err!("regexp_extract expects a text and a pattern") };
        text_type(text)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let [text, ColumnarValue::Scalar(pattern), rest @ ..] = args.args.as_slice() else {
            return exec_err!("the pattern of regexp_extract must be a string literal");
        };
        let group = match rest.first() {
            None => 1,
            Some(ColumnarValue::Scalar(ScalarValue::Int64(Some(group)))) => {
                usize::try_from(*group).unwrap_or(usize::MAX)
            }
            Some(_) => return exec_err!("the group of regexp_extract must be an integer literal"),
        };
        let Some(pattern) = pattern.try_as_str().flatten() else {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(args.return_field.data_type())?));
        };
        let regex = Regex::new(pattern)
            .map_err(|error| exec_datafusion_err!("the pattern '{pattern}' of regexp_extract is invalid: {error}"))?;
        let groups = regex.captures_len() - 1;
        if group > groups {
            return exec_err!(
                "the pattern '{pattern}' of regexp_extract has {groups} groups, not {group}: write (…) around the \
                 part to extract, or take group 0, the whole match"
            );
        }
        match text {
            ColumnarValue::Array(texts) => Ok(ColumnarValue::Array(extracted(texts, &regex, group))),
            ColumnarValue::Scalar(text) => {
                let extracted = extracted(&text.to_array()?, &regex, group);
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&extracted, 0)?))
            }
        }
    }
}

fn text_type(data_type: &DataType) -> Result<DataType, DataFusionError> {
    match data_type {
        DataType::Utf8 | DataType::Utf8View | DataType::Null => Ok(DataType::Utf8),
        DataType::LargeUtf8 => Ok(DataType::LargeUtf8),
        DataType::Dictionary(_, values) => text_type(values),
        other => plan_err!("regexp_extract expects a text, not {other}"),
    }
}

fn extracted(texts: &ArrayRef, regex: &Regex, group: usize) -> ArrayRef {
    fn of<O: OffsetSizeTrait>(texts: &ArrayRef, regex: &Regex, group: usize) -> ArrayRef {
        let part = |text| regex.captures(text).and_then(|found| found.get(group)).map_or("", |part| part.as_str());
        let parts = texts.as_string::<O>().iter().map(|text| text.map(part));
        Arc::new(parts.collect::<GenericStringArray<O>>())
    }
    match texts.data_type() {
        DataType::LargeUtf8 => of::<i64>(texts, regex, group),
        _ => of::<i32>(texts, regex, group),
    }
}

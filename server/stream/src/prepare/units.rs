//! Time units of a plan's columns.
//!
//! A mean, bound or vocabulary in microseconds is wrong for milliseconds, so a fit writes the units into the plan, and
//! streams and exchanges reject columns in other units. Units are those of derived columns, too, whose expressions an
//! edited plan may change; the types of stored columns are in `drift`.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Schema, TimeUnit};
use forebay_proto::v1::{self, op::Op as OpMessage};

use crate::error::StreamError;

/// Writes the units of the columns that a plan computes from into the plan.
pub(crate) fn write(plan: &mut v1::Plan, schema: &Schema) {
    let mut units = BTreeMap::new();
    let computed = plan.outputs.iter().filter(|output| output.dtype() != v1::DType::AsStored);
    for part in computed.flat_map(|output| &output.parts) {
        let crossed = part.ops.iter().filter_map(|op| match &op.op {
            Some(OpMessage::Cross(cross)) => Some(&cross.columns),
            Some(OpMessage::Udf(udf)) => Some(&udf.columns),
            _ => None,
        });
        for column in part.columns.iter().chain(crossed.flatten()) {
            let found = schema.field_with_name(column).ok().and_then(|field| unit(field.data_type()));
            if let Some(unit) = found {
                units.insert(column.clone(), unit);
            }
        }
    }
    plan.units = units.into_iter().map(|(column, unit)| v1::Unit { column, unit }).collect();
}

/// Rejects columns in other units. A missing column is reported where it is read.
pub(crate) fn check(units: &[v1::Unit], schema: &Schema) -> Result<(), StreamError> {
    for v1::Unit { column, unit: expected } in units {
        let Ok(field) = schema.field_with_name(column) else { continue };
        if unit(field.data_type()).as_ref() != Some(expected) {
            let found = unit(field.data_type()).unwrap_or_else(|| field.data_type().to_string());
            return Err(StreamError::InputDrift { column: column.clone(), expected: expected.clone(), found });
        }
    }
    Ok(())
}

/// The unit of a type's values or list elements; none for types other than dates and times.
///
/// Spelled as in pyarrow; the spelling is part of a plan's id. Time zones are left out: they do not change an instant.
fn unit(data_type: &DataType) -> Option<String> {
    let name = |unit: &TimeUnit| match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    };
    Some(match data_type {
        DataType::Dictionary(_, values) => unit(values)?,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => unit(item.data_type())?,
        DataType::Date32 => "date32[day]".to_owned(),
        DataType::Date64 => "date64[ms]".to_owned(),
        DataType::Timestamp(unit, None) => format!("timestamp[{}]", name(unit)),
        DataType::Timestamp(unit, Some(_)) => format!("timestamp[{}, tz]", name(unit)),
        DataType::Time32(unit) => format!("time32[{}]", name(unit)),
        DataType::Time64(unit) => format!("time64[{}]", name(unit)),
        DataType::Duration(unit) => format!("duration[{}]", name(unit)),
        _ => return None,
    })
}

//! Converts Parquet's 12-byte intervals to Arrow's months, days and nanoseconds, at any nesting level.
//!
//! The decoder supports only months, or only days and milliseconds, and drops the other parts.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayData, ArrayRef, FixedSizeBinaryArray, IntervalMonthDayNanoArray, make_array},
    datatypes::{DataType, IntervalMonthDayNano, IntervalUnit},
};

/// Months, days and milliseconds, 32 bits each, little-endian.
const INTERVAL_BYTES: i32 = 12;

const NANOSECONDS_PER_MILLISECOND: i64 = 1_000_000;

/// Signedness of the parts of a file's intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intervals {
    /// As Parquet specifies.
    Unsigned,
    /// As Arrow's Rust library writes them.
    Signed,
}

impl Intervals {
    /// Converts a decoded column to the type in the schema.
    pub(super) fn restored(self, decoded: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, String> {
        if decoded.data_type() == wanted || !has_interval(wanted) {
            return Ok(Arc::clone(decoded));
        }
        self.data(&decoded.to_data(), wanted).map(make_array)
    }

    fn data(self, decoded: &ArrayData, wanted: &DataType) -> Result<ArrayData, String> {
        if decoded.data_type() == wanted {
            return Ok(decoded.clone());
        }
        if is_interval(wanted) {
            return self.leaf(decoded);
        }
        let children = decoded.child_data().iter().zip(children(wanted));
        let children: Result<Vec<ArrayData>, String> =
            children.map(|(child, wanted)| self.data(child, wanted)).collect();
        let restored = decoded.clone().into_builder().data_type(wanted.clone()).child_data(children?);
        restored.build().map_err(|source| source.to_string())
    }

    fn leaf(self, decoded: &ArrayData) -> Result<ArrayData, String> {
        if *decoded.data_type() != DataType::FixedSizeBinary(INTERVAL_BYTES) {
            return Err(format!("an interval is stored as {}", decoded.data_type()));
        }
        let bytes = FixedSizeBinaryArray::from(decoded.clone());
        let values = (0..bytes.len()).map(|row| {
            // The bytes of a null are undefined.
            if bytes.is_null(row) { Ok(IntervalMonthDayNano::default()) } else { self.value(bytes.value(row)) }
        });
        let values: Result<Vec<IntervalMonthDayNano>, String> = values.collect();
        Ok(IntervalMonthDayNanoArray::new(values?.into(), bytes.nulls().cloned()).into_data())
    }

    fn value(self, bytes: &[u8]) -> Result<IntervalMonthDayNano, String> {
        let part = |index: usize| {
            let bytes = bytes.get(index * 4..).and_then(<[u8]>::first_chunk::<4>);
            u32::from_le_bytes(bytes.copied().unwrap_or_default())
        };
        let (months, days, milliseconds) = (part(0), part(1), part(2));
        let (months, days, milliseconds) = match self {
            Self::Signed => (months.cast_signed(), days.cast_signed(), i64::from(milliseconds.cast_signed())),
            Self::Unsigned => {
                let fitting = |count: u32, unit: &str| {
                    i32::try_from(count)
                        .map_err(|_| format!("it holds an interval of {count} {unit}, the limit is {}", i32::MAX))
                };
                (fitting(months, "months")?, fitting(days, "days")?, i64::from(milliseconds))
            }
        };
        Ok(IntervalMonthDayNano::new(months, days, milliseconds * NANOSECONDS_PER_MILLISECOND))
    }
}

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(IntervalUnit::MonthDayNano))
}

fn has_interval(data_type: &DataType) -> bool {
    is_interval(data_type) || children(data_type).into_iter().any(has_interval)
}

/// The child types of a nested type.
fn children(data_type: &DataType) -> Vec<&DataType> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item.data_type()],
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{AsArray, ListArray, StructArray},
        buffer::{NullBuffer, OffsetBuffer},
        datatypes::{Field, IntervalMonthDayNanoType},
    };

    use super::*;

    fn stored(months: u32, days: u32, milliseconds: u32) -> Vec<u8> {
        [months, days, milliseconds].map(u32::to_le_bytes).concat()
    }

    const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

    fn bytes(values: &[Vec<u8>], nulls: Option<NullBuffer>) -> ArrayRef {
        Arc::new(FixedSizeBinaryArray::new(INTERVAL_BYTES, values.concat().into(), nulls))
    }

    #[test]
    fn converts_every_part() {
        let values = bytes(&[stored(24, 3, u32::MAX), stored(0, 0, 0)], None);
        let restored = Intervals::Unsigned.restored(&values, &INTERVAL).unwrap();
        let restored = restored.as_primitive::<IntervalMonthDayNanoType>();
        assert_eq!(restored.value(0), IntervalMonthDayNano::new(24, 3, 4_294_967_295_000_000));
        assert_eq!(restored.value(1), IntervalMonthDayNano::default());
    }

    #[test]
    fn rejects_unsigned_parts_out_of_range() {
        let negative = [stored(u32::MAX, 0, 0), stored(0, u32::MAX, 0)];
        for value in &negative {
            assert!(Intervals::Unsigned.restored(&bytes(std::slice::from_ref(value), None), &INTERVAL).is_err());
        }
        let nulls = Some(NullBuffer::from(vec![false, false]));
        let restored = Intervals::Unsigned.restored(&bytes(&negative, nulls), &INTERVAL).unwrap();
        assert_eq!(restored.null_count(), 2);
        let restored =
            Intervals::Signed.restored(&bytes(&[stored(u32::MAX, 1, u32::MAX - 1)], None), &INTERVAL).unwrap();
        let want = IntervalMonthDayNano::new(-1, 1, -2_000_000);
        assert_eq!(restored.as_primitive::<IntervalMonthDayNanoType>().value(0), want);
    }

    #[test]
    fn converts_intervals_in_lists_of_structs() {
        let nested = |leaf: ArrayRef| {
            let fields = vec![Arc::new(Field::new("i", leaf.data_type().clone(), true))];
            let structs: ArrayRef = Arc::new(StructArray::new(fields.into(), vec![leaf], None));
            let item = Arc::new(Field::new("item", structs.data_type().clone(), true));
            let list: ArrayRef = Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([1, 0, 2]), structs, None));
            list
        };
        let values = [stored(1, 0, 0), stored(0, 2, 0), stored(0, 0, 3)];
        let want = nested(Intervals::Unsigned.restored(&bytes(&values, None), &INTERVAL).unwrap());
        let restored = Intervals::Unsigned.restored(&nested(bytes(&values, None)), want.data_type()).unwrap();
        assert_eq!(&restored, &want);
    }
}

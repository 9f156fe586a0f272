//! Zeroes the values under nulls before they are sent. A file's decoder or a client may leave any bytes there, and a
//! batch must have the same bytes for the same rows.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayData, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, make_array},
    buffer::{Buffer, MutableBuffer},
    datatypes::DataType,
    error::ArrowError,
};

/// The batch with zeros under every null of a fixed width, also in lists and structs. (Texts have no bytes there.)
pub(crate) fn under_nulls(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    if batch.columns().iter().all(|column| is_zeroed(&column.to_data())) {
        return Ok(batch.clone());
    }
    let columns = batch.columns().iter().map(column).collect::<Result<Vec<ArrayRef>, ArrowError>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}

/// Whether a column and its children have no nulls, as in a matrix.
fn is_zeroed(data: &ArrayData) -> bool {
    // The values of a dictionary are shared by many batches.
    let is_dictionary = matches!(data.data_type(), DataType::Dictionary(..));
    data.null_count() == 0 && (is_dictionary || data.child_data().iter().all(is_zeroed))
}

fn column(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if let (Some(flags), Some(nulls)) = (column.as_boolean_opt(), column.nulls()) {
        return Ok(Arc::new(BooleanArray::new(flags.values() & nulls.inner(), Some(nulls.clone()))));
    }
    let data = column.to_data();
    if is_zeroed(&data) { Ok(Arc::clone(column)) } else { Ok(make_array(zeroed(&data)?)) }
}

fn zeroed(data: &ArrayData) -> Result<ArrayData, ArrowError> {
    let width = match data.data_type() {
        // The values of a dictionary are shared by many batches.
        DataType::Dictionary(keys, _) => keys.primitive_width(),
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
        data_type if data_type.is_nested() => {
            let children = data.child_data().iter().map(zeroed_child).collect::<Result<Vec<_>, ArrowError>>()?;
            return data.clone().into_builder().child_data(children).build();
        }
        data_type => data_type.primitive_width(),
    };
    let (Some(width), Some(nulls), [values, ..]) = (width, data.nulls(), data.buffers()) else {
        return Ok(data.clone());
    };
    let mut bytes = MutableBuffer::with_capacity(values.len());
    bytes.extend_from_slice(values.as_slice());
    for row in (0..data.len()).filter(|row| nulls.is_null(*row)) {
        let start = (data.offset() + row) * width;
        bytes.as_slice_mut()[start..start + width].fill(0);
    }
    let buffers = vec![Buffer::from(bytes)];
    data.clone().into_builder().buffers(buffers).build()
}

fn zeroed_child(data: &ArrayData) -> Result<ArrayData, ArrowError> {
    Ok(column(&make_array(data.clone()))?.to_data())
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Float64Array, Int32Array, ListArray, StringArray},
        buffer::{BooleanBuffer, NullBuffer, OffsetBuffer},
        datatypes::{Field, Float64Type, Int32Type},
    };

    use super::*;

    #[test]
    fn zeroes_only_numbers_and_flags_under_nulls() {
        let nulls = || Some(NullBuffer::from(vec![true, false, true]));
        let elements: ArrayRef = Arc::new(Int32Array::new(vec![4, 5, 6].into(), nulls()));
        let item = Arc::new(Field::new("item", DataType::Int32, true));
        let lists = ListArray::new(item, OffsetBuffer::from_lengths([1, 0, 2]), elements, None);
        let columns: [(&str, ArrayRef); 5] = [
            ("x", Arc::new(Float64Array::new(vec![1.0, 2.0, 3.0].into(), nulls()))),
            ("whole", Arc::new(Float64Array::from(vec![7.0, 8.0, 9.0]))),
            ("flag", Arc::new(BooleanArray::new(BooleanBuffer::from(vec![true, true, false]), nulls()))),
            ("text", Arc::new(StringArray::from(vec![Some("a"), None, Some("c")]))),
            ("lists", Arc::new(lists)),
        ];
        let batch =
            RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
        for (offset, expected) in [(0, vec![1.0, 0.0, 3.0]), (1, vec![0.0, 3.0])] {
            let sliced = batch.slice(offset, 3 - offset);
            let zeroed = under_nulls(&sliced).unwrap();
            assert_eq!(zeroed, sliced);
            assert_eq!(zeroed["x"].as_primitive::<Float64Type>().values().to_vec(), expected);
            assert_eq!(zeroed["whole"].to_data().buffers(), sliced["whole"].to_data().buffers());
            assert!(!zeroed["flag"].as_boolean().values().value(1 - offset));
        }
        let zeroed = under_nulls(&batch).unwrap();
        assert_eq!(zeroed["lists"].as_list::<i32>().values().as_primitive::<Int32Type>().values().to_vec(), [4, 0, 6]);
    }
}

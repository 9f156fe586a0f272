//! `bytes`: a column of bytes → n columns, one per byte, from 0 to 255. `numpy.frombuffer(value, numpy.uint8)`.
//!
//! - Every value has exactly `n` bytes; another length is an error of its row. `n` is from 1 to 65,536.
//! - Null becomes n nulls, which `fill_null` fills.
//! - It is the first op of a column of Binary, `LargeBinary`, `BinaryView` or `FixedSizeBinary`. Text is rejected.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, FixedSizeListArray, LargeListArray, ListArray, UInt8Array, UInt64Array},
    buffer::ScalarBuffer,
    compute::{cast, take},
    datatypes::{DataType, Field, FieldRef},
    error::ArrowError,
};

/// The column's values as lists of bytes; other columns unchanged.
pub(crate) fn as_lists(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let item = || -> FieldRef { Arc::new(Field::new_list_field(DataType::UInt8, false)) };
    let bytes = |values| -> ArrayRef { Arc::new(UInt8Array::new(ScalarBuffer::from(values), None)) };
    match column.data_type() {
        DataType::Dictionary(..) => {
            let dictionary = column.as_any_dictionary();
            let keys = cast(dictionary.keys(), &DataType::UInt64)?;
            let keys: &UInt64Array = keys.as_primitive();
            as_lists(&take(dictionary.values().as_ref(), keys, None)?)
        }
        DataType::Binary => {
            let values = column.as_binary::<i32>();
            let (offsets, nulls) = (values.offsets().clone(), values.nulls().cloned());
            Ok(Arc::new(ListArray::try_new(item(), offsets, bytes(values.values().clone()), nulls)?))
        }
        DataType::LargeBinary => {
            let values = column.as_binary::<i64>();
            let (offsets, nulls) = (values.offsets().clone(), values.nulls().cloned());
            Ok(Arc::new(LargeListArray::try_new(item(), offsets, bytes(values.values().clone()), nulls)?))
        }
        DataType::BinaryView => as_lists(&cast(column, &DataType::LargeBinary)?),
        DataType::FixedSizeBinary(size) => {
            let values = column.as_fixed_size_binary();
            let (values, nulls) = (bytes(values.values().clone()), column.nulls().cloned());
            Ok(Arc::new(FixedSizeListArray::try_new(item(), *size, values, nulls)?))
        }
        _ => Ok(Arc::clone(column)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{ArrayRef, BinaryArray, FixedSizeBinaryArray, UInt8Array},
        compute::cast,
        datatypes::DataType,
    };

    use crate::{
        DType, Fill, Op,
        testing::{assemble, assert_ints, compile_error, evaluate, row_error},
    };

    const BYTES: Op = Op::Bytes { n: 3 };

    fn values() -> BinaryArray {
        vec![Some(&b"\x00\x7f\xff"[..]), Some(b"abc"), Some(b"\x01\x02\x03")].into()
    }

    fn encodings() -> Vec<ArrayRef> {
        let values: ArrayRef = Arc::new(values());
        let dictionary = DataType::Dictionary(DataType::Int16.into(), DataType::Binary.into());
        let types = [DataType::Binary, DataType::LargeBinary, DataType::BinaryView, dictionary];
        let mut arrays: Vec<ArrayRef> = types.iter().map(|data_type| cast(&values, data_type).unwrap()).collect();
        let sized = [*b"\x00\x7f\xff", *b"abc", *b"\x01\x02\x03"].into_iter();
        arrays.push(Arc::new(FixedSizeBinaryArray::try_from_iter(sized).unwrap()));
        arrays
    }

    #[test]
    fn each_byte_is_a_column() {
        for column in encodings() {
            let array = assemble(DType::UInt8, &[&[BYTES]], Arc::clone(&column)).unwrap();
            let expected = UInt8Array::from(vec![0, 127, 255, 97, 98, 99, 1, 2, 3]);
            assert_eq!(array.as_ref(), &expected as &dyn arrow::array::Array, "{}", column.data_type());
            let array = assemble(DType::UInt8, &[&[BYTES]], column.slice(1, 2)).unwrap();
            assert_eq!(array.as_ref(), &expected.slice(3, 6) as &dyn arrow::array::Array, "{}", column.data_type());
        }
    }

    #[test]
    fn later_ops_apply_to_the_bytes() {
        let nulls = BinaryArray::from(vec![Some(&b"\x00\x01\x02"[..]), None]);
        let fill = Op::FillNull(Fill::Number(9.0));
        assert_ints(&evaluate(&[BYTES, fill], nulls), &[0, 1, 2, 9, 9, 9].map(Some));
        let floats = assemble(DType::Float32, &[&[BYTES, Op::MinMax { min: 0.0, max: 255.0 }]], values()).unwrap();
        assert_eq!(floats.len(), 9);
    }

    #[test]
    fn another_length_is_an_error_of_its_row() {
        let values = BinaryArray::from(vec![Some(&b"abc"[..]), Some(b"ab"), None]);
        let message = row_error(DType::UInt8, &[BYTES], values);
        assert!(message.contains("row 1 has 2 bytes, not 3"), "{message}");
        let message = row_error(DType::UInt8, &[BYTES], BinaryArray::from(vec![Some(&b"abc"[..]), None]));
        assert!(message.contains("row 1 is null"), "{message}");
    }

    #[test]
    fn other_places_are_rejected() {
        let error = compile_error(&[BYTES], arrow::array::StringArray::from(vec!["abc"]));
        assert!(error.ends_with("it takes bytes, but its input is text"), "{error}");
        let error = compile_error(&[BYTES, BYTES], values());
        assert!(error.contains("it takes bytes"), "{error}");
        for n in [0, 65_537] {
            let error = compile_error(&[Op::Bytes { n }], values());
            assert!(error.ends_with(&format!("n must be from 1 to 65536, not {n}")), "{error}");
        }
    }
}

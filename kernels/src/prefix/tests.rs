//! The values that a fit learns from.

use arrow::{
    array::{BinaryArray, Int32Array, StringArray, UInt64Array},
    datatypes::Field,
};

use super::*;
use crate::{
    Fill,
    testing::{assert_ints, compile_error, doubles, evaluate, ints, singles, table},
};

#[test]
fn the_data_type_follows_the_domain() {
    let schema = Schema::new(vec![
        Field::new("int", DataType::Int16, true),
        Field::new("uint", DataType::UInt64, true),
        Field::new("float", DataType::Float32, true),
        Field::new("text", DataType::Utf8View, true),
    ]);
    let data_type = |column: &str, ops: &[Op]| Prefix::compile(column, ops, &schema).unwrap().data_type().clone();
    assert_eq!(data_type("int", &[]), DataType::Int64);
    assert_eq!(data_type("uint", &[]), DataType::UInt64);
    assert_eq!(data_type("float", &[]), DataType::Float32);
    assert_eq!(data_type("int", &[Op::Log1p]), DataType::Float64);
    assert_eq!(data_type("float", &[Op::Log1p]), DataType::Float32);
    assert_eq!(data_type("text", &[]), DataType::Utf8);
    assert_eq!(data_type("text", &[Op::HashBucket { buckets: 2, seed: 0 }]), DataType::Int64);
    let prefix = Prefix::compile("int", &[], &schema).unwrap();
    assert_eq!(prefix.columns(), ["int"]);
    assert!(matches!(Prefix::compile("y", &[], &schema), Err(CompileError::UnknownColumn { output: None, .. })));
}

#[test]
fn nulls_stay_null_with_zeros_under_them() {
    let column = (0..2500).map(|row| (row % 3 != 0).then_some(row)).collect::<Vec<_>>();
    assert_ints(&evaluate(&[], ints(&column)), &column);
    let clipped = evaluate(&[Op::Clip { min: Some(5.0), max: None }], doubles(&[None, Some(7.0)]));
    let values = clipped.as_primitive::<arrow::datatypes::Float64Type>();
    assert_eq!((values.is_null(0), values.values().as_ref()), (true, [0.0, 7.0].as_slice()));
    let none = evaluate(&[Op::Log1p], singles(&[]));
    assert_eq!((none.len(), none.data_type()), (0, &DataType::Float32));
    assert_eq!(evaluate(&[], UInt64Array::from(vec![None, Some(1)])).null_count(), 1);
}

#[test]
fn text_is_utf8_with_its_nulls_filled() {
    let column = StringArray::from(vec![Some("a"), None]);
    assert_eq!(evaluate(&[], column.clone()).as_ref(), &column as &dyn Array);
    let filled = evaluate(&[Op::FillNull(Fill::Text("b".to_owned()))], column);
    assert_eq!(filled.as_ref(), &StringArray::from(vec!["a", "b"]) as &dyn Array);
    let none = evaluate(&[], StringArray::from(vec![] as Vec<&str>));
    assert_eq!((none.len(), none.data_type()), (0, &DataType::Utf8));
}

#[test]
fn rejects_chains_without_values() {
    let message = compile_error(&[Op::OneHot { size: 2 }], ints(&[None]));
    assert!(message.ends_with("it yields columns, not values that a fit can learn from"), "{message}");
    assert!(compile_error(&[], BinaryArray::from(vec![b"a".as_slice()])).contains("a column of type Binary"));
}

#[test]
fn rejects_missing_columns_and_other_types() {
    let prefix = Prefix::compile("x", &[], &table(Arc::new(ints(&[None]))).schema()).unwrap();
    let message = prefix.evaluate(&table(Arc::new(Int32Array::from(vec![1])))).unwrap_err().to_string();
    assert_eq!(message, "column \"x\" has type Int32, but the program was compiled for Int64");
    let other = RecordBatch::try_from_iter([("y", Arc::new(ints(&[None])) as ArrayRef)]).unwrap();
    assert_eq!(prefix.evaluate(&other).unwrap_err().to_string(), "the batch lacks column \"x\"");
}

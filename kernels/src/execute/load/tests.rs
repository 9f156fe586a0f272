//! The types that load, and the values that they load as.

use std::sync::Arc;

use arrow::{
    array::*,
    datatypes::{DataType, Field, i256},
};
use half::f16;

use crate::{
    CompileError, DType, Op, OutputSpec, Prefix, Program,
    testing::{assert_doubles, assert_ints, assert_singles, evaluate, table},
};

/// The array without its first and last rows, which a kernel must not read.
fn sliced(array: impl Array) -> ArrayRef {
    array.slice(1, array.len() - 2)
}

/// Creates an array of `[9, 1, null, 3, 9]` and loads it without its ends.
#[track_caller]
fn check<T>(make: impl Fn(Vec<Option<T>>) -> ArrayRef, expected: &[Option<i64>])
where
    T: From<u8>,
{
    let values = [Some(9), Some(1), None, Some(3), Some(9)].map(|value| value.map(T::from));
    assert_ints(&evaluate(&[], sliced(make(values.into_iter().collect()))), expected);
}

/// Integers of every width, and times as the count of their unit.
#[test]
fn integers_and_times_load_as_i64() {
    let expected = [Some(1), None, Some(3)];
    macro_rules! check {
        ($($array:ty),*) => { $(check(|values| Arc::new(<$array>::from(values)), &expected);)* };
    }
    check!(UInt8Array, Int16Array, UInt16Array, Int32Array, UInt32Array, Int64Array);
    check!(Date32Array, Date64Array, Time32SecondArray, Time32MillisecondArray);
    check!(Time64MicrosecondArray, Time64NanosecondArray);
    check!(TimestampSecondArray, TimestampMillisecondArray, TimestampMicrosecondArray, TimestampNanosecondArray);
    check!(DurationSecondArray, DurationMillisecondArray, DurationMicrosecondArray, DurationNanosecondArray);
    let zoned = |values: Vec<Option<i64>>| -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from(values).with_timezone("Europe/Zurich"))
    };
    check(zoned, &expected);
}

#[test]
fn integer_limits_are_exact() {
    assert_ints(&evaluate(&[], Int8Array::from(vec![i8::MIN, i8::MAX])), &[-128, 127].map(Some));
    assert_ints(&evaluate(&[], Int64Array::from(vec![i64::MIN, i64::MAX])), &[i64::MIN, i64::MAX].map(Some));
    assert_ints(&evaluate(&[], UInt32Array::from(vec![u32::MAX])), &[Some(4_294_967_295)]);
    let unsigned = UInt64Array::from(vec![Some(u64::MAX), None, Some(0)]);
    assert_eq!(evaluate(&[], unsigned.clone()).as_ref(), &unsigned as &dyn Array);
    assert_eq!(evaluate(&[], unsigned.slice(1, 2)).as_ref(), &unsigned.slice(1, 2) as &dyn Array);
}

#[test]
fn booleans_load_as_zero_and_one_and_the_null_type_as_nulls() {
    let bits = (0..2200).map(|row| (row % 5 != 0).then_some(row % 3 == 0)).collect::<Vec<_>>();
    let expected = bits.iter().map(|bit| bit.map(i64::from)).collect::<Vec<_>>();
    assert_ints(&evaluate(&[], BooleanArray::from(bits.clone())), &expected);
    assert_ints(&evaluate(&[], BooleanArray::from(bits).slice(67, 2100)), &expected[67..2167]);
    assert_ints(&evaluate(&[], NullArray::new(1500)), &vec![None; 1500]);
}

#[test]
fn floats_load_unchanged() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let singles = [9.0, nan, -0.0, inf, -inf, 1e-45, 9.0].map(Some);
    let column = Float32Array::from(singles.to_vec());
    assert_singles(&evaluate(&[], sliced(column)), &singles[1..6]);
    let halves = [Some(f16::MIN_POSITIVE_SUBNORMAL), None, Some(f16::MAX), Some(f16::NEG_INFINITY), Some(f16::NAN)];
    let expected = [Some(5.960_464_5e-8), None, Some(65504.0), Some(-inf), Some(nan)];
    assert_singles(&evaluate(&[], Float16Array::from(halves.to_vec())), &expected);
    let doubles = [Some(5e-324), None, Some(f64::MIN), Some(-0.0)];
    assert_doubles(&evaluate(&[], Float64Array::from(doubles.to_vec())), &doubles);
}

/// The oracle is Rust's parser, which rounds correctly: 1.23, -0.07, and the largest decimal that loads exactly.
#[test]
fn decimals_load_as_f64() {
    let expected = [Some(1.23), None, Some(-0.07)];
    let column = Decimal32Array::from(vec![Some(123), None, Some(-7)]).with_precision_and_scale(9, 2).unwrap();
    assert_doubles(&evaluate(&[], column), &expected);
    let column = Decimal64Array::from(vec![Some(123), None, Some(-7)]).with_precision_and_scale(18, 2).unwrap();
    assert_doubles(&evaluate(&[], column), &expected);
    let column = Decimal128Array::from(vec![Some(9), Some(123), None, Some(-7), Some(9)]);
    assert_doubles(&evaluate(&[], sliced(column.with_precision_and_scale(38, 2).unwrap())), &expected);
    let column = Decimal256Array::from(vec![Some(i256::from(123)), None, Some(i256::from(-7))]);
    assert_doubles(&evaluate(&[], column.with_precision_and_scale(76, 2).unwrap()), &expected);

    let column = Decimal128Array::from(vec![1_i128 << 53, (1 << 53) - 1]).with_precision_and_scale(38, 22).unwrap();
    let expected = ["9007199254740992e-22", "9007199254740991e-22"].map(|number| number.parse().ok());
    assert_doubles(&evaluate(&[], column), &expected);
    let column = Decimal128Array::from(vec![12]).with_precision_and_scale(5, -3).unwrap();
    assert_doubles(&evaluate(&[], column), &[Some(12_000.0)]);
}

/// The oracle is Rust's parser, which rounds correctly.
#[test]
fn long_decimals_load_as_the_nearest_f64() {
    #[track_caller]
    fn check(column: ArrayRef, numbers: &[String]) {
        let expected: Vec<Option<f64>> = numbers.iter().map(|number| number.parse().ok()).collect();
        assert_doubles(&evaluate(&[], column), &expected);
    }
    let unscaled = [987_654_321_012_345_678, -999_999_999_999_999_999, 5];
    let column = Decimal64Array::from(unscaled.to_vec()).with_precision_and_scale(18, 4).unwrap();
    check(Arc::new(column), &unscaled.map(|unscaled| format!("{unscaled}e-4")));
    let digits = "99999999999999999999999999999999999999";
    let column = Decimal128Array::from(vec![digits.parse::<i128>().unwrap()]);
    check(Arc::new(column.with_precision_and_scale(38, 30).unwrap()), &[format!("{digits}e-30")]);
    for digits in [format!("-{digits}12345678901234567890"), format!("{digits}{digits}"), format!("-{digits}")] {
        let column = Decimal256Array::from(vec![i256::from_string(&digits).unwrap()]);
        check(Arc::new(column.with_precision_and_scale(76, 40).unwrap()), &[format!("{digits}e-40")]);
    }
}

/// Types that only pass through: the error of a numeric output names the remedy, and `AS_STORED` accepts them.
#[test]
fn other_types_only_pass_through() {
    let item = Arc::new(Field::new_list_field(DataType::Int32, true));
    let types = [
        DataType::List(Arc::new(Field::new_list_field(DataType::List(Arc::clone(&item)), true))),
        DataType::Struct(vec![Field::new("a", DataType::Int32, true)].into()),
        DataType::Interval(arrow::datatypes::IntervalUnit::DayTime),
        DataType::RunEndEncoded(
            Arc::new(Field::new("run_ends", DataType::Int32, false)),
            Arc::new(Field::new("values", DataType::Int32, true)),
        ),
    ];
    for data_type in types {
        let table = table(new_empty_array(&data_type));
        let chain = |ops: Vec<Op>| vec![crate::Chain { column: "x".to_owned(), ops }];
        let spec = |dtype, ops| OutputSpec { name: "out".to_owned(), dtype, chains: chain(ops) };
        let error = Program::compile(&[spec(DType::Float32, vec![Op::Log1p])], &table.schema()).unwrap_err();
        let is_type = |error: &CompileError| matches!(error, CompileError::UnsupportedType { .. });
        assert!(matches!(&error, CompileError::Chain { output: 0, chain: 0, error } if is_type(error)));
        let message = error.to_string();
        let start = format!("output \"out\", column \"x\": op log1p cannot read a column of type {data_type}");
        assert!(message.starts_with(&start) && message.contains("AS_STORED"), "{message}");
        let error = Program::compile(&[spec(DType::Float32, vec![])], &table.schema()).unwrap_err();
        assert!(error.to_string().contains("a numeric output cannot read"));
        assert!(Prefix::compile("x", &[], &table.schema()).is_err());
        assert!(Program::compile(&[spec(DType::AsStored, vec![])], &table.schema()).is_ok());
    }
}

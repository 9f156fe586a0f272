use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, BooleanArray, Date32Array, Date64Array, Decimal128Array, DictionaryArray, Float32Array,
        Float64Array, Int8Array, Int32Array, Int64Array, StringArray, StringViewArray, TimestampMicrosecondArray,
        TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray, UInt64Array,
    },
    compute::cast,
    datatypes::{DataType, TimeUnit},
};

use crate::{
    Fill, LookupTable, Op, TableKeys,
    testing::{assert_ints, compile_error, evaluate},
};

fn lookup(keys: ArrayRef) -> Op {
    let values = Arc::new(Int64Array::from_iter_values(0..keys.len() as i64));
    Op::Lookup(Arc::new(LookupTable {
        table: "t".to_owned(),
        key: "k".to_owned(),
        column: "v".to_owned(),
        keys: Arc::new(TableKeys::new(keys)),
        values,
        held: None,
    }))
}

/// The position of the key that each value of the column finds.
fn found(column: ArrayRef, keys: ArrayRef) -> Vec<Option<i64>> {
    use arrow::array::AsArray;
    evaluate(&[lookup(keys)], column).as_primitive::<arrow::datatypes::Int64Type>().iter().collect()
}

fn array(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

#[test]
fn instants_compare_across_units_and_zones() {
    let zone = |name: &str| Some(Arc::<str>::from(name));
    let milliseconds = array(TimestampMillisecondArray::from(vec![5, 1_000, -1, i64::MAX]));
    let microseconds = array(TimestampMicrosecondArray::from(vec![5_000, 5, 5_500, 1_000_000, -1_000, -1, i64::MAX]));
    let expected = [Some(0), Some(3), Some(4)];
    assert_eq!(
        found(Arc::clone(&microseconds), Arc::clone(&milliseconds)),
        [Some(0), None, None, Some(1), Some(2), None, None]
    );
    assert_eq!(found(milliseconds, microseconds)[..3], expected);
    let vienna = array(TimestampSecondArray::from(vec![1, 2]).with_timezone_opt(zone("Europe/Vienna")));
    let utc = array(TimestampNanosecondArray::from(vec![2_000_000_000, 1]).with_timezone_opt(zone("UTC")));
    assert_eq!(found(Arc::clone(&vienna), utc), [None, Some(0)]);
    let wall = array(TimestampSecondArray::from(vec![1]));
    let message = compile_error(&[lookup(wall)], vienna);
    assert!(message.contains("op lookup") && message.contains("Europe/Vienna"), "{message}");
}

#[test]
fn days_compare_across_widths_but_not_with_instants() {
    let days = array(Date32Array::from(vec![18_262, -1]));
    let milliseconds = array(Date64Array::from(vec![-86_400_000, 18_262 * 86_400_000, 18_262 * 86_400_000 + 1]));
    assert_eq!(found(Arc::clone(&milliseconds), Arc::clone(&days)), [Some(1), Some(0), None]);
    assert_eq!(found(Arc::clone(&days), milliseconds), [Some(1), Some(0)]);
    for other in [array(Int64Array::from(vec![18_262])), array(TimestampMillisecondArray::from(vec![18_262]))] {
        let message = compile_error(&[lookup(Arc::clone(&other))], Arc::clone(&days));
        assert!(message.contains("\"k\" of \"t\"") && message.contains("Date32"), "{message}");
        assert!(compile_error(&[lookup(Arc::clone(&days))], other).contains("Date32"));
    }
}

#[test]
fn integers_compare_across_widths_and_signs() {
    let signed = array(Int64Array::from(vec![-1, 7, i64::MAX, i64::MIN]));
    let unsigned = array(UInt64Array::from(vec![u64::MAX, 7, i64::MAX as u64, 1 << 63]));
    assert_eq!(found(Arc::clone(&signed), Arc::clone(&unsigned)), [None, Some(1), Some(2), None]);
    assert_eq!(found(unsigned, signed), [None, Some(1), Some(2), None]);
    let narrow = array(Int8Array::from(vec![-1, 7]));
    assert_eq!(found(array(Int32Array::from(vec![7, 255, -1])), narrow), [Some(1), None, Some(0)]);
    let flags = array(BooleanArray::from(vec![true]));
    assert_eq!(found(array(BooleanArray::from(vec![false, true])), Arc::clone(&flags)), [None, Some(0)]);
    assert!(compile_error(&[lookup(flags)], Int64Array::from(vec![1])).contains("Boolean"));
}

#[test]
fn floats_compare_with_equal_zeros_and_nans() {
    let keys = array(Float64Array::from(vec![-0.0, f64::NAN, f64::from(0.1_f32), 0.7]));
    let column = array(Float32Array::from(vec![0.0, -f32::NAN, 0.1, 0.7]));
    assert_eq!(found(column, keys), [Some(0), Some(1), Some(2), None]);
    assert!(
        compile_error(&[lookup(array(Int64Array::from(vec![1])))], Float64Array::from(vec![1.0])).contains("Float64")
    );
}

#[test]
fn decimals_compare_exactly_across_scales() {
    let decimal =
        |values: Vec<i128>, scale| array(Decimal128Array::from(values).with_precision_and_scale(38, scale).unwrap());
    let long = 10_i128.pow(37) + 1;
    let keys = decimal(vec![150, 15, long * 10, (1 << 53) + 1, 7], 2);
    assert_eq!(
        found(decimal(vec![15, 1, long, 7, 1 << 53], 1), Arc::clone(&keys)),
        [Some(0), None, Some(2), None, None]
    );
    assert_eq!(found(decimal(vec![1 << 53, (1 << 53) + 1], 2), Arc::clone(&keys)), [None, Some(3)]);
    let dictionary = DictionaryArray::new(Int8Array::from(vec![Some(1), None, Some(0)]), decimal(vec![15, 7], 2));
    assert_eq!(found(array(dictionary), Arc::clone(&keys)), [Some(4), None, Some(1)]);
    let gaps = Decimal128Array::from(vec![None, Some(3)]).with_precision_and_scale(9, 1).unwrap();
    let fill = |value| evaluate(&[Op::FillNull(Fill::Number(value)), lookup(Arc::clone(&keys))], gaps.clone());
    assert_ints(&fill(1.5), &[Some(0), None]);
    assert_ints(&fill(0.155), &[None, None]);
    let tie = |value| {
        evaluate(&[Op::FillNull(Fill::Integer(value)), lookup(decimal(vec![1 << 53, (1 << 53) + 1], 0))], gaps.clone())
    };
    assert_ints(&tie((1 << 53) + 1), &[Some(1), None]);
    assert_ints(&tie(1 << 53), &[Some(0), None]);
    assert!(compile_error(&[lookup(keys)], Float64Array::from(vec![1.5])).contains("Decimal128(38, 2)"));
}

#[test]
fn text_compares_across_encodings() {
    let keys = StringArray::from(vec!["a", "", "wörd"]);
    for kind in [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View] {
        let keys = cast(&keys, &kind).unwrap();
        assert_eq!(found(array(StringViewArray::from(vec!["wörd", "b", "a"])), keys), [Some(2), None, Some(0)]);
    }
    let words: DictionaryArray<arrow::datatypes::Int8Type> = ["", "a", ""].into_iter().collect();
    assert_eq!(found(array(words), array(keys)), [Some(1), Some(0), Some(1)]);
}

#[test]
fn found_values_keep_their_type_for_the_next_lookup() {
    let days = array(Date32Array::from(vec![1, 2]));
    let to_day = Op::Lookup(Arc::new(LookupTable {
        table: "t".to_owned(),
        key: "k".to_owned(),
        column: "v".to_owned(),
        keys: Arc::new(TableKeys::new(array(Int64Array::from(vec![10, 20])))),
        values: days,
        held: None,
    }));
    let from_day = lookup(array(Date64Array::from(vec![2 * 86_400_000, 86_400_000])));
    assert_ints(&evaluate(&[to_day, from_day], Int64Array::from(vec![10, 20, 30])), &[Some(1), Some(0), None]);
}

#[test]
fn nulls_find_no_key_and_computed_values_are_integers() {
    let keys = array(TimestampSecondArray::from(vec![1]));
    assert_eq!(found(array(arrow::array::NullArray::new(2)), keys), [None, None]);
    let modulo = [Op::PositiveMod { modulus: 10 }, lookup(array(Int64Array::from(vec![5])))];
    assert_ints(&evaluate(&modulo, Date32Array::from(vec![15])), &[Some(0)]);
    let map = [Op::MapId { ids: vec![1], values: vec![2], default: None }];
    for unit in [TimeUnit::Second, TimeUnit::Nanosecond] {
        let column = cast(&Int64Array::from(vec![1]), &DataType::Timestamp(unit, None)).unwrap();
        assert!(compile_error(&map, column).contains("its ids are whole numbers, but its input is of type Timestamp"));
    }
}

//! Rescaling, and vocabularies of decimals.

use arrow::{
    array::{
        ArrayRef, Decimal32Array, Decimal64Array, Decimal128Array, Decimal256Array, DictionaryArray, Float64Array,
        Int8Array, Int64Array, ListArray,
    },
    buffer::OffsetBuffer,
    compute::cast,
    datatypes::Field,
};

use super::*;
use crate::{
    DType, LookupTable, Op, Prefix, TableKeys, VocabValues,
    ops::exact_decimal::rescaled,
    testing::{assemble, assert_ints, compile_error, evaluate, table},
};

/// 2^53: the next integer converts to the same double.
const TIE: i128 = 1 << 53;

#[test]
fn rescaling_is_exact_or_none() {
    let whole = |value: i128| i256::from_i128(value);
    assert_eq!(rescaled(whole(150), 2, 1), Some(whole(15)));
    assert_eq!(rescaled(whole(155), 2, 1), None);
    assert_eq!(rescaled(whole(15), 1, 2), Some(whole(150)));
    assert_eq!(rescaled(whole(-3), -2, 2), Some(whole(-30_000)));
    assert_eq!(rescaled(whole(1), -100, 100), None);
    assert_eq!(rescaled(whole(0), -100, 100), Some(whole(0)));
    assert_eq!(rescaled(i256::MAX, 0, 1), None);
    assert_eq!(rescaled(i256::MIN, 1, 0), None);
}

fn vocab(texts: &[&str], oov_buckets: u32) -> Op {
    let values = VocabValues::Decimals(texts.iter().map(|text| (*text).to_owned()).collect());
    Op::Vocab { values: values.into(), oov_buckets }
}

fn long(values: Vec<Option<i128>>, precision: u8, scale: i8) -> Decimal128Array {
    Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap()
}

#[test]
fn decimals_with_the_same_double_have_distinct_indices() {
    let list = vocab(&["9007199254740993", "9007199254740992", "-9007199254740993"], 0);
    let column = long(vec![Some(TIE), Some(TIE + 1), None, Some(-TIE - 1), Some(-TIE), Some(TIE - 1)], 20, 0);
    assert_ints(&evaluate(std::slice::from_ref(&list), column.clone()), &[2, 1, 0, 3, 0, 0].map(Some));
    let assembled = assemble(DType::Int64, &[std::slice::from_ref(&list)], column).unwrap();
    assert_ints(&assembled, &[2, 1, 0, 3, 0, 0].map(Some));
    let scaled = long(vec![Some(TIE * 100), Some(TIE * 100 + 100), Some(TIE * 100 + 1)], 38, 2);
    assert_ints(&evaluate(&[list], scaled), &[2, 1, 0].map(Some));
}

#[test]
fn looks_up_every_width_by_any_spelling() {
    let list = || vocab(&["1.50", "-2", "007.25", "1.125"], 0);
    let narrow = Decimal32Array::from(vec![150, -200, 725, 112]).with_precision_and_scale(9, 2).unwrap();
    assert_ints(&evaluate(&[list()], narrow), &[1, 2, 3, 0].map(Some));
    let short = Decimal64Array::from(vec![1500, -2000, 7250, 1125]).with_precision_and_scale(18, 3).unwrap();
    assert_ints(&evaluate(&[list()], short), &[1, 2, 3, 4].map(Some));
    let wide = [15, -20].map(i256::from_i128).to_vec();
    let wide = Decimal256Array::from(wide).with_precision_and_scale(60, 1).unwrap();
    assert_ints(&evaluate(&[list()], wide), &[1, 2].map(Some));
    let dictionary: ArrayRef = Arc::new(long(vec![Some(15), Some(-20)], 20, 1));
    let dictionary = DictionaryArray::new(Int8Array::from(vec![Some(1), None, Some(0)]), dictionary);
    assert_ints(&evaluate(&[list()], dictionary), &[2, 0, 1].map(Some));
}

/// `hash_bucket` with seed 0 computes the same hash, and so does a vocabulary of floats.
#[test]
fn absent_values_hash_as_their_double() {
    let values = vec![Some(TIE), Some(TIE + 1), None, Some(123), Some(-7_000_000_000_000_000_001)];
    let column = long(values, 38, 1);
    let buckets = evaluate(&[Op::HashBucket { buckets: 10, seed: 0 }], column.clone());
    let buckets: Vec<Option<i64>> = buckets.as_primitive::<t::Int64Type>().iter().collect();
    let expected: Vec<Option<i64>> = buckets.iter().map(|bucket| Some(bucket.map_or(0, |bucket| bucket + 2))).collect();
    assert_ints(&evaluate(&[vocab(&["5"], 10)], column.clone()), &expected);
    let floats = Op::Vocab { values: VocabValues::Floats(vec![5.0]).into(), oov_buckets: 10 };
    assert_ints(&evaluate(&[floats], column.clone()), &expected);
    let filled = [Op::FillNull(Fill::Number(12.3)), vocab(&["5"], 10)];
    let expected: Vec<Option<i64>> =
        expected.iter().enumerate().map(|(row, old)| if row == 2 { expected[3] } else { *old }).collect();
    assert_ints(&evaluate(&filled, column), &expected);
}

#[test]
fn a_filled_null_is_looked_up_as_a_decimal() {
    let column = || long(vec![None, Some(TIE)], 20, 0);
    let chain = |fill, texts: &[&str]| evaluate(&[Op::FillNull(fill), vocab(texts, 0)], column());
    let ties = ["9007199254740992", "9007199254740993"];
    assert_ints(&chain(Fill::Integer(TIE as i64 + 1), &ties), &[2, 1].map(Some));
    assert_ints(&chain(Fill::Unsigned(TIE as u64), &ties), &[1, 1].map(Some));
    assert_ints(&chain(Fill::Number(TIE as f64), &ties), &[1, 1].map(Some));
    let decimal = ExactDecimal::parse("9007199254740993").unwrap();
    assert_ints(&chain(Fill::Decimal(decimal), &ties), &[2, 1].map(Some));
    assert_ints(&chain(Fill::Number(0.5), &["1", "0.50"]), &[2, 0].map(Some));
    assert_ints(&chain(Fill::Number(f64::NAN), &ties), &[0, 1].map(Some));
    let twice = [Op::FillNull(Fill::Integer(5)), Op::FillNull(Fill::Integer(6)), vocab(&["6", "5"], 0)];
    assert_ints(&evaluate(&twice, column()), &[2, 0].map(Some));
}

#[test]
fn looks_up_list_elements_before_padding() {
    let lists = |values: Vec<Option<i128>>| {
        let values: ArrayRef = Arc::new(long(values, 20, 0));
        let item = Field::new("item", values.data_type().clone(), true);
        ListArray::new(item.into(), OffsetBuffer::from_lengths([2, 0, 2]), values, None)
    };
    let column = lists(vec![Some(TIE), Some(TIE + 1), None, Some(3)]);
    let list = vocab(&["9007199254740993", "9007199254740992"], 0);
    assert_ints(&evaluate(std::slice::from_ref(&list), column.clone()), &[2, 1, 0, 0].map(Some));
    let padded = [list.clone(), Op::Pad { n: 2, value: 9.0, side: crate::Side::Right }];
    assert_ints(&evaluate(&padded, column.clone()), &[2, 1, 9, 9, 0, 0].map(Some));
    let message = compile_error(&[Op::Pad { n: 2, value: 9.0, side: crate::Side::Right }, list], column);
    assert!(message.contains("a list of decimals") && message.contains("floating-point numbers"), "{message}");
}

#[test]
fn rejects_invalid_lists_naming_the_value() {
    let column = || long(vec![None], 20, 0);
    for (texts, words) in [
        (&["1.5", "2", "1.50"][..], "value 1.50 is in the vocabulary twice"),
        (&["0.001", "0.0010"], "value 0.0010 is in the vocabulary twice"),
        (&["1e5"], "value \"1e5\" is not a decimal"),
    ] {
        let message = compile_error(&[vocab(texts, 0)], column());
        assert!(message.contains(words), "{message}");
    }
    let list = || [vocab(&["1"], 0)];
    let message = compile_error(&list(), Int64Array::from(vec![1]));
    assert!(
        message.ends_with("its parameter values is a list of decimals, but its input is whole numbers"),
        "{message}"
    );
    assert!(compile_error(&list(), Float64Array::from(vec![1.0])).ends_with("its input is floating-point numbers"));
    let computed = [Op::Abs, vocab(&["1"], 0)];
    assert!(compile_error(&computed, column()).contains("a list of decimals"));
    let empty = [vocab(&[], 1)];
    assert_ints(&evaluate(&empty, Int64Array::from(vec![Some(1), None])), &[1, 0].map(Some));
    assert_ints(&evaluate(&empty, column()), &[Some(0)]);
}

#[test]
fn values_beyond_the_scale_keep_their_indices() {
    let list =
        [vocab(&["0.5", "99999999999999999999999999999999999999999999999999999999999999999999999999999999", "3"], 2)];
    assert_ints(&evaluate(&list, long(vec![Some(3), None], 20, 0)), &[3, 0].map(Some));
    let absent = evaluate(&list, long(vec![Some(5)], 20, 0));
    assert!(matches!(absent.as_primitive::<t::Int64Type>().value(0), 4 | 5));
}

/// The values that a fit counts.
fn counted(ops: &[Op], column: impl Array + 'static) -> ArrayRef {
    let table = table(Arc::new(column));
    Prefix::compile("x", ops, &table.schema()).unwrap().with_exact_decimals().evaluate(&table).unwrap()
}

#[test]
fn a_fit_counts_long_decimals_exactly() {
    let column = || long(vec![Some(TIE + 1), None], 20, 0);
    let found = counted(&[], column());
    assert_eq!(found.as_ref(), &long(vec![Some(TIE + 1), None], 38, 0) as &dyn Array);
    let found = counted(&[Op::FillNull(Fill::Integer(TIE as i64 + 3))], column());
    assert_eq!(found.as_ref(), &long(vec![Some(TIE + 1), Some(TIE + 3)], 38, 0) as &dyn Array);
    let found = counted(&[Op::FillNull(Fill::Number(0.25))], column());
    assert_eq!(found.as_ref(), &long(vec![Some((TIE + 1) * 100), Some(25)], 38, 2) as &dyn Array);
    let dictionary = cast(&column(), &DataType::Dictionary(DataType::Int8.into(), column().data_type().clone().into()));
    assert_eq!(counted(&[], dictionary.unwrap()).as_ref(), &long(vec![Some(TIE + 1), None], 38, 0) as &dyn Array);
    let short = Decimal64Array::from(vec![7]).with_precision_and_scale(16, 3).unwrap();
    assert_eq!(counted(&[], short).as_ref(), &long(vec![Some(7)], 38, 3) as &dyn Array);
    let found = counted(&[Op::FillNull(Fill::Number(1e-20))], long(vec![Some(1), None], 38, 18));
    let wide = vec![Some(i256::from_i128(100)), Some(i256::from_i128(1))];
    let wide = Decimal256Array::from(wide).with_precision_and_scale(76, 20).unwrap();
    assert_eq!(found.as_ref(), &wide as &dyn Array);
}

#[test]
fn a_fit_counts_decimals_found_by_lookup_exactly() {
    let (keys, values) =
        (Arc::new(Int64Array::from(vec![1, 2])), Arc::new(long(vec![Some(TIE), Some(TIE + 1)], 20, 0)));
    let found = Op::Lookup(Arc::new(LookupTable {
        table: "t".to_owned(),
        key: "k".to_owned(),
        column: "v".to_owned(),
        keys: Arc::new(TableKeys::new(keys)),
        values,
        held: None,
    }));
    let column = || Int64Array::from(vec![Some(2), Some(1), None, Some(3)]);
    let fill = Op::FillNull(Fill::Integer(TIE as i64 + 3));
    let expected = [Some(TIE + 1), Some(TIE), None, None];
    assert_eq!(counted(std::slice::from_ref(&found), column()).as_ref(), &long(expected.to_vec(), 38, 0) as &dyn Array);
    let filled = expected.map(|value| value.or(Some(TIE + 3))).to_vec();
    assert_eq!(counted(&[found.clone(), fill.clone()], column()).as_ref(), &long(filled, 38, 0) as &dyn Array);
    let list = vocab(&["9007199254740993", "9007199254740992", "9007199254740995"], 0);
    assert_ints(&evaluate(&[found.clone(), list.clone()], column()), &[1, 2, 0, 0].map(Some));
    assert_ints(&evaluate(&[found.clone(), fill, list], column()), &[1, 2, 3, 3].map(Some));
    assert_eq!(counted(&[found, Op::Abs], column()).data_type(), &DataType::Float64);
}

#[test]
fn a_fit_counts_short_and_computed_decimals_as_doubles() {
    let is_double = |ops: &[Op], column| *counted(ops, column).data_type() == DataType::Float64;
    assert!(is_double(&[], long(vec![Some(1)], 15, 2)));
    assert!(!is_double(&[], long(vec![Some(1)], 16, 2)));
    assert!(is_double(&[Op::Abs], long(vec![Some(1)], 38, 2)));
    assert!(is_double(&[Op::FillNull(Fill::Number(f64::INFINITY))], long(vec![Some(1)], 38, 2)));
    assert!(is_double(&[Op::FillNull(Fill::Number(1e-60))], long(vec![Some(1)], 38, 2)));
}

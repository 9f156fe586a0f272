use arrow::array::{
    BooleanArray, Decimal128Array, DictionaryArray, Float64Array, Int64Array, ListArray, NullArray, StringArray,
    TimestampSecondArray,
};
use arrow::datatypes::Int32Type;
use forebay_runtime::{budget::Budget, cpu_pool::CpuPool, state::State};
use tempfile::TempDir;

use super::*;

fn engine() -> (Engine, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    (
        Engine::new(
            256 << 20,
            &Budget::new(u64::MAX),
            &State::open(directory.path(), directory.path(), &CpuPool::inline()).unwrap(),
        )
        .unwrap(),
        directory,
    )
}

/// The profile of parts of a column, with a second pass if one is needed.
fn profiled(parts: &[ArrayRef]) -> Profile {
    let (engine, _directory) = engine();
    let mut profile = engine.profile(parts[0].data_type()).unwrap();
    for part in parts {
        profile.push(part).unwrap();
    }
    if profile.begin_recount() {
        for part in parts {
            profile.recount(part).unwrap();
        }
    }
    profile.finish(3, 5).unwrap()
}

fn of(column: impl Array + 'static) -> Profile {
    let column: ArrayRef = Arc::new(column);
    let half = column.len() / 2;
    let profile = profiled(&[column.slice(0, half), column.slice(half, column.len() - half)]);
    assert_eq!(format!("{profile:?}"), format!("{:?}", profiled(&[column])));
    profile
}

#[test]
fn nan_is_counted_apart_and_zero_has_no_sign() {
    let profile = of(Float64Array::from(vec![Some(f64::NAN), Some(-0.0), None, Some(0.0), Some(f64::INFINITY)]));
    assert_eq!((profile.nulls, profile.nans, profile.distinct), (1, 1, Some((2, true))));
    assert_eq!(profile.bounds, Some((ProfileValue::Float(0.0), ProfileValue::Float(f64::INFINITY))));
    let top = [(ProfileValue::Float(0.0), 2), (ProfileValue::Float(f64::INFINITY), 1)];
    assert_eq!(profile.top, Some((top.to_vec(), true)));
    assert!(profile.moments.unwrap().0.is_nan());
}

#[test]
fn a_column_without_values_has_counts_only() {
    for column in [Arc::new(NullArray::new(7)) as ArrayRef, Arc::new(Int64Array::from(vec![None; 7]))] {
        let profile = profiled(&[column]);
        assert_eq!((profile.nulls, profile.bounds, profile.moments), (7, None, None));
        assert!(profile.distribution.is_none() && profile.lengths.is_none());
    }
    assert_eq!(profiled(&[Arc::new(StringArray::from(Vec::<&str>::new()))]).distinct, Some((0, true)));
}

#[test]
fn times_and_booleans_are_compared_as_integers() {
    let times = of(TimestampSecondArray::from(vec![-86_400, 5, 5, i64::MAX]).with_timezone("UTC"));
    assert_eq!(times.bounds, Some((ProfileValue::Integer(-86_400), ProfileValue::Integer(i64::MAX))));
    assert_eq!(times.distribution.unwrap().whole_quantile(1.0), Some(i64::MAX.into()));
    assert!(times.moments.is_none());
    let flags = of(BooleanArray::from(vec![true, false, true]));
    assert_eq!(flags.top.unwrap().0, [(ProfileValue::Integer(1), 2), (ProfileValue::Integer(0), 1)]);
}

#[test]
fn decimals_keep_their_digits_and_dictionaries_their_values() {
    let digits = [
        99_999_999_999_999_999_999_999_999_999_999_999_998_i128,
        5,
        99_999_999_999_999_999_999_999_999_999_999_999_999,
    ];
    let profile = of(Decimal128Array::from(digits.to_vec()).with_precision_and_scale(38, 2).unwrap());
    let unscaled = |value| ProfileValue::Decimal(arrow::datatypes::i256::from_i128(value));
    assert_eq!((profile.distinct, profile.bounds), (Some((3, true)), Some((unscaled(5), unscaled(digits[2])))));
    let texts = of(DictionaryArray::<Int32Type>::from_iter([Some("b"), None, Some("a"), Some("b")]));
    assert_eq!(texts.top.unwrap().0, [(ProfileValue::Text("b".into()), 2), (ProfileValue::Text("a".into()), 1)]);
    assert_eq!((texts.nulls, texts.lengths.map(|lengths| lengths.sum)), (1, Some(3)));
}

#[test]
fn a_long_text_of_a_dictionary_is_not_repeated_row_by_row() {
    // Row by row these are 4 GiB, more than a text array holds.
    const ROWS: usize = 4096;
    let text = "x".repeat(1 << 20);
    let keys = (0..ROWS).map(|row| (row % 3 > 0).then_some(i32::from(row % 2 == 0)));
    let dictionary = StringArray::from(vec![text.as_str(), "", "unused"]);
    let column = DictionaryArray::<Int32Type>::new(keys.collect(), Arc::new(dictionary));
    let profile = profiled(&[Arc::new(column)]);
    assert_eq!((profile.nulls, profile.distinct), (1366, Some((2, true))));
    let (top, is_complete) = profile.top.unwrap();
    assert!(is_complete && top.iter().map(|(_, rows)| rows).sum::<u64>() == 2730);
    assert_eq!(profile.lengths.map(|lengths| (lengths.min, lengths.max, lengths.count)), Some((0, 1 << 20, 2730)));
    let empty =
        DictionaryArray::<Int32Type>::new(vec![None, None].into(), Arc::new(StringArray::from(Vec::<&str>::new())));
    assert_eq!(profiled(&[Arc::new(empty)]).nulls, 2);
}

#[test]
fn lists_have_lengths_and_no_values() {
    let rows = [Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(1); 7])];
    let profile = of(ListArray::from_iter_primitive::<Int32Type, _, _>(rows));
    assert_eq!(profile.lengths, Some(Lengths { min: 0, max: 7, sum: 9, count: 3 }));
    assert!(profile.nulls == 1 && profile.distinct.is_none() && profile.top.is_none());
}

#[test]
fn frequent_values_among_many_are_counted_exactly() {
    // Every tenth value is 7 and every hundredth 9; the others occur once.
    const ROWS: i64 = 300_000;
    let value = |row: i64| match row {
        _ if row % 100 == 0 => 9,
        _ if row % 10 == 0 => 7,
        _ => 1_000_000 + row,
    };
    let profile = of(Int64Array::from_iter_values((0..ROWS).map(value)));
    let top = [(ProfileValue::Integer(7), 27_000), (ProfileValue::Integer(9), 3_000)];
    assert_eq!(profile.top, Some((top.to_vec(), false)));
    let (distinct, is_exact) = profile.distinct.unwrap();
    let error = (distinct as f64 / 270_002.0 - 1.0).abs();
    assert!(!is_exact && error < 0.05, "{distinct}");
    let spread = profile.distribution.unwrap();
    assert!(!spread.is_exact());
    assert!((spread.quantile(0.5) / (1_000_000.0 + 0.5 * (ROWS as f64 / 0.9) * 0.8) - 1.0).abs() < 0.2);
}

#[test]
fn long_texts_of_one_beginning_are_distinct() {
    let texts: Vec<String> = ["a", "b", "b"].map(|end| "ü".repeat(5000) + end).to_vec();
    let profile = of(StringArray::from(texts.clone()));
    assert_eq!(profile.distinct, Some((2, true)));
    assert_eq!(profile.bounds.unwrap().1, ProfileValue::Text(texts[1].as_str().into()));
    let (top, _) = profile.top.unwrap();
    assert_eq!((top[0].1, top[1].1), (2, 1));
    let ProfileValue::Text(start) = &top[0].0 else { panic!("a text") };
    assert!(start.len() < 300 && start.starts_with(&"ü".repeat(90)));
}

#[test]
fn a_profile_that_exceeds_the_memory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::new(
        1 << 20,
        &Budget::new(u64::MAX),
        &State::open(directory.path(), directory.path(), &CpuPool::inline()).unwrap(),
    )
    .unwrap();
    assert!(matches!(engine.profile(&DataType::Int64), Err(EngineError::Memory(_))));
}

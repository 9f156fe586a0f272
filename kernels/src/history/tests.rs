use arrow::{
    array::{Date32Array, Decimal128Array, Float32Array, StringArray, TimestampMicrosecondArray, UInt64Array},
    datatypes::Float64Type,
};
use proptest::prelude::*;

use super::*;

/// Rows of series of these lengths, of which the first is at row 7 of the dataset.
fn series(lengths: &[usize]) -> SeriesRows {
    let begins = lengths.iter().flat_map(|length| (0..*length).map(|row| row == 0)).skip(1);
    SeriesRows::new(7, begins)
}

fn computed(op: HistoryOp, values: impl Array + 'static, lengths: &[usize]) -> ArrayRef {
    let values: ArrayRef = Arc::new(values);
    let found = op.evaluate(&values, &series(lengths), "x").unwrap();
    assert_eq!(op.data_type(values.data_type()).unwrap(), *found.data_type());
    found
}

fn rolling(stat: RollingStat, length: u32) -> HistoryOp {
    HistoryOp::Rolling { stat, length }
}

#[test]
fn earlier_values_are_those_of_the_series() {
    let text = StringArray::from(vec![Some("a"), Some("b"), None, Some("c"), Some("d")]);
    let found = computed(HistoryOp::Lag { n: 1 }, text, &[3, 2]);
    assert_eq!(found.as_string::<i32>(), &StringArray::from(vec![None, Some("a"), Some("b"), None, Some("c")]));
    let found = computed(HistoryOp::Lag { n: 2 }, Int64Array::from(vec![1, 2, 3, 4]), &[4]);
    assert_eq!(found.as_primitive::<Int64Type>(), &Int64Array::from(vec![None, None, Some(1), Some(2)]));
}

#[test]
fn differences_are_exact() {
    let large = UInt64Array::from(vec![u64::MAX, u64::MAX - 3, u64::MAX]);
    let found = computed(HistoryOp::Diff { n: 1 }, large, &[3]);
    assert_eq!(found.as_primitive::<Int64Type>(), &Int64Array::from(vec![None, Some(-3), Some(3)]));
    let decimals = Decimal128Array::from(vec![Some(10), Some(13), None]).with_precision_and_scale(5, 1).unwrap();
    let found = computed(HistoryOp::Diff { n: 1 }, decimals, &[3]);
    assert_eq!(found.as_primitive::<Float64Type>(), &Float64Array::from(vec![None, Some(0.3), None]));
    let times = TimestampMicrosecondArray::from(vec![0, 1_500_000]).with_timezone("Europe/Berlin");
    let found = computed(HistoryOp::Diff { n: 1 }, times, &[2]);
    assert_eq!(found.as_primitive::<Float64Type>(), &Float64Array::from(vec![None, Some(1.5)]));
    let found = computed(HistoryOp::Diff { n: 1 }, Date32Array::from(vec![3, 1]), &[2]);
    assert_eq!(found.as_primitive::<Float64Type>(), &Float64Array::from(vec![None, Some(-172_800.0)]));
    let found = computed(HistoryOp::Diff { n: 1 }, Float32Array::from(vec![f32::NAN, 1.0, 2.5]), &[3]);
    assert_eq!(found.slice(2, 1).as_primitive::<Float64Type>(), &Float64Array::from(vec![1.5]));
    assert!(found.as_primitive::<Float64Type>().value(1).is_nan());
}

#[test]
fn results_beyond_64_bits_are_errors_with_the_row() {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX, 1]));
    for (op, row) in [(HistoryOp::Diff { n: 1 }, 1), (rolling(RollingStat::Sum, 2), 2)] {
        let error = op.evaluate(&values, &series(&[3]), "x").unwrap_err();
        assert!(matches!(error, KernelError::HistoryOverflow { row: found, .. } if found == row), "{error}");
    }
}

#[test]
fn statistics_leave_out_null_and_nan() {
    let values = || Float64Array::from(vec![Some(1.0), None, Some(f64::NAN), Some(4.0), Some(2.0)]);
    let found = |stat| computed(rolling(stat, 3), values(), &[5]).as_primitive::<Float64Type>().clone();
    let expected = |values: Vec<Option<f64>>| Float64Array::from(values);
    assert_eq!(found(RollingStat::Sum), expected(vec![Some(1.0), Some(1.0), Some(1.0), Some(4.0), Some(6.0)]));
    assert_eq!(found(RollingStat::Mean), expected(vec![Some(1.0), Some(1.0), Some(1.0), Some(4.0), Some(3.0)]));
    assert_eq!(found(RollingStat::Min), expected(vec![Some(1.0), Some(1.0), Some(1.0), Some(4.0), Some(2.0)]));
    assert_eq!(found(RollingStat::Std), expected(vec![None, None, None, None, Some(2_f64.sqrt())]));
    let counts = computed(rolling(RollingStat::Count, 3), values(), &[5]);
    assert_eq!(counts.as_primitive::<Int64Type>(), &Int64Array::from(vec![1, 1, 1, 1, 2]));
    let none = computed(rolling(RollingStat::Max, 2), Int64Array::from(vec![None, Some(5)]), &[1, 1]);
    assert_eq!(none.as_primitive::<Int64Type>(), &Int64Array::from(vec![None, Some(5)]));
}

#[test]
fn values_of_other_types_are_not_taken() {
    let text = DataType::Utf8;
    assert_eq!(HistoryOp::Lag { n: 1 }.data_type(&text), Ok(DataType::Utf8));
    assert_eq!(rolling(RollingStat::Count, 1).data_type(&text), Ok(DataType::Int64));
    assert_eq!(HistoryOp::Diff { n: 1 }.data_type(&text), Err("numbers, dates and times"));
    assert_eq!(rolling(RollingStat::Mean, 1).data_type(&DataType::Date32), Err("numbers"));
}

/// The statistic of the values of a window, one after another.
fn naive(stat: RollingStat, window: &[f64]) -> Option<f64> {
    let count = window.len() as f64;
    let mean = window.iter().sum::<f64>() / count;
    match stat {
        RollingStat::Count => Some(count),
        _ if window.is_empty() => None,
        RollingStat::Mean => Some(mean),
        RollingStat::Sum => Some(window.iter().sum()),
        RollingStat::Min => window.iter().copied().reduce(f64::min),
        RollingStat::Max => window.iter().copied().reduce(f64::max),
        RollingStat::Std if window.len() < 2 => None,
        RollingStat::Std => {
            let squares: f64 = window.iter().map(|value| (value - mean).powi(2)).sum();
            Some((squares / (count - 1.0)).sqrt())
        }
    }
}

const STATS: [RollingStat; 6] =
    [RollingStat::Mean, RollingStat::Std, RollingStat::Min, RollingStat::Max, RollingStat::Sum, RollingStat::Count];

proptest! {
    #[test]
    fn windows_have_the_statistics_of_their_values_wherever_reading_begins(
        lengths in prop::collection::vec(1_usize..12, 1..5),
        length in 1_u32..9,
        values in prop::collection::vec(prop::option::of(-100.0_f64..100.0), 60),
        first_row in 0_u64..20,
        skipped in 0_usize..40,
        stat in prop::sample::select(STATS.to_vec()),
    ) {
        let rows: usize = lengths.iter().sum();
        let values = Float64Array::from(values[..rows].to_vec());
        let begins: Vec<bool> = lengths.iter().flat_map(|length| (0..*length).map(|row| row == 0)).collect();
        let op = rolling(stat, length);
        let all: ArrayRef = Arc::new(values.clone());
        let of_all = SeriesRows::new(first_row, begins[1..].iter().copied());
        let found = op.evaluate(&all, &of_all, "x").unwrap();
        let doubles = |array: &ArrayRef| numbers(array).unwrap().as_primitive::<Float64Type>().clone();
        let found = doubles(&found);
        for row in 0..rows {
            let start = (0..=row).rev().find(|row| begins[*row]).unwrap().max((row + 1).saturating_sub(length as usize));
            let window: Vec<f64> = (start..=row).filter(|row| values.is_valid(*row)).map(|row| values.value(row)).collect();
            match naive(stat, &window) {
                None => prop_assert!(found.is_null(row)),
                Some(expected) => {
                    prop_assert!((found.value(row) - expected).abs() <= 1e-9, "{stat:?} {row}: {} {expected}", found.value(row));
                }
            }
        }
        let skipped = skipped.min(rows - 1);
        let rest = all.slice(skipped, rows - skipped);
        let of_rest = SeriesRows::new(first_row + skipped as u64, begins[skipped + 1..].iter().copied());
        let later = doubles(&op.evaluate(&rest, &of_rest, "x").unwrap());
        for row in skipped + length as usize - 1..rows {
            prop_assert_eq!(found.is_null(row), later.is_null(row - skipped));
            if found.is_valid(row) {
                prop_assert_eq!(found.value(row).to_bits(), later.value(row - skipped).to_bits());
            }
        }
    }
}

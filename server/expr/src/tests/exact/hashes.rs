//! `hash64` in expressions: its type, its seed, nulls, and pruning, which must not use bounds of what it hashes.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, AsArray, Date32Array, Float32Array, Int32Array, Int64Array, RecordBatch, StringArray, UInt64Array,
    },
    compute::cast,
    datatypes::{DataType, UInt64Type},
};

use super::{Expression, batch_of, check, evaluate, mask};

const SEED_0: [u64; 4] =
    [14_374_147_212_387_527_897, 3_439_722_301_264_460_078, 5_841_669_975_847_748_627, 3_244_421_341_483_603_138];
const SEED_7: [u64; 4] =
    [5_133_589_608_643_455_977, 12_012_694_768_356_207_812, 4_515_201_275_042_620_865, 10_464_923_555_624_353_464];

fn values(text: &str, batch: &RecordBatch) -> Vec<u64> {
    let values = evaluate(text, batch);
    assert_eq!(values.null_count(), 0, "{text}");
    values.as_primitive::<UInt64Type>().values().to_vec()
}

/// `[xxhash.xxh3_64_intdigest(struct.pack('<q', v), seed=s) for v in (0, 1, -1)]` for s in 0, 7, then of b"".
#[test]
fn hashes_are_those_of_xxh3() {
    let batch = batch_of("i", Arc::new(Int64Array::from(vec![Some(0), Some(1), Some(-1), None])));
    for (text, expected) in [("hash64(i)", SEED_0), ("hash64(i, 0)", SEED_0), ("HASH64(i, 7)", SEED_7)] {
        assert_eq!(values(text, &batch), expected, "{text}");
    }
    let largest = "hash64(i, 18446744073709551615)";
    assert_ne!(values(largest, &batch), SEED_0);
    assert_eq!(values("hash64(1, 7)", &batch)[0], SEED_7[1]);
    assert_eq!(values("hash64('')", &batch)[0], SEED_0[3]);
}

#[test]
fn every_type_and_encoding_of_a_value_hashes_alike() {
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(3), None, Some(-70)]));
    let expected = values("hash64(x, 5)", &batch_of("x", Arc::clone(&numbers)));
    for kind in [DataType::Int8, DataType::Int64, DataType::Date32] {
        let column = cast(&numbers, &kind).unwrap();
        assert_eq!(values("hash64(x, 5)", &batch_of("x", column)), expected, "{kind}");
    }
    let words: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("long enough for a view")]));
    let expected = values("hash64(x, 5)", &batch_of("x", Arc::clone(&words)));
    let dictionary = DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Utf8));
    for kind in [DataType::LargeUtf8, DataType::Utf8View, DataType::Binary, dictionary] {
        let batch = batch_of("x", cast(&words, &kind).unwrap());
        assert_eq!(values("hash64(x, 5)", &batch), expected, "{kind}");
        assert_eq!(values("hash64(coalesce(x, x), 5)", &batch), expected, "{kind}");
    }
    let floats = batch_of("x", Arc::new(Float32Array::from(vec![0.0, -0.0, f32::NAN, -f32::NAN])));
    let hashed = values("hash64(x)", &floats);
    assert_eq!((hashed[0], hashed[2]), (hashed[1], hashed[3]));
}

#[test]
fn a_split_and_its_complement_hold_every_row_once() {
    let rows: Vec<Option<i64>> = (0..1000).map(|row| (row % 7 != 0).then_some(row - 500)).collect();
    let texts: StringArray = rows.iter().map(|row| row.map(|row| format!("user {row}"))).collect();
    for column in [Arc::new(Int64Array::from(rows)) as ArrayRef, Arc::new(texts)] {
        let batch = batch_of("x", column);
        let held = mask("hash64(x, 7) % 10 = 0", &batch);
        assert_eq!(mask("NOT (hash64(x, 7) % 10 <> 0)", &batch), held);
        assert_eq!(mask("hash64(x, 7) % 10 NOT BETWEEN 1 AND 9", &batch), held);
        assert_eq!(mask("hash64(x, 7) % 10 IN (0)", &batch), held);
        assert_eq!(mask("CASE hash64(x, 7) % 10 WHEN 0 THEN true ELSE false END", &batch), held);
        assert!(held.iter().all(Option::is_some));
        let count = held.iter().filter(|is_held| **is_held == Some(true)).count();
        assert!((40..260).contains(&count), "{count}");
    }
}

#[test]
fn unsigned_integers_have_exact_remainders_and_bits() {
    let batch = batch_of("u", Arc::new(UInt64Array::from(vec![u64::MAX, 1 << 63, 0])));
    for (text, expected) in
        [("u % 10", [5, 8, 0]), ("u & 255", [255, 0, 0]), ("u >> 60", [15, 8, 0]), ("1000 % (u | 1)", [1000, 1000, 0])]
    {
        assert_eq!(values(text, &batch), expected, "{text}");
    }
    assert_eq!(mask("u % 10 - 9 < 0", &batch), [Some(true); 3]);
}

#[test]
fn bounds_of_a_column_do_not_prune_its_hashes() {
    let column = Int64Array::from_iter_values(0..40);
    let hashes: Vec<u64> = values("hash64(x, 3)", &batch_of("x", Arc::new(column.clone())));
    let equal: Vec<(String, Vec<Option<bool>>)> = (0..40)
        .map(|row| {
            let mask = (0..40).map(|other| Some(other == row)).collect();
            (format!("hash64(x, 3) = {}", hashes[row]), mask)
        })
        .collect();
    let equal: Vec<(&str, Vec<Option<bool>>)> =
        equal.iter().map(|(text, mask)| (text.as_str(), mask.clone())).collect();
    check("x", Arc::new(column), &equal);
    let null = values("hash64(NULL, 3)", &batch_of("x", Arc::new(Int64Array::from(vec![None, Some(1)]))))[0];
    check(
        "x",
        Arc::new(Int64Array::from(vec![None, Some(1)])),
        &[
            (&format!("hash64(x, 3) = {null}"), vec![Some(true), Some(false)]),
            ("hash64(x) IS NULL", vec![Some(false), Some(false)]),
            ("hash64(x) IS NOT NULL", vec![Some(true), Some(true)]),
        ],
    );
}

#[test]
fn rejects_seeds_and_values_that_cannot_be_used() {
    let day: ArrayRef = Arc::new(Date32Array::from(vec![1]));
    let list = arrow::array::ListArray::from_iter_primitive::<arrow::datatypes::Int32Type, _, _>([Some(vec![Some(1)])]);
    let batch = RecordBatch::try_from_iter([("x", day), ("list", Arc::new(list) as ArrayRef)]).unwrap();
    for (text, word) in [
        ("hash64()", "hash64"),
        ("hash64(x, 1, 2)", "optionally a seed"),
        ("hash64(x, -1)", "integer literal from 0"),
        ("hash64(x, 1.5)", "integer literal from 0"),
        ("hash64(x, '1')", "integer literal from 0"),
        ("hash64(x, NULL)", "integer literal from 0"),
        ("hash64(x, CAST(x AS INT))", "integer literal from 0"),
        ("hash64(list)", "cannot hash List"),
    ] {
        let error = Expression::compile(text, &batch.schema()).unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}

//! XXH3-64 of each value of a column, of the bytes that [`crate::ops::hash_bucket`] defines: `hash64 % n` is the bucket
//! of `n`.
//!
//! The hash of a null is that of no bytes, which is also the hash of an empty string. A dictionary is hashed once.

use arrow::{
    array::{Array, AsArray, UInt64Array, new_empty_array},
    compute::take,
    datatypes::DataType,
};

use crate::{
    execute::{dictionary::DictionaryKeys, load::NumberColumn, text::Strings},
    ops::hash,
    vector::{
        tile::{Scratch, Tile, Values},
        tiling::tiles,
    },
};

/// The hash of each value; `None` for nested types and intervals, which have no such bytes.
pub fn hash64(values: &dyn Array, seed: u64) -> Option<UInt64Array> {
    let Some(dictionary) = values.as_any_dictionary_opt() else { return plain(values, seed) };
    if dictionary.values().len() > values.len() {
        let expanded = take(dictionary.values().as_ref(), dictionary.keys(), None).ok()?;
        return plain(expanded.as_ref(), seed);
    }
    let hashes = plain(dictionary.values().as_ref(), seed)?;
    let keys = DictionaryKeys::new(dictionary)?;
    let null = hash64_null(seed);
    let hash = |row| keys.get(row).and_then(|key| hashes.values().get(key)).copied().unwrap_or(null);
    Some((0..values.len()).map(hash).collect::<Vec<_>>().into())
}

/// The hash of an integer, as in a column of integers.
#[inline]
pub fn hash64_integer(value: u64, seed: u64) -> u64 {
    hash::word(value, seed)
}

/// Whether [`hash64`] hashes values of a type.
pub fn is_hashable(data_type: &DataType) -> bool {
    hash64(new_empty_array(data_type).as_ref(), 0).is_some()
}

fn hash64_null(seed: u64) -> u64 {
    hash::bytes(&[], seed)
}

fn plain(values: &dyn Array, seed: u64) -> Option<UInt64Array> {
    let mut hashes = match Strings::new(values) {
        Some(strings) => of_strings(&strings, values.len(), seed),
        None => of_numbers(&NumberColumn::new(values)?, values.len(), seed),
    };
    if let Some(nulls) = values.logical_nulls() {
        let null = hash64_null(seed);
        for (hash, is_valid) in hashes.iter_mut().zip(nulls.iter()) {
            *hash = if is_valid { *hash } else { null };
        }
    }
    Some(hashes.into())
}

fn of_strings(strings: &Strings, rows: usize, seed: u64) -> Vec<u64> {
    let mut hashes = vec![0; rows];
    strings.hash(0..rows, seed, &mut hashes);
    hashes.into_iter().map(|hash| hash as u64).collect()
}

fn of_numbers(numbers: &NumberColumn, rows: usize, seed: u64) -> Vec<u64> {
    let mut tile = Tile::new(Scratch::default());
    let mut hashes = Vec::with_capacity(rows);
    for rows in tiles(0..rows) {
        numbers.load(rows, &mut tile);
        tile.map_to_ints(
            #[inline(always)]
            move |value| hash::word(value as u64, seed) as i64,
            #[inline(always)]
            move |value| hash::word(value, seed) as i64,
            #[inline(always)]
            move |value| hash::word(hash::float_bits(value), seed) as i64,
        );
        if let Values::Int(hashed) = tile.values() {
            hashes.extend(hashed.iter().map(|hash| *hash as u64));
        }
    }
    hashes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{
            ArrayRef, BinaryArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array,
            Int8Array, Int64Array, ListArray, NullArray, StringArray, TimestampMicrosecondArray, UInt64Array,
        },
        compute::cast,
        datatypes::{Int32Type, IntervalUnit},
    };
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    use super::*;
    use crate::{Op, testing::evaluate};

    const SEED: u64 = 0x8000_0000_0000_0007;

    fn hashes(values: &dyn Array) -> Vec<u64> {
        hash64(values, SEED).unwrap().values().to_vec()
    }

    fn expected<const N: usize>(bytes: [&[u8]; N]) -> Vec<u64> {
        bytes.iter().map(|bytes| xxh3_64_with_seed(bytes, SEED)).collect()
    }

    #[test]
    fn numbers_hash_as_eight_little_endian_bytes_in_every_width() {
        let numbers: [i64; 4] = [0, 7, -1, 100];
        let bytes = numbers.map(i64::to_le_bytes);
        let expected = expected([&bytes[0], &bytes[1], &bytes[2], &bytes[3]]);
        for kind in [DataType::Int8, DataType::Int16, DataType::Int32, DataType::Int64] {
            let values = cast(&Int64Array::from(numbers.to_vec()), &kind).unwrap();
            assert_eq!(hashes(&values), expected, "{kind}");
        }
        assert_eq!(hashes(&TimestampMicrosecondArray::from(numbers.to_vec())), expected);
        assert_eq!(hashes(&UInt64Array::from(vec![0, 7, u64::MAX, 100])), expected);
        assert_eq!(hashes(&BooleanArray::from(vec![false]))[0], expected[0]);
        assert_eq!(hash64_integer(7, SEED), expected[1]);
    }

    #[test]
    fn floats_and_decimals_hash_as_doubles_with_one_zero_and_one_nan() {
        let nan = 0x7ff8_0000_0000_0000_u64.to_le_bytes();
        let expected = expected([&[0; 8], &[0; 8], &1.25_f64.to_le_bytes(), &nan, &nan]);
        assert_eq!(hashes(&Float64Array::from(vec![0.0, -0.0, 1.25, f64::NAN, -f64::NAN])), expected);
        assert_eq!(hashes(&Float32Array::from(vec![0.0, -0.0, 1.25, f32::NAN, -f32::NAN])), expected);
        let decimal = Decimal128Array::from(vec![0, 125]).with_precision_and_scale(38, 2).unwrap();
        assert_eq!(hashes(&decimal), [expected[0], expected[2]]);
    }

    #[test]
    fn text_and_bytes_hash_alike_in_every_encoding() {
        let words = ["", "a", "four", "eleven long", "more than sixteen bytes of text"];
        let expected = expected(words.map(str::as_bytes));
        let plain: ArrayRef = Arc::new(StringArray::from(words.to_vec()));
        let dictionary = |values| DataType::Dictionary(Box::new(DataType::Int8), Box::new(values));
        for kind in [
            DataType::Utf8,
            DataType::LargeUtf8,
            DataType::Utf8View,
            DataType::Binary,
            DataType::LargeBinary,
            DataType::BinaryView,
            dictionary(DataType::Utf8),
            dictionary(DataType::LargeUtf8),
        ] {
            let values = cast(&plain, &kind).unwrap();
            assert_eq!(hashes(&values), expected, "{kind}");
            assert_eq!(hashes(&values.slice(2, 2)), expected[2..4], "{kind} sliced");
        }
        let fixed = FixedSizeBinaryArray::try_from_iter([b"four".as_slice()].into_iter()).unwrap();
        assert_eq!(hashes(&fixed), expected[2..3]);
        assert_eq!(hashes(&BinaryArray::from(vec![b"\xff\xfe".as_slice()])), [xxh3_64_with_seed(b"\xff\xfe", SEED)]);
    }

    #[test]
    fn nulls_hash_as_no_bytes() {
        let null = xxh3_64_with_seed(b"", SEED);
        let with_null: [ArrayRef; 5] = [
            Arc::new(Int8Array::from(vec![Some(1), None])),
            Arc::new(Float64Array::from(vec![Some(1.0), None])),
            Arc::new(StringArray::from(vec![Some("x"), None])),
            Arc::new(NullArray::new(2)),
            Arc::new([Some("x"), None].into_iter().collect::<arrow::array::DictionaryArray<Int32Type>>()),
        ];
        for values in with_null {
            let hashes = hash64(values.as_ref(), SEED).unwrap();
            assert_eq!((hashes.value(1), hashes.null_count()), (null, 0), "{}", values.data_type());
        }
    }

    #[test]
    fn hashes_modulo_buckets_are_those_of_hash_bucket() {
        let values = Int64Array::from_iter_values((0..5000).map(|row| row * row - 77));
        let buckets = evaluate(&[Op::HashBucket { buckets: 10, seed: 3 }], values.clone());
        let buckets: Vec<i64> = buckets.as_primitive::<arrow::datatypes::Int64Type>().values().to_vec();
        let hashed = hash64(&values, 3).unwrap();
        assert_eq!(hashed.values().iter().map(|hash| (hash % 10) as i64).collect::<Vec<_>>(), buckets);
    }

    #[test]
    fn nested_values_and_intervals_are_not_hashed() {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]);
        assert!(hash64(&list, 0).is_none());
        assert!(!is_hashable(&DataType::Interval(IntervalUnit::MonthDayNano)));
        assert!(is_hashable(&DataType::Decimal256(70, 2)));
    }
}

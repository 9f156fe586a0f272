//! `one_hot`: expands index i to `size` columns with a 1 in column i and 0 in the others. scikit-learn's
//! `OneHotEncoder`.
//!
//! - The last op of a chain. With `size` 0, the number of columns is the number of indices of the preceding op
//!   (`bucketize`, `vocab`, `hash_bucket` …), which may be followed by a `fill_null` with one of its indices.
//! - Whole numbers, which may be stored as floats (pandas stores integers with gaps that way). A fraction, NaN, a value
//!   outside 0…size−1 and null are errors of the row.

use crate::{
    error::OpProblem,
    vector::{
        cast::Element,
        exact::exact_u64,
        tile::{Tile, Values},
    },
};

/// The largest number of columns of a `one_hot`: 65,536 × 4 bytes are already 256 KiB per row.
pub(crate) const MAX_SIZE: u64 = 65_536;

/// Returns the number of columns.
pub(crate) fn compile(size: u32, cardinality: Option<u64>) -> Result<usize, OpProblem> {
    let size = if size > 0 {
        u64::from(size)
    } else {
        cardinality.ok_or_else(|| {
            let reason = "without a size, it must follow an op that yields indices (bucketize, vocab, hash_bucket, \
                          cross, ngram, sigrid_hash, positive_mod); set a size";
            OpProblem::Parameter(reason.to_owned())
        })?
    };
    if size > MAX_SIZE {
        return Err(OpProblem::Parameter(format!("{size} columns exceed the limit of {MAX_SIZE}")));
    }
    Ok(size as usize)
}

/// Writes the tile's rows into columns `at..at + size` of rows of `width` elements; all of these columns are written.
/// The error is the first row whose value is not an index.
pub(crate) fn write<E: Element>(
    tile: &Tile,
    out: &mut [E::Native],
    width: usize,
    at: usize,
    size: usize,
) -> Result<(), usize> {
    let below = |index: u64| (index < size as u64).then_some(index as usize);
    match tile.values() {
        Values::Int(values) => {
            place::<E, _>(values, out, width, at, size, |value| u64::try_from(value).ok().and_then(below))
        }
        Values::UInt(values) => place::<E, _>(values, out, width, at, size, below),
        Values::F32(values) => {
            place::<E, _>(values, out, width, at, size, |value| exact_u64(value.into()).and_then(below))
        }
        Values::F64(values) => place::<E, _>(values, out, width, at, size, |value| exact_u64(value).and_then(below)),
    }
}

/// Writes lists of indices into columns `at..at + size` of rows of `width` elements or, if every row has `columns`
/// indices, each index into its own `size` columns. `ends` is the end of each list in `values`. All of these columns
/// are written. The error is the first element that is not an index.
pub(crate) fn write_lists<E: Element>(
    values: Values,
    ends: &[usize],
    out: &mut [E::Native],
    width: usize,
    at: usize,
    size: usize,
    columns: Option<usize>,
) -> Result<(), usize> {
    let index = |element: usize| {
        let index = match values {
            Values::Int(values) => u64::try_from(values[element]).ok(),
            Values::UInt(values) => Some(values[element]),
            Values::F32(values) => exact_u64(values[element].into()),
            Values::F64(values) => exact_u64(values[element]),
        };
        index.filter(|index| *index < size as u64).map(|index| index as usize).ok_or(element)
    };
    if let Some(n) = columns {
        // n indices per row, each in separate columns.
        for (row, columns) in out.chunks_exact_mut(width).enumerate() {
            for (place, columns) in columns[at..at + n * size].chunks_exact_mut(size).enumerate() {
                columns.fill(E::ZERO);
                columns[index(row * n + place)?] = E::ONE;
            }
        }
        return Ok(());
    }
    let mut element = 0;
    for (columns, end) in out.chunks_exact_mut(width).zip(ends) {
        let columns = &mut columns[at..at + size];
        columns.fill(E::ZERO);
        while element < *end {
            columns[index(element)?] = E::ONE;
            element += 1;
        }
    }
    Ok(())
}

fn place<E: Element, S: Copy>(
    values: &[S],
    out: &mut [E::Native],
    width: usize,
    at: usize,
    size: usize,
    index: impl Fn(S) -> Option<usize>,
) -> Result<(), usize> {
    for (row, (columns, value)) in out.chunks_exact_mut(width).zip(values).enumerate() {
        let columns = &mut columns[at..at + size];
        columns.fill(E::ZERO);
        *index(*value).and_then(|index| columns.get_mut(index)).ok_or(row)? = E::ONE;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{Array, ArrayRef, AsArray, StringArray, UInt64Array},
        datatypes::UInt8Type,
    };

    use crate::{
        DType, Fill, Op, VocabValues,
        testing::{assemble, compile, doubles, ints, row_error, singles, table},
    };

    fn one_hot(size: u32) -> Op {
        Op::OneHot { size }
    }

    #[track_caller]
    fn check(ops: &[Op], column: impl Array + 'static, expected: &[u8]) {
        let values = assemble(DType::UInt8, &[ops], column).unwrap();
        assert_eq!(values.as_primitive::<UInt8Type>().values().as_ref(), expected);
    }

    /// `np.eye(3, dtype='u1')[[2, 0, 1]]`
    #[test]
    fn an_index_becomes_a_row_of_the_identity() {
        let expected = [0, 0, 1, 1, 0, 0, 0, 1, 0];
        check(&[one_hot(3)], ints(&[Some(2), Some(0), Some(1)]), &expected);
        check(&[one_hot(3)], UInt64Array::from(vec![2, 0, 1]), &expected);
        check(&[one_hot(3)], singles(&[Some(2.0), Some(-0.0), Some(1.0)]), &expected);
        check(&[one_hot(3)], doubles(&[Some(2.0), Some(0.0), Some(1.0)]), &expected);
    }

    #[test]
    fn derives_the_size_from_the_preceding_op() {
        let bucketize = Op::Bucketize { boundaries: vec![0.0] };
        check(&[bucketize, one_hot(0)], ints(&[Some(-3), Some(3)]), &[1, 0, 0, 1]);
        let list = Arc::new(VocabValues::Strings(vec!["a".into(), "b".into()]));
        let vocab = Op::Vocab { values: list, oov_buckets: 1 };
        let words = StringArray::from(vec![Some("b"), None, Some("c")]);
        check(&[vocab, one_hot(0)], words, &[0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1]);
        let hash = Op::HashBucket { buckets: 2, seed: 0 };
        let fill = Op::FillNull(Fill::Integer(1));
        check(&[hash, fill, one_hot(0)], ints(&[None]), &[0, 1]);
    }

    #[test]
    fn writes_one_in_every_dtype() {
        let bytes = |dtype| {
            let values: ArrayRef = assemble(dtype, &[&[one_hot(2)]], ints(&[Some(1)])).unwrap();
            values.to_data().buffers()[0].as_slice().to_vec()
        };
        assert_eq!(bytes(DType::Float32), [0, 0, 0, 0, 0, 0, 0x80, 0x3f]);
        assert_eq!(bytes(DType::Float16), [0, 0, 0, 0x3c]);
        assert_eq!(bytes(DType::BFloat16), [0, 0, 0x80, 0x3f]);
        assert_eq!(bytes(DType::Int32), [0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes(DType::Int64), [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes(DType::UInt8), [0, 1]);
    }

    #[test]
    fn rejects_invalid_indices_with_their_row() {
        let message = |column: ArrayRef| row_error(DType::UInt8, &[one_hot(3)], column);
        let expected = |value: &str| {
            format!(
                "output \"out\", column \"x\": {value} (row 1) is not an index of one_hot, which takes whole numbers \
                 from 0 to 2"
            )
        };
        assert_eq!(message(Arc::new(ints(&[Some(0), Some(3)]))), expected("3"));
        assert_eq!(message(Arc::new(ints(&[Some(0), Some(-1)]))), expected("-1"));
        assert_eq!(message(Arc::new(doubles(&[Some(0.0), Some(0.5)]))), expected("0.5"));
        assert_eq!(message(Arc::new(singles(&[Some(0.0), Some(f32::NAN)]))), expected("NaN"));
        assert!(message(Arc::new(ints(&[Some(0), None]))).contains("row 1 is null"));
    }

    #[test]
    fn rejects_invalid_sizes() {
        let table = table(Arc::new(ints(&[Some(1)])));
        let message = |ops: &[Op]| compile(DType::UInt8, &[ops], &table).unwrap_err().to_string();
        assert!(message(&[one_hot(0)]).contains("set a size"));
        assert!(message(&[one_hot(65_537)]).ends_with("65537 columns exceed the limit of 65536"));
        assert!(message(&[Op::HashBucket { buckets: 1 << 40, seed: 0 }, one_hot(0)]).contains("the limit of 65536"));
        assert!(
            message(&[one_hot(3), Op::Log1p])
                .ends_with("op log1p (number 2 of its chain): one_hot and multi_hot must be the last op of a chain")
        );
    }
}

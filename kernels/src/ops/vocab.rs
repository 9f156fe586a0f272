//! `vocab`: the position of a value in a list, from 1; 0 for null and for values that are not in the list. The oracle
//! of the list, which a fit orders by descending count and then ascending value, is a SQL `GROUP BY`.
//!
//! - With `oov_buckets` k > 0, null is still 0, and an unseen value gets V + 1 + (XXH3-64 with seed 0 of the bytes that
//!   `hash_bucket` defines) mod k, for a list of V values. There are V + 1 + k indices. The result is never null.
//! - The type of the list must match the column: strings for text, integers, unsigned integers for `UInt64`, floats (an
//!   f32 is widened). −0.0 equals 0.0, and all NaNs are equal. Dates and times compare by the stored count of the
//!   stored unit. An empty list of any type fits any column except bytes.
//! - Columns of decimals accept floats or decimals. Floats compare by nearest double, which distinguishes decimals of
//!   up to 15 digits. Decimals, given as text, compare by all digits, at any scale of the column; a preceding
//!   `fill_null` fills with its exact decimal. A value that the column's scale cannot represent still has an index,
//!   which only a filled null can get. The same applies to elements of lists. After `pad`, `ngram` and every op that
//!   computes, the values are floats.
//! - A repeated value is an error, and so is a list of more than 2^32 − 2 values.

use std::sync::Arc;

use super::{
    decimal::{DecimalIndex, DecimalVocab, TextProblem},
    fill_null::FillNull,
    hash::float_bits,
    number_op::NumberOp,
    vocab_index::{IndexProblem, MAX_VALUES, VocabIndex},
};
use crate::{
    domain::{Domain, Number},
    error::OpProblem,
    vector::tile::Tile,
};

/// A vocabulary in index order, in the type of the column's values. An empty list of any type fits any column except
/// bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum VocabValues {
    /// For text.
    Strings(Vec<String>),
    /// For integers up to 64 bits, Boolean and times.
    Integers(Vec<i64>),
    /// For `UInt64`.
    Unsigned(Vec<u64>),
    /// For floating-point numbers, and for decimals, which compare by nearest double.
    Floats(Vec<f64>),
    /// For decimals with all their digits, as text ([`ExactDecimal`](super::exact_decimal::ExactDecimal)).
    Decimals(Vec<String>),
}

impl VocabValues {
    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Strings(texts) | Self::Decimals(texts) => texts.len(),
            Self::Integers(integers) => integers.len(),
            Self::Unsigned(integers) => integers.len(),
            Self::Floats(numbers) => numbers.len(),
        }
    }
}

/// The index of a list, and the number of buckets for unseen values.
#[derive(Clone, Debug)]
pub(crate) struct Vocab {
    pub(crate) index: Arc<VocabIndex>,
    pub(crate) oov_buckets: u64,
}

/// The indices built so far during a compilation: chains that share a list share its index.
#[derive(Debug, Default)]
pub(crate) struct Indices {
    values: Vec<(Arc<VocabValues>, Arc<VocabIndex>)>,
    /// The indices of lists of decimals, by the scale of the column.
    decimals: Vec<(Arc<VocabValues>, i8, Arc<DecimalIndex>)>,
}

impl Indices {
    fn get(&mut self, values: &Arc<VocabValues>) -> Result<Arc<VocabIndex>, OpProblem> {
        if let Some((_, index)) = self.values.iter().find(|(list, _)| Arc::ptr_eq(list, values) || list == values) {
            return Ok(Arc::clone(index));
        }
        let index = match values.as_ref() {
            VocabValues::Strings(strings) | VocabValues::Decimals(strings) => VocabIndex::of_strings(strings),
            VocabValues::Integers(integers) => VocabIndex::of_bits(integers.iter().map(|value| *value as u64)),
            VocabValues::Unsigned(unsigned) => VocabIndex::of_bits(unsigned.iter().copied()),
            VocabValues::Floats(floats) => VocabIndex::of_bits(floats.iter().map(|value| float_bits(*value))),
        };
        let index = Arc::new(index.map_err(|problem| match problem {
            IndexProblem::Duplicate(entry) => twice(&show(values, entry)),
            IndexProblem::TooLong => OpProblem::Parameter(format!("a vocabulary has at most {MAX_VALUES} values")),
        })?);
        self.values.push((Arc::clone(values), Arc::clone(&index)));
        Ok(index)
    }

    /// The index of a list of decimals for columns of a scale; `None` for other lists.
    fn decimals(&mut self, values: &Arc<VocabValues>, scale: i8) -> Result<Option<Arc<DecimalIndex>>, OpProblem> {
        let VocabValues::Decimals(texts) = values.as_ref() else { return Ok(None) };
        let is_known =
            |(list, of, _): &&(Arc<VocabValues>, i8, _)| *of == scale && (Arc::ptr_eq(list, values) || list == values);
        if let Some((.., index)) = self.decimals.iter().find(is_known) {
            return Ok(Some(Arc::clone(index)));
        }
        let index = Arc::new(DecimalIndex::of_texts(texts, scale).map_err(|problem| match problem {
            TextProblem::Duplicate(entry) => twice(&texts[entry]),
            TextProblem::NoDecimal(entry) => OpProblem::Parameter(format!(
                "value {:?} is not a decimal; write its digits, with a point before the fraction, such as -123.45",
                texts[entry]
            )),
        })?);
        self.decimals.push((Arc::clone(values), scale, Arc::clone(&index)));
        Ok(Some(index))
    }
}

impl Vocab {
    /// Compiles for a domain: returns the step, and the number of indices that it yields.
    pub(crate) fn compile(
        values: &Arc<VocabValues>,
        oov_buckets: u32,
        domain: Domain,
        indices: &mut Indices,
    ) -> Result<(Self, u64), OpProblem> {
        if domain == Domain::Binary {
            return Err(OpProblem::Input { takes: "text or numbers", gets: domain.words() });
        }
        let (given, is_empty, fits) = match values.as_ref() {
            VocabValues::Strings(list) => ("a list of strings", list.is_empty(), domain == Domain::Text),
            VocabValues::Integers(list) => {
                ("a list of integers", list.is_empty(), domain == Domain::Number(Number::Int))
            }
            VocabValues::Unsigned(list) => {
                ("a list of unsigned integers", list.is_empty(), domain == Domain::Number(Number::UInt))
            }
            VocabValues::Floats(list) => {
                let fits = matches!(domain, Domain::Number(Number::F32 | Number::F64));
                ("a list of floats", list.is_empty(), fits)
            }
            // Columns of decimals take another path, `compile_decimals`.
            VocabValues::Decimals(list) => ("a list of decimals", list.is_empty(), false),
        };
        if !fits && !is_empty {
            let column =
                if domain == Domain::Number(Number::UInt) { "unsigned integers (UInt64)" } else { domain.words() };
            return Err(OpProblem::ValueType { parameter: "values", given, column });
        }
        let index = indices.get(values)?;
        let vocab = Self { index, oov_buckets: u64::from(oov_buckets) };
        let cardinality = vocab.index.len() as u64 + 1 + vocab.oov_buckets;
        Ok((vocab, cardinality))
    }

    /// Compiles for a column of decimals of a scale; `None` if the list does not hold decimals.
    pub(crate) fn compile_decimals(
        values: &Arc<VocabValues>,
        oov_buckets: u32,
        scale: i8,
        indices: &mut Indices,
    ) -> Result<Option<(DecimalVocab, u64)>, OpProblem> {
        let Some(index) = indices.decimals(values, scale)? else { return Ok(None) };
        let cardinality = index.len() as u64 + 1 + u64::from(oov_buckets);
        Ok(Some((DecimalVocab { index, oov_buckets: oov_buckets.into() }, cardinality)))
    }

    /// A vocabulary without buckets over an existing index.
    pub(crate) fn of_index(index: Arc<VocabIndex>) -> Self {
        Self { index, oov_buckets: 0 }
    }

    /// The index of text.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> i64 {
        self.place(self.index.find_bytes(bytes))
    }

    /// The index of text whose XXH3-64 with seed 0 is known.
    #[inline(always)]
    pub(crate) fn hashed(&self, bytes: &[u8], hash: u64) -> i64 {
        self.place(self.index.find_hashed(bytes, hash))
    }

    /// Prefetches what [`Self::hashed`] reads for a block of hashes.
    pub(crate) fn prefetch(&self, hashes: &[i64]) {
        self.index.prefetch(hashes);
    }

    fn bits(&self, bits: u64) -> i64 {
        self.place(self.index.find_bits(bits))
    }

    #[inline(always)]
    fn place(&self, found: Result<usize, u64>) -> i64 {
        match found {
            Ok(entry) => entry as i64 + 1,
            Err(_) if self.oov_buckets == 0 => 0,
            Err(hash) => (self.index.len() as u64 + 1 + hash % self.oov_buckets) as i64,
        }
    }
}

impl NumberOp for Vocab {
    fn apply(&self, tile: &mut Tile) {
        tile.map_to_ints(
            |value| self.bits(value as u64),
            |value| self.bits(value),
            |value| self.bits(float_bits(value)),
        );
        NULL_IS_ZERO.apply(tile);
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        let first = writer.vocabulary(&self.index);
        writer.group(&[self.index.len() as u64, self.oov_buckets]);
        writer.assign_int(&format!("valid ? vocab(run, {first}, value_bits({})) : 0", writer.value()));
        writer.set_valid();
    }
}

/// The fill after every vocabulary: nulls have index 0.
pub(crate) const NULL_IS_ZERO: FillNull = FillNull::Int(0);

fn twice(value: &str) -> OpProblem {
    OpProblem::Parameter(format!("value {value} is in the vocabulary twice"))
}

fn show(values: &VocabValues, entry: usize) -> String {
    match values {
        VocabValues::Decimals(list) => list[entry].clone(),
        VocabValues::Strings(list) => format!("{:?}", list[entry]),
        VocabValues::Integers(list) => list[entry].to_string(),
        VocabValues::Unsigned(list) => list[entry].to_string(),
        VocabValues::Floats(list) => list[entry].to_string(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryArray, BooleanArray, StringArray, UInt64Array};

    use super::*;
    use crate::{
        Op,
        ops::fill_null::Fill,
        testing::{assert_ints, compile_error, doubles, evaluate, ints, singles},
    };

    fn vocab(values: VocabValues, oov_buckets: u32) -> [Op; 1] {
        [Op::Vocab { values: Arc::new(values), oov_buckets }]
    }

    fn words(words: &[&str]) -> VocabValues {
        VocabValues::Strings(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn null_and_unseen_are_zero() {
        let column = StringArray::from(vec![Some("UA"), None, Some("AA"), Some("ZZ"), Some("")]);
        assert_ints(&evaluate(&vocab(words(&["AA", "UA", ""]), 0), column), &[2, 0, 1, 0, 3].map(Some));
        let column = ints(&[Some(7), None, Some(-1), Some(8)]);
        assert_ints(&evaluate(&vocab(VocabValues::Integers(vec![7, -1]), 0), column), &[1, 0, 2, 0].map(Some));
        let column = UInt64Array::from(vec![Some(u64::MAX), None, Some(1)]);
        assert_ints(&evaluate(&vocab(VocabValues::Unsigned(vec![1, u64::MAX]), 0), column), &[2, 0, 1].map(Some));
        let column = BooleanArray::from(vec![Some(true), Some(false), None]);
        assert_ints(&evaluate(&vocab(VocabValues::Integers(vec![1, 0]), 0), column), &[1, 2, 0].map(Some));
    }

    #[test]
    fn zeros_are_equal_and_so_are_nans() {
        let list = || VocabValues::Floats(vec![-0.0, f64::NAN, f64::from(0.1f32)]);
        let other_nan = f64::from_bits(0xfff0_0000_0000_1234);
        let column = doubles(&[Some(0.0), Some(-0.0), Some(other_nan), Some(0.1), None]);
        assert_ints(&evaluate(&vocab(list(), 0), column), &[1, 1, 2, 0, 0].map(Some));
        let column = singles(&[Some(0.0), Some(-0.0), Some(-f32::NAN), Some(0.1), None]);
        assert_ints(&evaluate(&vocab(list(), 0), column), &[1, 1, 2, 3, 0].map(Some));
        assert!(
            compile_error(&vocab(VocabValues::Floats(vec![0.0, -0.0]), 0), doubles(&[None]))
                .ends_with("value -0 is in the vocabulary twice")
        );
    }

    /// V = 2, k = 10: `3 + xxhash.xxh3_64_intdigest(b'Zürich') % 10`, and the same for `struct.pack('<q', 1)`
    #[test]
    fn hashes_unseen_values_after_the_list() {
        let column = StringArray::from(vec![Some("Zürich"), None, Some("b"), Some("")]);
        assert_ints(&evaluate(&vocab(words(&["a", "b"]), 10), column), &[3, 0, 2, 3 + 8].map(Some));
        let column = ints(&[Some(1), Some(0), None]);
        assert_ints(&evaluate(&vocab(VocabValues::Integers(vec![5, 0]), 10), column), &[3 + 8, 2, 0].map(Some));
    }

    #[test]
    fn looks_up_filled_nulls() {
        let fill = |op: Fill| Op::FillNull(op);
        let [lookup] = vocab(words(&["none", "a"]), 0);
        let column = StringArray::from(vec![Some("a"), None]);
        assert_ints(&evaluate(&[fill(Fill::Text("none".into())), lookup], column), &[2, 1].map(Some));
        let [lookup] = vocab(VocabValues::Integers(vec![4]), 0);
        assert_ints(&evaluate(&[fill(Fill::Integer(4)), lookup], ints(&[None, Some(1)])), &[1, 0].map(Some));
    }

    #[test]
    fn an_empty_list_fits_any_column_except_bytes() {
        for list in
            [words(&[]), VocabValues::Integers(vec![]), VocabValues::Unsigned(vec![]), VocabValues::Floats(vec![])]
        {
            assert_ints(
                &evaluate(&vocab(list.clone(), 0), StringArray::from(vec![Some("a"), None])),
                &[0, 0].map(Some),
            );
            assert_ints(&evaluate(&vocab(list.clone(), 1), ints(&[Some(1), None])), &[1, 0].map(Some));
            assert_ints(&evaluate(&vocab(list.clone(), 1), doubles(&[Some(1.0), None])), &[1, 0].map(Some));
            assert_ints(&evaluate(&vocab(list.clone(), 1), UInt64Array::from(vec![Some(1), None])), &[1, 0].map(Some));
            let bytes = BinaryArray::from(vec![b"a".as_slice()]);
            assert!(
                compile_error(&vocab(list, 1), bytes).ends_with("it takes text or numbers, but its input is bytes")
            );
        }
    }

    #[test]
    fn rejects_lists_of_another_type_and_repeated_values() {
        let text = || StringArray::from(vec!["a"]);
        assert!(
            compile_error(&vocab(VocabValues::Integers(vec![1]), 0), text())
                .ends_with("its parameter values is a list of integers, but its input is text")
        );
        assert!(compile_error(&vocab(words(&["1"]), 0), ints(&[None])).contains("a list of strings"));
        assert!(
            compile_error(&vocab(VocabValues::Integers(vec![1]), 0), UInt64Array::from(vec![1])).contains("UInt64")
        );
        assert!(
            compile_error(&vocab(words(&["a", "b", "a"]), 0), text())
                .ends_with("value \"a\" is in the vocabulary twice")
        );
    }

    #[test]
    fn finds_every_value_of_a_long_list_and_shares_its_index() {
        let list = Arc::new(VocabValues::Strings((0..20_000).map(|word| format!("word {word}")).collect()));
        let mut indices = Indices::default();
        let (vocab, cardinality) = Vocab::compile(&list, 3, Domain::Text, &mut indices).unwrap();
        assert_eq!(cardinality, 20_004);
        for word in 0..20_000 {
            assert_eq!(vocab.bytes(format!("word {word}").as_bytes()), word + 1);
        }
        assert!((20_001..20_004).contains(&vocab.bytes(b"word")));
        let (other, _) = Vocab::compile(&list, 0, Domain::Text, &mut indices).unwrap();
        assert!(Arc::ptr_eq(&vocab.index, &other.index));
    }
}

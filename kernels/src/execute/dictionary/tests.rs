//! Dictionary arrays give the results of their values, however they are sliced and keyed.

use std::sync::Arc;

use arrow::{array::*, datatypes::*};

use crate::{
    BatchBuilder, Chain, DType, Fill, Op, OutputSpec, Program, VocabValues,
    testing::{assert_doubles, assert_ints, compile, evaluate, table},
};

fn vocab() -> Op {
    Op::Vocab { values: Arc::new(VocabValues::Strings(vec!["a".into(), "none".into()])), oov_buckets: 0 }
}

fn hash() -> Op {
    Op::HashBucket { buckets: 1000, seed: 0 }
}

/// The values `a`, null and `AA`, with keys for each, null keys, and a key of the null value.
fn words<K: ArrowDictionaryKeyType>(keys: PrimitiveArray<K>) -> DictionaryArray<K> {
    DictionaryArray::new(keys, Arc::new(StringArray::from(vec![Some("a"), None, Some("AA")])))
}

#[track_caller]
fn check<K: ArrowDictionaryKeyType>(keys: Vec<Option<K::Native>>)
where
    PrimitiveArray<K>: From<Vec<Option<K::Native>>>,
{
    let whole = words(PrimitiveArray::<K>::from(keys));
    assert_ints(&evaluate(&[vocab()], whole.clone()), &[0, 1, 0, 0, 1].map(Some));
    // Two rows are too few to map a dictionary of three values.
    assert_ints(&evaluate(&[vocab()], whole.slice(1, 2)), &[1, 0].map(Some));
    assert_ints(&evaluate(&[vocab()], whole.slice(2, 3)), &[0, 0, 1].map(Some));
    assert_ints(&evaluate(&[hash()], whole.slice(0, 4)), &[Some(244), Some(hash_of("a")), None, None]);
    assert_ints(&evaluate(&[hash()], whole.slice(2, 2)), &[None, None]);
    let text = evaluate(&[Op::FillNull(Fill::Text("none".into()))], whole.slice(1, 3));
    assert_eq!(text.as_ref(), &StringArray::from(vec!["a", "none", "none"]) as &dyn Array);
    let filled = [Op::FillNull(Fill::Text("none".into())), vocab()];
    assert_ints(&evaluate(&filled, whole.clone()), &[0, 1, 2, 2, 1].map(Some));
    assert_ints(&evaluate(&filled, whole.slice(2, 2)), &[2, 2].map(Some));
}

fn hash_of(word: &str) -> i64 {
    let codes = evaluate(&[hash()], StringArray::from(vec![word]));
    codes.as_primitive::<Int64Type>().value(0)
}

/// Keys of `AA`, `a`, null, the null value, `a`.
#[test]
fn reads_text_by_every_key_type() {
    check::<Int8Type>(vec![Some(2), Some(0), None, Some(1), Some(0)]);
    check::<Int16Type>(vec![Some(2), Some(0), None, Some(1), Some(0)]);
    check::<Int32Type>(vec![Some(2), Some(0), None, Some(1), Some(0)]);
    check::<Int64Type>(vec![Some(2), Some(0), None, Some(1), Some(0)]);
    check::<UInt8Type>(vec![Some(2), Some(0), None, Some(1), Some(0)]);
    check::<UInt16Type>(vec![Some(2), Some(0), None, Some(1), Some(0)]);
    check::<UInt32Type>(vec![Some(2), Some(0), None, Some(1), Some(0)]);
    check::<UInt64Type>(vec![Some(2), Some(0), None, Some(1), Some(0)]);
}

#[test]
fn text_is_the_same_in_every_encoding() {
    let words = [Some("none"), Some("a"), None, Some("AA"), Some("a")];
    let long = "a value longer than the twelve bytes of a view";
    let strings: [ArrayRef; 3] = [
        Arc::new(StringArray::from(words.to_vec())),
        Arc::new(LargeStringArray::from(words.to_vec())),
        Arc::new(StringViewArray::from(words.to_vec())),
    ];
    for array in strings {
        assert_ints(&evaluate(&[vocab()], array.slice(1, 4)), &[1, 0, 0, 1].map(Some));
        let text = evaluate(&[], array.slice(1, 3));
        assert_eq!(text.as_ref(), &StringArray::from(vec![Some("a"), None, Some("AA")]) as &dyn Array);
    }
    let (plain, view) = (StringArray::from(vec![long]), StringViewArray::from(vec![long]));
    assert_eq!(&evaluate(&[hash()], plain), &evaluate(&[hash()], view));
    let bytes: [ArrayRef; 4] = [
        Arc::new(BinaryArray::from(vec![None, Some(b"AA".as_slice())])),
        Arc::new(LargeBinaryArray::from(vec![None, Some(b"AA".as_slice())])),
        Arc::new(BinaryViewArray::from(vec![None, Some(b"AA".as_slice())])),
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size([None, Some(b"AA")].into_iter(), 2).unwrap()),
    ];
    for array in bytes {
        assert_ints(&evaluate(&[hash()], array), &[None, Some(244)]);
    }
}

#[test]
fn loads_numbers_through_a_dictionary() {
    let keys = || Int8Array::from(vec![Some(2), None, Some(0), Some(1), Some(2)]);
    let values = [Some(1.5), None, Some(-2.5)];
    let whole = DictionaryArray::new(keys(), Arc::new(Float64Array::from(values.to_vec())));
    assert_doubles(&evaluate(&[], whole.clone()), &[Some(-2.5), None, Some(1.5), None, Some(-2.5)]);
    assert_doubles(&evaluate(&[], whole.slice(1, 2)), &[None, Some(1.5)]);
    assert_doubles(&evaluate(&[Op::FillNull(Fill::Number(0.0))], whole.slice(2, 2)), &[1.5, 0.0].map(Some));
    let whole = DictionaryArray::new(keys(), Arc::new(Int16Array::from(vec![Some(1), None, Some(-2)])));
    assert_ints(&evaluate(&[], whole), &[Some(-2), None, Some(1), None, Some(-2)]);
    let whole = DictionaryArray::new(keys(), Arc::new(NullArray::new(3)));
    assert_ints(&evaluate(&[], whole), &[None; 5]);
    let whole =
        DictionaryArray::new(Int8Array::from(vec![None, None]), Arc::new(Float64Array::from(vec![] as Vec<f64>)));
    assert_doubles(&evaluate(&[], whole), &[None, None]);
}

/// Keys under nulls are arbitrary; some writers leave invalid ones.
#[test]
fn never_follows_a_key_under_a_null() {
    let keys = Int32Array::new(vec![77, 0, -5].into(), Some(vec![false, true, false].into()));
    let whole = DictionaryArray::try_new(keys, Arc::new(StringArray::from(vec!["a"]))).unwrap();
    assert_ints(&evaluate(&[vocab()], whole.clone()), &[0, 1, 0].map(Some));
    assert_ints(&evaluate(&[hash()], whole.slice(2, 1)), &[None]);
}

/// A builder keeps mapped values between appends, and notices a different dictionary.
#[test]
fn appends_batches_of_several_dictionaries_and_encodings() {
    let column = |values: Vec<&str>, keys: Vec<i32>| -> RecordBatch {
        table(Arc::new(DictionaryArray::new(Int32Array::from(keys), Arc::new(StringArray::from(values)))))
    };
    let first = column(vec!["a", "none"], vec![0, 1, 0]);
    let second = column(vec!["none", "a"], vec![0, 1, 0]);
    let plain = table(Arc::new(StringViewArray::from(vec!["none", "b"])));
    let program = Arc::new(compile(DType::Int32, &[&[vocab()]], &plain).unwrap());
    let mut builder = BatchBuilder::new(program, 9);
    builder.append(&first, 0..3).unwrap();
    builder.append(&first, 1..2).unwrap();
    builder.append(&second, 0..2).unwrap();
    builder.append(&plain, 0..2).unwrap();
    builder.append(&first, 0..1).unwrap();
    let batch = builder.finish().unwrap();
    assert_eq!(batch.column(0).as_primitive::<Int32Type>().values().as_ref(), &[1, 2, 1, 2, 2, 1, 2, 0, 1]);
}

/// Two columns of a matrix of four-byte elements, whose values are converted once per dictionary.
#[test]
fn a_value_that_an_element_cannot_hold_fails_only_the_rows_that_have_it() {
    let numbers = |keys: Vec<Option<i32>>| {
        let values = Int64Array::from(vec![Some(5), Some(1 << 40), None]);
        let column: ArrayRef = Arc::new(DictionaryArray::new(Int32Array::from(keys), Arc::new(values)));
        RecordBatch::try_from_iter([("x", Arc::clone(&column)), ("y", column)]).unwrap()
    };
    let chain = |column: &str, ops: &[Op]| Chain { column: column.into(), ops: ops.to_vec() };
    let run = |keys: Vec<Option<i32>>, ops: &[Op]| {
        let table = numbers(keys);
        let chains = vec![chain("x", ops), chain("y", ops)];
        let outputs = [OutputSpec { name: "m".into(), dtype: DType::Int32, chains }];
        let program = Arc::new(Program::compile(&outputs, &table.schema()).unwrap());
        let mut builder = BatchBuilder::new(program, table.num_rows());
        builder.append(&table, 0..table.num_rows()).map_err(|error| error.to_string())?;
        let matrix = builder.finish().map_err(|error| error.to_string())?;
        let values = matrix.column(0).as_fixed_size_list().values().as_primitive::<Int32Type>().values().to_vec();
        Ok::<_, String>(values)
    };
    let small = Op::Clip { min: None, max: Some(7.0) };
    let filled = Op::FillNull(Fill::Number(-1.0));
    assert_eq!(run(vec![Some(0); 4], &[]).unwrap(), [5; 8]);
    assert!(run(vec![Some(0), Some(0), Some(1)], &[]).unwrap_err().contains("row 2"));
    assert!(run(vec![Some(0), Some(2)], &[]).unwrap_err().contains("row 1"));
    assert!(run(vec![Some(0), None], &[]).unwrap_err().contains("row 1"));
    assert_eq!(run(vec![None, Some(1), Some(2)], &[filled.clone(), small]).unwrap(), [-1, -1, 7, 7, -1, -1]);
    assert!(run(vec![None, Some(1)], &[filled]).unwrap_err().contains("row 1"));
}

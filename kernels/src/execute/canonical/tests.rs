//! Rows have one layout, for any pieces.

use arrow::{
    array::*,
    buffer::OffsetBuffer,
    compute::{concat, interleave},
    datatypes::{DataType, Field, Int8Type, Int32Type},
};

use super::*;

fn words(keys: Vec<Option<i32>>, values: Vec<Option<&str>>) -> ArrayRef {
    Arc::new(DictionaryArray::<Int32Type>::new(keys.into(), Arc::new(StringArray::from(values))))
}

fn keys(array: &ArrayRef) -> Vec<Option<i32>> {
    array.as_dictionary::<Int32Type>().keys().iter().collect()
}

#[test]
fn a_dictionary_has_the_values_of_its_rows_by_first_appearance() {
    let array = words(vec![Some(3), None, Some(1), Some(2), Some(3)], vec![Some("a"), Some("b"), Some("c"), Some("b")]);
    let rows = canonical(array).unwrap();
    assert_eq!(keys(&rows), [Some(0), None, Some(0), Some(1), Some(0)]);
    assert_eq!(rows.as_dictionary::<Int32Type>().values().as_string::<i32>(), &StringArray::from(vec!["b", "c"]));
}

#[test]
fn null_values_are_null_keys_and_slices_lose_other_values() {
    let array = words(vec![Some(0), Some(1), Some(2), None], vec![Some("a"), None, Some("c")]);
    let rows = canonical(array.slice(1, 3)).unwrap();
    assert_eq!(keys(&rows), [None, Some(0), None]);
    assert_eq!(rows.as_dictionary::<Int32Type>().values().as_string::<i32>(), &StringArray::from(vec!["c"]));
    assert_eq!(canonical(array.slice(0, 0)).unwrap().as_dictionary::<Int32Type>().values().len(), 0);
}

#[test]
fn dictionaries_are_equal_whether_their_pieces_share_values() {
    let shared = words(vec![Some(0), Some(1)], vec![Some("x"), Some("y")]);
    let copy = words(vec![Some(0), Some(1)], vec![Some("x"), Some("y")]);
    let rows = [(0, 1), (1, 0), (0, 0), (1, 1)];
    let one = canonical(interleave(&[&shared, &shared], &rows).unwrap()).unwrap();
    let two = canonical(interleave(&[&shared, &copy], &rows).unwrap()).unwrap();
    assert_eq!(one.to_data(), two.to_data());
    assert_eq!(keys(&one), keys(&two));
    assert_eq!(keys(&one), [Some(0), Some(1), Some(1), Some(0)]);
}

#[test]
fn numbers_keep_their_bits() {
    let values = Float64Array::from(vec![0.0, -0.0, f64::NAN, 0.0]);
    let keys = Int8Array::from(vec![3, 1, 2, 0, 2]);
    let rows = canonical(Arc::new(DictionaryArray::<Int8Type>::new(keys, Arc::new(values)))).unwrap();
    let rows = rows.as_dictionary::<Int8Type>();
    assert_eq!(rows.keys().values().to_vec(), [0, 1, 2, 0, 2]);
    let bits: Vec<u64> =
        rows.values().as_primitive::<arrow::datatypes::Float64Type>().values().iter().map(|v| v.to_bits()).collect();
    assert_eq!(bits, [0.0_f64.to_bits(), (-0.0_f64).to_bits(), f64::NAN.to_bits()]);
}

#[test]
fn views_have_one_copy_of_the_texts_of_their_rows() {
    let long = "a text of more than twelve bytes";
    let texts: ArrayRef = Arc::new(StringViewArray::from(vec![
        Some("another long text, of no row"),
        Some(long),
        None,
        Some(long),
        Some("b"),
    ]));
    let sliced = canonical(texts.slice(1, 4)).unwrap();
    let pieces = canonical(concat(&[&texts.slice(1, 2), &texts.slice(3, 2)]).unwrap()).unwrap();
    for rows in [&sliced, &pieces] {
        let rows = rows.as_string_view();
        assert_eq!(rows.iter().collect::<Vec<_>>(), [Some(long), None, Some(long), Some("b")]);
        assert_eq!(rows.data_buffers().iter().map(arrow::buffer::Buffer::len).sum::<usize>(), long.len());
    }
    let bytes: ArrayRef = Arc::new(BinaryViewArray::from_iter_values([long.as_bytes(); 3]));
    assert_eq!(canonical(bytes).unwrap().as_binary_view().data_buffers()[0].len(), long.len());
}

#[test]
fn elements_of_lists_are_canonical() {
    let words = words(vec![Some(2), Some(1), Some(2), Some(0)], vec![Some("a"), Some("b"), Some("c")]);
    let item = Arc::new(Field::new_list_field(words.data_type().clone(), true));
    let lists: ArrayRef = Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([1, 2, 0, 1]), words, None));
    let rows = canonical(lists.slice(1, 2)).unwrap();
    let values = rows.as_list::<i32>().values();
    assert_eq!(keys(values), [Some(0), Some(1)]);
    assert_eq!(values.as_dictionary::<Int32Type>().values().as_string::<i32>(), &StringArray::from(vec!["b", "c"]));
}

#[test]
fn other_columns_are_not_copied() {
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), None]);
    for array in
        [Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef, Arc::new(StringArray::from(vec!["a"])), Arc::new(list)]
    {
        assert!(Arc::ptr_eq(&array, &canonical(Arc::clone(&array)).unwrap()), "{}", array.data_type());
    }
    assert!(!shares_values(&DataType::Null));
}

#[test]
fn compact_rows_keep_no_other_memory() {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
    let words = words(vec![Some(1), Some(2), Some(1)], vec![Some("a"), Some("b"), Some("c")]);
    let rows = RecordBatch::try_from_iter([("number", numbers.slice(70_000, 2)), ("word", words.slice(1, 2))]).unwrap();
    let copy = compact(&rows).unwrap();
    assert_eq!(copy["number"].as_ref(), &Int64Array::from(vec![70_000, 70_001]) as &dyn Array);
    assert!(copy["number"].to_data().buffers()[0].capacity() < 1024);
    assert_eq!(keys(&copy["word"]), [Some(0), Some(1)]);
    assert_eq!(
        copy["word"].as_dictionary::<Int32Type>().values().as_string::<i32>(),
        &StringArray::from(vec!["c", "b"])
    );
    let options = RecordBatchOptions::new().with_row_count(Some(3));
    let none =
        RecordBatch::try_new_with_options(Arc::new(arrow::datatypes::Schema::empty()), vec![], &options).unwrap();
    assert_eq!(compact(&none).unwrap().num_rows(), 3);
}

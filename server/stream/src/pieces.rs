//! Parts of a block of a raw table that fit the messages of any client.

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::DataType,
};

/// Bytes of a message's rows. Flight clients in Go, Java, Node and Rust accept messages of 4 MiB unless they are
/// configured otherwise, so other Flight servers cut at this size, too.
const PIECE_BYTES_MAX: usize = 2 << 20;

/// The rows in order, in batches of at most [`PIECE_BYTES_MAX`]. A larger row is alone in its batch.
pub(super) fn pieces(rows: RecordBatch) -> Vec<RecordBatch> {
    let mut pieces = Vec::with_capacity(1);
    // Halves, so that rows of very different sizes need no search for the best cut. The first half is on top.
    let mut waiting = vec![rows];
    while let Some(rows) = waiting.pop() {
        let row_count = rows.num_rows();
        if row_count <= 1 || rows.columns().iter().map(|column| sent_bytes(column)).sum::<usize>() <= PIECE_BYTES_MAX {
            pieces.push(rows);
            continue;
        }
        let half = row_count / 2;
        waiting.push(rows.slice(half, row_count - half));
        waiting.push(rows.slice(0, half));
    }
    pieces
}

/// Bytes that an array takes in a message. The values of a dictionary are not part of it.
fn sent_bytes(array: &dyn Array) -> usize {
    let rows = array.len();
    let of_lists = |values: &dyn Array, start: usize, end: usize, offset_bytes: usize| {
        offset_bytes * (rows + 1) + sent_bytes(&values.slice(start, end - start))
    };
    let values = match array.data_type() {
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let ends = lists.value_offsets();
            of_lists(lists.values(), ends[0] as usize, ends[rows] as usize, size_of::<i32>())
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let ends = lists.value_offsets();
            of_lists(lists.values(), ends[0] as usize, ends[rows] as usize, size_of::<i64>())
        }
        DataType::Map(..) => {
            let maps = array.as_map();
            let ends = maps.value_offsets();
            of_lists(maps.entries(), ends[0] as usize, ends[rows] as usize, size_of::<i32>())
        }
        DataType::FixedSizeList(..) => sent_bytes(array.as_fixed_size_list().values()),
        DataType::Struct(_) => array.as_struct().columns().iter().map(|column| sent_bytes(column)).sum(),
        DataType::Dictionary(..) => sent_bytes(array.as_any_dictionary().keys()),
        DataType::Utf8View => viewed_bytes(array.as_string_view().iter().map(|text| text.map(str::len))),
        DataType::BinaryView => viewed_bytes(array.as_binary_view().iter().map(|bytes| bytes.map(<[u8]>::len))),
        _ => {
            let data = array.to_data();
            data.get_slice_memory_size().unwrap_or_else(|_| data.get_buffer_memory_size())
        }
    };
    values + if array.nulls().is_some() { rows.div_ceil(8) } else { 0 }
}

fn viewed_bytes(lengths: impl Iterator<Item = Option<usize>>) -> usize {
    /// Bytes of a view.
    const VIEW_BYTES: usize = 16;
    lengths.map(|length| VIEW_BYTES + length.unwrap_or(0)).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{ArrayRef, FixedSizeListArray, Float64Array, ListArray, StringArray, StringViewArray, StructArray},
        compute::concat_batches,
        datatypes::{Field, Int64Type},
    };

    use super::*;

    const MIB: usize = 1 << 20;

    fn batch(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter([("x", column)]).unwrap()
    }

    /// Numbers of 8 bytes in an array that starts in the midst of another.
    fn numbers(count: usize) -> ArrayRef {
        Arc::new(Float64Array::from_iter_values((0..count + 100).map(|row| row as f64)).slice(100, count))
    }

    #[test]
    fn rows_of_every_layout_are_cut_into_messages_that_any_client_accepts() {
        let lists: Vec<_> = (0..2048).map(|_| Some(vec![Some(7); 1024])).collect();
        let fixed =
            FixedSizeListArray::new(Arc::new(Field::new("x", DataType::Float64, true)), 16, numbers(16 << 16), None);
        let columns: [(ArrayRef, usize); 6] = [
            (numbers(MIB), 8),
            (Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)), 16),
            (Arc::new(fixed), 8),
            (Arc::new(StringArray::from_iter_values((0..8192).map(|_| "x".repeat(1024)))), 8),
            (Arc::new(StringViewArray::from_iter_values((0..8192).map(|_| "x".repeat(1024)))), 8),
            (Arc::new(StructArray::from(vec![(Arc::new(Field::new("y", DataType::Float64, true)), numbers(MIB))])), 8),
        ];
        for (column, mib) in columns {
            let (kind, rows) = (column.data_type().clone(), batch(column));
            let cut = pieces(rows.clone());
            assert_eq!(concat_batches(&rows.schema(), &cut).unwrap(), rows, "{kind}");
            assert!((mib / 2..=mib).contains(&cut.len()), "{kind}: {} pieces", cut.len());
            assert!(cut.iter().all(|piece| sent_bytes(piece.column(0)) <= PIECE_BYTES_MAX), "{kind}");
        }
    }

    #[test]
    fn a_large_row_is_alone_and_small_rows_stay_together() {
        let sizes = [10, 10, 3 * MIB, 10, 10, 10];
        let text = StringArray::from_iter_values(sizes.iter().map(|size| "x".repeat(*size)));
        let cut: Vec<_> = pieces(batch(Arc::new(text))).iter().map(RecordBatch::num_rows).collect();
        assert_eq!(cut.iter().sum::<usize>(), sizes.len());
        assert_eq!(pieces(batch(numbers(1000))).len(), 1);
        let before_large = |pieces: &[usize]| {
            pieces
                .iter()
                .scan(0, |row, rows| {
                    *row += rows;
                    Some(*row)
                })
                .any(|row| row == 2)
        };
        assert!(before_large(&cut), "{cut:?}");
        assert_eq!(pieces(batch(numbers(0))).len(), 1);
    }
}

//! The tables of most targets: `t`, two files of two row groups with columns of most types, and `u`, a lookup table.

use std::{fs, path::Path, sync::Arc};

use arrow::{
    array::{
        ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array, Int8Array,
        Int64Array, ListArray, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
    },
    datatypes::{Int32Type, Int64Type},
};
use parquet::{arrow::ArrowWriter, file::properties::WriterProperties};

/// The tables. Each is a directory.
pub(crate) const NAMES: [&str; 2] = ["t", "u"];

/// The columns of `t`.
pub(crate) const COLUMNS: [&str; 12] =
    ["id", "small", "ratio", "amount", "price", "name", "kind", "flag", "day", "at", "ids", "words"];

/// Rows of a row group and of a file of `t`.
const GROUP_ROWS: usize = 50;
const FILE_ROWS: i64 = 100;

/// Files of `t`.
const FILES: i64 = 2;

/// Writes the tables.
pub(crate) fn write(directory: &Path) {
    for name in NAMES {
        fs::create_dir(directory.join(name)).expect("create a directory");
    }
    for file in 0..FILES {
        let rows = file * FILE_ROWS..(file + 1) * FILE_ROWS;
        write_file(&directory.join(format!("t/part-{file}.parquet")), &batch(rows));
    }
    write_file(&directory.join("u/only.parquet"), &lookup_table());
}

fn write_file(path: &Path, batch: &RecordBatch) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(GROUP_ROWS)).build();
    let file = fs::File::create(path).expect("create a file");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer");
    writer.write(batch).expect("write rows");
    writer.close().expect("write a footer");
}

fn table<const N: usize>(columns: [(&str, ArrayRef); N]) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, values)| (name, values, true))).expect("a table")
}

fn batch(rows: std::ops::Range<i64>) -> RecordBatch {
    let of = |value: fn(i64) -> Option<f64>| rows.clone().map(value);
    let amounts = of(|row| match row % 7 {
        0 => None,
        1 => Some(f64::NAN),
        rest => Some(rest as f64 * 1e3 - 4e3),
    });
    let text = |row: i64| match row % 5 {
        0 => None,
        1 => Some(String::new()),
        rest => Some(format!("käse {}", row * rest)),
    };
    let decimals = rows.clone().map(|row| (row % 9 != 0).then_some(i128::from(row) * 105));
    let decimals = decimals.collect::<Decimal128Array>().with_precision_and_scale(12, 2).expect("a decimal");
    let kinds: DictionaryArray<Int32Type> =
        rows.clone().map(|row| ["a", "b", "c"].get(row as usize % 4).copied()).collect();
    let ids =
        rows.clone().map(|row| (row % 6 != 0).then(move || (0..row % 4).map(move |id| (id != 2).then_some(id * row))));
    let days = StructArray::from(vec![(
        Arc::new(arrow::datatypes::Field::new("inner", arrow::datatypes::DataType::Int64, true)),
        Arc::new(rows.clone().map(Some).collect::<Int64Array>()) as ArrayRef,
    )]);
    table([
        ("id", Arc::new(rows.clone().map(Some).collect::<Int64Array>())),
        ("small", Arc::new(rows.clone().map(|row| (row % 10 != 3).then_some(row as i8)).collect::<Int8Array>())),
        (
            "ratio",
            Arc::new(
                of(|row| (row % 3 != 0).then_some(row as f64 / 200.0))
                    .map(|x| x.map(|x| x as f32))
                    .collect::<Float32Array>(),
            ),
        ),
        ("amount", Arc::new(amounts.collect::<Float64Array>())),
        ("price", Arc::new(decimals)),
        ("name", Arc::new(rows.clone().map(text).collect::<StringArray>())),
        ("kind", Arc::new(kinds)),
        ("flag", Arc::new(rows.clone().map(|row| (row % 4 != 0).then_some(row % 2 == 0)).collect::<BooleanArray>())),
        ("day", Arc::new(rows.clone().map(|row| Some(row as i32 * 100)).collect::<Date32Array>())),
        ("at", Arc::new(rows.clone().map(|row| Some(row << 40)).collect::<TimestampMicrosecondArray>())),
        ("ids", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(ids))),
        ("words", words(rows)),
        ("nested", Arc::new(days)),
    ])
}

/// Lists of words, some empty or null.
fn words(rows: std::ops::Range<i64>) -> ArrayRef {
    let mut lists = arrow::array::ListBuilder::new(arrow::array::StringBuilder::new());
    for row in rows {
        for word in 0..row % 3 {
            lists.values().append_option((word != 1).then(|| format!("w{word}")));
        }
        lists.append(row % 8 != 0);
    }
    Arc::new(lists.finish())
}

/// A table with a unique key.
fn lookup_table() -> RecordBatch {
    let rows = 0..60_i64;
    table([
        ("key", Arc::new(rows.clone().map(|row| Some(row * 3)).collect::<Int64Array>())),
        ("word", Arc::new(rows.clone().map(|row| Some(format!("käse {row}"))).collect::<StringArray>())),
        ("weight", Arc::new(rows.map(|row| (row % 5 != 0).then_some(row as f64)).collect::<Float64Array>())),
    ])
}

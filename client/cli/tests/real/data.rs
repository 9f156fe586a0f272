//! Small datasets: 100 rows in two files of two row groups each, and a wide one.

use std::{
    fs::{self, File},
    path::Path,
    sync::Arc,
};

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::{arrow::ArrowWriter, file::properties::WriterProperties};

pub(crate) const ROWS: i64 = 100;
pub(crate) const FILES: i64 = 2;
pub(crate) const ROW_GROUP_ROWS: i64 = 25;

/// Plan with parameters to learn: a mean and deviation, and a vocabulary.
pub(crate) const PLAN: &str = r#"{
    "outputs": [
        {"name": "dense", "parts": [{"columns": ["delay"], "ops": [{"fill_null": {"stat": "MEAN"}}, {"standardize": {}}]}]},
        {"name": "cats", "dtype": "INT32", "parts": [{"columns": ["carrier"], "ops": [{"vocab": {}}]}]},
        {"name": "id", "dtype": "AS_STORED", "parts": [{"columns": ["id"]}]}
    ]}"#;

/// Columns: `id` = the row's index; `delay` = its remainder by 10, null for 0; `carrier` = one of three in turn.
pub(crate) fn write(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let rows_per_file = ROWS / FILES;
    for file in 0..FILES {
        let ids = file * rows_per_file..(file + 1) * rows_per_file;
        let batch = rows(ids);
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(ROW_GROUP_ROWS as usize)).build();
        let target = File::create(folder.join(format!("part-{file}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(target, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

pub(crate) const WIDE_ROWS: i64 = 1000;
pub(crate) const WIDE_BYTES: usize = 32 << 10;

/// Plan that passes `id` and `text` through.
pub(crate) const WIDE_PLAN: &str = r#"{
    "outputs": [
        {"name": "id", "dtype": "AS_STORED", "parts": [{"columns": ["id"]}]},
        {"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]}
    ]}"#;

/// Writes a dataset that is small on disk and 32 MB on the wire, more than the flow control window and kernel buffers.
/// Columns: `id` = the row's index; `text` = 32 KiB of one of four letters.
pub(crate) fn write_wide(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let texts = ["a", "b", "c", "d"].map(|letter| letter.repeat(WIDE_BYTES));
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..WIDE_ROWS))),
        ("text", Arc::new(StringArray::from_iter_values((0..WIDE_ROWS).map(|id| &texts[id as usize % 4])))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(100)).build();
    let target = File::create(folder.join("part.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(target, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    let delays = ids.clone().map(|id| (id % 10 != 0).then_some((id % 10) as f64));
    let carriers = ids.clone().map(|id| ["AA", "B6", "UA"][(id % 3) as usize]);
    let columns: [(&str, ArrayRef, bool); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids)), false),
        ("delay", Arc::new(delays.collect::<Float64Array>()), true),
        ("carrier", Arc::new(StringArray::from_iter_values(carriers)), false),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

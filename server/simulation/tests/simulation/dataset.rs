//! The dataset of all runs: 420 rows in three files of several row groups, small enough to be read thousands of times.

use std::{collections::BTreeMap, sync::Arc};

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use bytes::Bytes;
use parquet::{arrow::ArrowWriter, file::properties::WriterProperties};

/// Its name on the server.
pub(crate) const NAME: &str = "numbers";

/// Its rows.
pub(crate) const ROWS: u64 = 420;

/// Rows of each file, by name.
const FILE_ROWS: [i64; 3] = [150, 90, 180];

const ROW_GROUP_ROWS: usize = 40;

/// The plan of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Plan {
    /// Every row.
    Whole,
    /// Rows that pass a filter, which the server counts first.
    Filtered,
}

impl Plan {
    /// The plan as JSON.
    pub(crate) fn json(self) -> &'static str {
        match self {
            Self::Whole => {
                r#"{"outputs": [
                    {"name": "dense", "parts": [{"columns": ["delay", "id"], "ops": [{"fill_null": {"value": -1}}]}]},
                    {"name": "id", "dtype": "AS_STORED", "parts": [{"columns": ["id"]}]},
                    {"name": "carrier", "dtype": "AS_STORED", "parts": [{"columns": ["carrier"]}]}]}"#
            }
            Self::Filtered => {
                r#"{"filter": "delay IS NOT NULL AND id % 7 <> 3",
                    "derive": [{"name": "late", "expr": "delay > 15"}],
                    "outputs": [
                    {"name": "dense", "parts": [{"columns": ["delay", "late"]}]},
                    {"name": "id", "dtype": "AS_STORED", "parts": [{"columns": ["id"]}]}]}"#
            }
        }
    }

    /// The rows that pass, by index in file order.
    pub(crate) fn rows(self) -> impl Iterator<Item = u64> {
        let passes = move |id: &i64| match self {
            Self::Whole => true,
            Self::Filtered => delay(*id).is_some() && id % 7 != 3,
        };
        (0..ROWS as i64).filter(passes).map(|id: i64| id as u64)
    }
}

/// The files by key in the bucket. Columns: `id` is the row index; `delay` is the index modulo 31, null for every
/// eleventh row; `carrier` cycles through three values.
pub(crate) fn files() -> BTreeMap<String, Bytes> {
    let mut first = 0;
    let file = |(number, rows): (usize, i64)| {
        let bytes = file(first..first + rows);
        first += rows;
        (format!("{NAME}/part-{number}.parquet"), bytes)
    };
    FILE_ROWS.into_iter().enumerate().map(file).collect()
}

fn delay(id: i64) -> Option<f64> {
    (id % 11 != 0).then_some((id % 31) as f64)
}

fn file(ids: std::ops::Range<i64>) -> Bytes {
    let delays = ids.clone().map(delay);
    let carriers = ids.clone().map(|id| ["AA", "B6", "UA"][(id % 3) as usize]);
    let columns: [(&str, ArrayRef, bool); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids.clone())), false),
        ("delay", Arc::new(delays.collect::<Float64Array>()), true),
        ("carrier", Arc::new(StringArray::from_iter_values(carriers)), false),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(ROW_GROUP_ROWS)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap().into()
}

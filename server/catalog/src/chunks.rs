//! Checks the column chunks declared in a footer for consistency with the file and each other, before any memory is
//! allocated or byte read for them.

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

/// The range of a chunk in its file.
#[derive(Clone, Copy)]
struct Extent {
    start: u64,
    end: u64,
    row_group: usize,
    column: usize,
}

/// Checks that every chunk is within the file, overlaps no other chunk, and has a value for every row.
pub(super) fn check(metadata: &ParquetMetaData, file_bytes: u64) -> Result<(), String> {
    let mut extents = Vec::new();
    for (row_group, group) in metadata.row_groups().iter().enumerate() {
        for (column, chunk) in group.columns().iter().enumerate() {
            let failed = |reason: String| {
                let path = chunk.column_path().string();
                format!("row group {row_group}, column \"{path}\": {reason}")
            };
            check_values(chunk, group.num_rows()).map_err(failed)?;
            let (start, end) = extent(chunk, file_bytes).map_err(failed)?;
            if start < end {
                extents.push(Extent { start, end, row_group, column });
            }
        }
    }
    extents.sort_unstable_by_key(|extent| extent.start);
    match extents.windows(2).find(|pair| pair[1].start < pair[0].end) {
        None => Ok(()),
        Some(pair) => {
            let name = |extent: &Extent| {
                let path = metadata.row_group(extent.row_group).column(extent.column).column_path().string();
                format!("column \"{path}\" of row group {}", extent.row_group)
            };
            Err(format!("{} and {} overlap in the file", name(&pair[0]), name(&pair[1])))
        }
    }
}

/// A flat column has one value, null or not, for every row; a repeated one has at least one.
fn check_values(chunk: &ColumnChunkMetaData, rows: i64) -> Result<(), String> {
    let values = chunk.num_values();
    let is_flat = chunk.column_descr().max_rep_level() == 0;
    if values == rows || (!is_flat && values > rows) {
        return Ok(());
    }
    Err(format!("its footer declares {values} values for {rows} rows"))
}

fn extent(chunk: &ColumnChunkMetaData, file_bytes: u64) -> Result<(u64, u64), String> {
    let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
    let length = chunk.compressed_size();
    let end = start.checked_add(length).and_then(|end| u64::try_from(end).ok());
    match (u64::try_from(start), end) {
        (Ok(start), Some(end)) if start <= end && end <= file_bytes => Ok((start, end)),
        _ => Err(format!("its footer declares {length} bytes at offset {start} of a file of {file_bytes} bytes")),
    }
}

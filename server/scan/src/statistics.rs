//! Column statistics from the footers, per row group, as input for pruning. The catalog keeps trustworthy ones only.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, UInt64Array, new_null_array},
    compute::{cast, concat, take},
    datatypes::DataType,
};
use forebay_catalog::{File, RowGroup, Snapshot};
use forebay_expr::{ColumnStatistics, PruningStatistics};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;

/// Statistics of the named columns for every row group of a snapshot. Omits columns without usable statistics.
pub fn statistics(snapshot: &Snapshot, columns: &[String]) -> PruningStatistics {
    // With deleted rows: the counts of nulls have them.
    let row_counts = snapshot.row_groups().iter().map(|group| snapshot.stored_rows(group)).collect();
    let known = columns.iter().filter_map(|column| Some((column.clone(), of_column(snapshot, column)?)));
    PruningStatistics { row_counts, columns: known.collect() }
}

fn of_column(snapshot: &Snapshot, column: &str) -> Option<ColumnStatistics> {
    let (index, field) = snapshot.wide_schema().column_with_name(column)?;
    let data_type = match field.data_type() {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    if let Some(values) = snapshot.partition_values(index) {
        return of_partition(snapshot, values, data_type);
    }
    let mut minimums: Vec<ArrayRef> = Vec::new();
    let mut maximums: Vec<ArrayRef> = Vec::new();
    let mut null_counts: Vec<ArrayRef> = Vec::new();
    let mut is_known = false;
    for (file_index, file) in snapshot.files().iter().enumerate() {
        let of_file = match snapshot.columns_of(file_index).root(index) {
            // Its name in the file, which may be another than in the dataset.
            Some(root) => of_file(file, file.wide_metadata().schema().field(root).name(), data_type),
            None => match snapshot.missing_value(file_index, index) {
                Some(value) => all_equal(file, &value, data_type),
                None => Some(all_null(file, data_type)),
            },
        };
        is_known |= of_file.is_some();
        let of_file = of_file.unwrap_or_else(|| unknown(file, data_type));
        minimums.push(of_file.minimums);
        maximums.push(of_file.maximums);
        null_counts.push(Arc::new(of_file.null_counts));
    }
    if !is_known {
        return None;
    }
    let join = |arrays: Vec<ArrayRef>| {
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        concat(&arrays).ok()
    };
    let null_counts = join(null_counts)?.as_any().downcast_ref::<UInt64Array>()?.clone();
    Some(ColumnStatistics { minimums: join(minimums)?, maximums: join(maximums)?, null_counts })
}

/// Statistics of a column that a file has, in the type of its dataset.
fn of_file(file: &File, column: &str, data_type: &DataType) -> Option<ColumnStatistics> {
    let metadata = file.wide_metadata();
    let converter = StatisticsConverter::try_new(column, metadata.schema(), metadata.parquet_schema()).ok()?;
    // A missing count is unknown, not zero.
    let converter = converter.with_missing_null_counts_as_zero(false);
    let groups = metadata.metadata().row_groups();
    converter.parquet_column_index()?;
    // A bound that the type cannot hold becomes null: unknown.
    Some(ColumnStatistics {
        minimums: cast(&converter.row_group_mins(groups).ok()?, data_type).ok()?,
        maximums: cast(&converter.row_group_maxes(groups).ok()?, data_type).ok()?,
        null_counts: converter.row_group_null_counts(groups).ok()?,
    })
}

/// Statistics of a partition column: all rows of a file have one value.
fn of_partition(snapshot: &Snapshot, values: &ArrayRef, data_type: &DataType) -> Option<ColumnStatistics> {
    let groups = snapshot.row_groups().iter();
    let files: UInt64Array = groups.clone().map(|group| group.file_index as u64).collect();
    let bounds = take(&cast(values, data_type).ok()?, &files, None).ok()?;
    let nulls = |group: &RowGroup| if values.is_null(group.file_index) { snapshot.stored_rows(group) } else { 0 };
    let null_counts = UInt64Array::from_iter_values(groups.map(nulls));
    Some(ColumnStatistics { minimums: Arc::clone(&bounds), maximums: bounds, null_counts })
}

/// Statistics of a column that a file lacks: every row is null.
fn all_null(file: &File, data_type: &DataType) -> ColumnStatistics {
    let groups = file.metadata().metadata().row_groups();
    let rows = groups.iter().map(|group| u64::try_from(group.num_rows()).ok());
    ColumnStatistics { null_counts: rows.collect(), ..unknown(file, data_type) }
}

/// Statistics of a column that a file lacks: every row has this value, an array of one row.
fn all_equal(file: &File, value: &ArrayRef, data_type: &DataType) -> Option<ColumnStatistics> {
    let count = file.metadata().metadata().row_groups().len();
    let bounds = take(&cast(value, data_type).ok()?, &UInt64Array::from(vec![0; count]), None).ok()?;
    Some(ColumnStatistics { minimums: Arc::clone(&bounds), maximums: bounds, null_counts: vec![0; count].into() })
}

fn unknown(file: &File, data_type: &DataType) -> ColumnStatistics {
    let count = file.metadata().metadata().row_groups().len();
    let bounds = new_null_array(data_type, count);
    ColumnStatistics { minimums: Arc::clone(&bounds), maximums: bounds, null_counts: UInt64Array::new_null(count) }
}

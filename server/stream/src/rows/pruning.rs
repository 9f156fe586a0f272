//! Which row groups are read: those in which statistics leave room for a passing row.

use std::sync::Arc;

use arrow::array::UInt64Array;
use forebay_catalog::Snapshot;
use forebay_expr::ColumnStatistics;
use forebay_plan::ROW_ID;

use super::{expressions::Expressions, scan::RowScan, selection::Rows};
use crate::{environment::Environment, error::StreamError};

/// Prepares to read these columns, stored, joined or derived, of the rows that pass; with the row groups that may have
/// such rows. Runs on the CPU pool, whose stacks are deep enough for expressions.
pub(crate) async fn pruned_scan(
    environment: &Environment,
    snapshot: &Arc<Snapshot>,
    expressions: &Arc<Expressions>,
    columns: Vec<String>,
) -> Result<(RowScan, Vec<usize>), StreamError> {
    let (of_job, expressions) = (Arc::clone(snapshot), Arc::clone(expressions));
    let prepared = environment.cpu.run(move || {
        let rows = Rows::new(&of_job, &expressions, columns.iter().map(String::as_str), false)?;
        Ok::<_, StreamError>((rows, row_groups(&of_job, &expressions)))
    });
    let (rows, row_groups) = prepared.await??;
    Ok((RowScan::new(environment, snapshot, Arc::new(rows)), row_groups))
}

/// The row groups that may have passing rows. Runs on the CPU pool.
pub(crate) fn row_groups(snapshot: &Snapshot, expressions: &Expressions) -> Vec<usize> {
    let may_pass = expressions.filter.as_ref().map(|filter| {
        let mut statistics = forebay_scan::statistics(snapshot, filter.columns());
        if filter.columns().iter().any(|column| column == ROW_ID) {
            statistics.columns.insert(ROW_ID.to_owned(), row_id_statistics(snapshot));
        }
        filter.may_pass(&expressions.filter_schema, &statistics)
    });
    let groups = snapshot.row_groups().iter().enumerate();
    let passing = groups.filter(|(index, group)| {
        may_pass.as_ref().is_none_or(|may_pass| may_pass[*index])
            && expressions.sample.is_none_or(|sample| group.rows.clone().any(|row| sample.holds(row)))
    });
    passing.map(|(index, _)| index).collect()
}

/// The exact bounds of the row ids of each row group.
fn row_id_statistics(snapshot: &Snapshot) -> ColumnStatistics {
    let groups = || snapshot.row_groups().iter().map(|group| &group.rows);
    ColumnStatistics {
        minimums: Arc::new(UInt64Array::from_iter_values(groups().map(|rows| rows.start))),
        maximums: Arc::new(UInt64Array::from_iter_values(groups().map(|rows| rows.end.saturating_sub(1)))),
        null_counts: UInt64Array::from(vec![0; snapshot.row_groups().len()]),
    }
}

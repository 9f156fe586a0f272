//! Measures the columns of a dataset on the server, from a sample if it is large.

use arrow::datatypes::SchemaRef;
use forebay_client::{ColumnDescription, DescribeRequest, FitProgress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{failure::Failure, session::Session};

/// Columns of one description, the server's limit.
const COLUMNS_AT_ONCE: usize = 1024;

/// What the columns of a dataset hold.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) schema: SchemaRef,
    /// The rows that were measured.
    pub(super) rows: u64,
    /// Whether they are all rows.
    pub(super) is_whole: bool,
    /// In the order of the schema.
    pub(super) columns: Vec<ColumnDescription>,
}

/// Measures every column, on about this many rows.
pub(super) async fn measure(session: &Session, dataset: &str, sample_rows: u64) -> Result<Measured, Failure> {
    let table = session.client.table_info(dataset).await?;
    if !table.info.error.is_empty() {
        return Err(Failure::Unreadable { dataset: dataset.to_owned(), reason: table.info.error });
    }
    let one_of = table.info.rows.div_ceil(sample_rows.max(1)).max(1);
    let filter = if one_of == 1 { String::new() } else { format!("hash64(__row_id, 0) % {one_of} = 0") };
    let names: Vec<String> = table.schema.fields().iter().map(|field| field.name().clone()).collect();
    // Drawn on stderr if that is a terminal.
    let bar = ProgressBar::no_length().with_style(style());
    let (mut rows, mut columns) = (0, Vec::with_capacity(names.len()));
    for part in names.chunks(COLUMNS_AT_ONCE) {
        let request = DescribeRequest { dataset: dataset.to_owned(), columns: part.to_vec(), filter: filter.clone() };
        let description = session.client.describe(&request, |progress| draw(&bar, progress)).await?;
        rows = description.rows;
        columns.extend(description.columns);
    }
    bar.finish_and_clear();
    Ok(Measured { schema: table.schema, rows, is_whole: one_of == 1, columns })
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("measuring {wide_bar} {human_pos}/{human_len} rows, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn draw(bar: &ProgressBar, progress: &FitProgress) {
    bar.set_length(progress.rows_total);
    bar.set_position(progress.rows_done);
}

//! `forebay head DATASET`: the first rows, as stored or as transformed by a plan.

use std::path::PathBuf;

use arrow::{
    array::RecordBatch,
    json::{WriterBuilder, writer::LineDelimited},
};
use clap::{Args, builder::RangedU64ValueParser};
use forebay_client::{Endpoint, StreamRequest, TableRead};
use futures::TryStreamExt;

use super::{failure::Failure, output, plan_file, rows_text, session::Session};

/// Show the first rows of a dataset as stored, or the first batch of a plan. Long values are shortened, and the table fits
/// the terminal; with --json one object per line, with whole values
#[derive(Debug, Args)]
pub(crate) struct Head {
    /// Name of the dataset on the server
    dataset: String,

    /// Number of rows
    #[arg(short = 'n', long, env = "FOREBAY_ROWS", value_name = "N", default_value_t = 10, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    rows: usize,

    /// Columns to show, in this order [default: all]
    #[arg(long, env = "FOREBAY_COLUMNS", value_name = "NAME,…", value_delimiter = ',', conflicts_with_all = ["plan", "plan_id"])]
    columns: Vec<String>,

    /// File of a plan in JSON, YAML or TOML, or of a fit's result; - reads stdin
    #[arg(long, env = "FOREBAY_PLAN", value_name = "FILE", conflicts_with = "plan_id")]
    plan: Option<PathBuf>,

    /// Id of a fitted plan on the server
    #[arg(long, env = "FOREBAY_PLAN_ID", value_name = "ID")]
    plan_id: Option<String>,
}

impl Head {
    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        let rows = self.rows;
        let endpoint = self.endpoint(session).await?;
        let mut batches = session.client.read(&endpoint).await?;
        let mut shown = Vec::new();
        let mut missing = rows;
        while missing > 0
            && let Some(batch) = batches.try_next().await?
        {
            let batch = batch.data.slice(0, missing.min(batch.data.num_rows()));
            missing -= batch.num_rows();
            shown.push(batch);
        }
        // Cancel the rest of the stream.
        drop(batches);
        let text = if session.json { json(&shown) } else { rows_text::table(&shown, output::terminal_width()) };
        output::write(&text.map_err(Failure::Show)?)
    }

    /// Returns the endpoint to read: the raw table, or the plan's first epoch, with batches of the requested rows.
    async fn endpoint(self, session: &Session) -> Result<Endpoint, Failure> {
        let plan = self.plan.as_deref().map(plan_file::read).transpose()?;
        let endpoints = if plan.is_none() && self.plan_id.is_none() {
            let (dataset, limit) = (self.dataset.clone(), Some(self.rows as u64));
            let read = TableRead { dataset, limit, columns: self.columns, ..TableRead::default() };
            let table = session.client.table_rows(&read).await?;
            if !table.info.error.is_empty() {
                return Err(Failure::Unreadable { dataset: self.dataset, reason: table.info.error });
            }
            table.endpoints
        } else {
            let request = StreamRequest {
                dataset: self.dataset,
                plan,
                plan_id: self.plan_id.unwrap_or_default(),
                batch_size: Some(self.rows as u64),
                ..StreamRequest::default()
            };
            session.client.stream_info(&request).await?.endpoints
        };
        endpoints.into_iter().next().ok_or(Failure::Incomplete("endpoint to read from"))
    }
}

/// Formats rows as one JSON object per line, with whole values.
pub(super) fn json(batches: &[RecordBatch]) -> Result<String, arrow::error::ArrowError> {
    let mut bytes = Vec::new();
    let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut bytes);
    for batch in batches {
        writer.write(batch)?;
    }
    writer.finish()?;
    drop(writer);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array},
        datatypes::Float32Type,
    };

    use super::*;

    #[test]
    fn formats_rows_as_json_lines() {
        let matrix = [Some([Some(0.5), Some(1.0)]), Some([Some(2.0), Some(3.0)])];
        let columns: [(&str, ArrayRef); 3] = [
            ("a", Arc::new(Int64Array::from(vec![Some(1), None]))),
            ("m", Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(matrix, 2))),
            ("f", Arc::new(Float32Array::from(vec![1.5, 2.5]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let lines = json(&[batch.slice(0, 1), batch.slice(1, 1)]).unwrap();
        assert_eq!(lines, "{\"a\":1,\"m\":[0.5,1.0],\"f\":1.5}\n{\"a\":null,\"m\":[2.0,3.0],\"f\":2.5}\n");
        assert_eq!(json(&[]).unwrap(), "");
    }
}

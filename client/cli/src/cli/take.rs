//! `forebay take DATASET`: rows by their numbers, as stored or as transformed by a plan.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use forebay_client::{Plan, TakeRequest, plan_as_stored};
use futures::TryStreamExt;

use super::{failure::Failure, head, output, plan_file, rows_text, session::Session};

/// Show rows of a dataset by their numbers, in the given order, as stored or with the values of a plan. Long values are
/// shortened, and the table fits the terminal; with --json one object per line, with whole values
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("rows").required(true))]
pub(crate) struct Take {
    /// Name of the dataset on the server
    dataset: String,

    /// Rows by their index in the dataset, in file order, as replay reports it
    #[arg(long, env = "FOREBAY_ROW_IDS", value_name = "N,…", value_delimiter = ',', group = "rows")]
    row_ids: Vec<u64>,

    /// Rows by their index among those that pass the plan's filter, in file order
    #[arg(long, env = "FOREBAY_POSITIONS", value_name = "N,…", value_delimiter = ',', group = "rows")]
    positions: Vec<u64>,

    /// File of a plan in JSON, YAML or TOML, or of a fit's result; - reads stdin
    #[arg(long, env = "FOREBAY_PLAN", value_name = "FILE", conflicts_with = "plan_id")]
    plan: Option<PathBuf>,

    /// Id of a fitted plan on the server
    #[arg(long, env = "FOREBAY_PLAN_ID", value_name = "ID")]
    plan_id: Option<String>,
}

impl Take {
    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        let plan = match (&self.plan, &self.plan_id) {
            (Some(path), _) => Some(plan_file::read(path)?),
            (None, Some(_)) => None,
            (None, None) => Some(self.stored(session).await?),
        };
        let request = TakeRequest {
            dataset: self.dataset,
            plan,
            plan_id: self.plan_id.unwrap_or_default(),
            row_ids: self.row_ids,
            positions: self.positions,
            ..TakeRequest::default()
        };
        let batches: Vec<_> = session.client.take(&request).await?.map_ok(|batch| batch.data).try_collect().await?;
        let text =
            if session.json { head::json(&batches) } else { rows_text::table(&batches, output::terminal_width()) };
        output::write(&text.map_err(Failure::Show)?)
    }

    /// Returns the plan of every column as stored.
    async fn stored(&self, session: &Session) -> Result<Plan, Failure> {
        let table = session.client.table_info(&self.dataset).await?;
        if !table.info.error.is_empty() {
            return Err(Failure::Unreadable { dataset: self.dataset.clone(), reason: table.info.error });
        }
        Ok(plan_as_stored(&table.schema))
    }
}

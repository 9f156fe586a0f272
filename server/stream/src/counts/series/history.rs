//! The series of a history: checked once for a snapshot, so that columns can be computed from the rows before a row.

use std::sync::Arc;

use arrow::datatypes::Schema;
use forebay_catalog::Snapshot;
use forebay_plan::PlanError;

use super::{SeriesColumns, SeriesTables};
use crate::{
    counts::filtered_rows::FilteredRows, environment::Environment, error::StreamError, rows::expressions::Expressions,
};

/// The series of the history of a plan, over all rows.
#[derive(Debug)]
pub(crate) struct HistorySeries {
    columns: Arc<SeriesColumns>,
    expressions: Arc<Expressions>,
}

impl HistorySeries {
    /// The series of a plan; none: it has no history. `computed` has the joined and derived columns as bytes.
    pub(crate) fn of(
        expressions: &Expressions,
        stored: &Schema,
        computed: impl FnOnce() -> Vec<u8>,
    ) -> Result<Option<Self>, PlanError> {
        let Some(history) = &expressions.history else { return Ok(None) };
        let columns = SeriesColumns::of_history(history, &expressions.schema, stored, computed)?;
        Ok(Some(Self { columns: Arc::new(columns), expressions: Arc::new(expressions.of_all_rows()) }))
    }

    /// Fails unless the rows of each series follow each other in their order.
    pub(crate) async fn check(
        &self,
        tables: &SeriesTables,
        environment: &Arc<Environment>,
        snapshot: &Arc<Snapshot>,
    ) -> Result<(), StreamError> {
        let rows = FilteredRows { environment, snapshot, filter: "", expressions: &self.expressions };
        tables.find(rows, &self.columns).await.map(drop)
    }
}

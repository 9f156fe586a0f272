//! The rows to read of a snapshot, and what reads them.

use std::sync::Arc;

use forebay_catalog::{RowGroup, Snapshot};
use forebay_runtime::{budget::Budget, cpu_pool::CpuPool, metrics::StageTimes};

use super::{
    function_column::{Drawing, FunctionColumn},
    passing::Passing,
    selection::Rows,
};
use crate::{environment::Environment, error::StreamError};

/// The rows to read of a snapshot, and what reads them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RowScan {
    pub cpu: CpuPool,
    pub budget: Budget,
    pub snapshot: Arc<Snapshot>,
    pub rows: Arc<Rows>,
    /// What random crops of images are drawn from.
    pub drawing: Drawing,
}

impl RowScan {
    /// Reads these rows as a pass of no epoch does.
    pub(crate) fn new(environment: &Environment, snapshot: &Arc<Snapshot>, rows: Arc<Rows>) -> Self {
        let (cpu, budget) = (environment.cpu.clone(), environment.budget.clone());
        Self { cpu, budget, snapshot: Arc::clone(snapshot), rows, drawing: Drawing::default() }
    }

    /// The same, measuring how long its jobs wait.
    pub(crate) fn timed(self) -> Self {
        Self { cpu: self.cpu.timed(), ..self }
    }

    pub(crate) fn row_group(&self, index: usize) -> &RowGroup {
        &self.snapshot.row_groups()[index]
    }

    /// Adds the columns of functions to passing rows of a row group.
    pub(crate) async fn with_functions(
        &self,
        passing: Passing,
        row_group: usize,
        times: &mut StageTimes,
    ) -> Result<Passing, StreamError> {
        let (drawing, place) = ((&self.budget, self.drawing), self.place(row_group));
        FunctionColumn::add_all(self.rows.functions(), passing, drawing, times, &place).await
    }

    /// The place of a row group's rows in errors.
    pub(crate) fn place(&self, row_group: usize) -> String {
        let group = self.row_group(row_group);
        format!("file \"{}\", row group {}", self.snapshot.file_of(group).display(), group.index_in_file)
    }
}

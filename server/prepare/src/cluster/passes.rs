//! Passes of a fit as queries: `PassExec` computes partial rows on executors, and GROUP BY adds them up there.

use std::{fmt, ops::Range, sync::Arc};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::{
    catalog::{Session, TableProvider},
    error::DataFusionError,
    logical_expr::{Expr, TableType},
    physical_plan::ExecutionPlan,
};
use forebay_engine::{PARTIAL_COLUMNS, partial_schema};
use forebay_stream::{PartialStream, PassRunner, RemotePass, RunnerError};
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture};

use super::{
    job::Cluster,
    pass::{PassExec, work},
    planning,
};
use crate::session::Limits;

/// The name of the table of partial rows.
const TABLE: &str = "pass";

/// Runs the passes of a fit on a cluster.
pub(crate) struct ClusterPasses {
    cluster: Arc<Cluster>,
    limits: Limits,
}

/// The partial rows of a pass.
struct PassTable {
    message: Arc<[u8]>,
    /// The row groups of each partition.
    parts: Vec<Range<usize>>,
}

// === impl ClusterPasses ===

impl ClusterPasses {
    /// Passes of as many partitions as the limits have threads.
    pub(crate) fn new(cluster: Arc<Cluster>, limits: Limits) -> Self {
        Self { cluster, limits }
    }
}

impl fmt::Debug for ClusterPasses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ClusterPasses").finish_non_exhaustive()
    }
}

impl PassRunner for ClusterPasses {
    fn run(&self, pass: RemotePass) -> BoxFuture<'static, Result<PartialStream, RunnerError>> {
        let (cluster, limits) = (Arc::clone(&self.cluster), self.limits.clone());
        async move {
            // The result of the pass before has been read.
            cluster.release().await;
            let sql = query(&pass);
            let parts = parts(&pass.group_rows, limits.threads);
            let table = PassTable { message: pass.message.into(), parts };
            let context = planning::session_of(&limits, [(TABLE, Arc::new(table) as Arc<dyn TableProvider>)])?;
            let plan = context.sql(&sql).await?.create_physical_plan().await?;
            let rows = cluster.rows(plan, &context).await?;
            Ok(rows.map_err(RunnerError::from).boxed())
        }
        .boxed()
    }
}

/// The query of a pass.
fn query(pass: &RemotePass) -> String {
    let [aggregate, value, part, rows, label] = PARTIAL_COLUMNS.map(|name| format!("\"{name}\""));
    let key = format!("{aggregate}, {value}, {part}");
    let mut sql = format!("SELECT {key}, sum({rows}) AS {rows}, sum({label}) AS {label} FROM {TABLE} GROUP BY {key}");
    if !pass.least_rows.is_empty() {
        let least = pass.least_rows.iter().map(|(number, least)| format!(" WHEN {number} THEN sum({rows}) >= {least}"));
        sql = format!("{sql} HAVING CASE {aggregate}{} ELSE true END", least.collect::<Vec<_>>().concat());
    }
    if pass.is_sorted {
        sql = format!("{sql} ORDER BY {key}");
    }
    sql
}

/// Divides row groups into at most `count` runs of about as many rows.
fn parts(group_rows: &[u64], count: usize) -> Vec<Range<usize>> {
    let total = group_rows.iter().map(|rows| u128::from(*rows)).sum::<u128>().max(1);
    let (mut parts, mut start, mut rows) = (Vec::new(), 0, 0_u128);
    for (index, of_group) in group_rows.iter().enumerate() {
        rows += u128::from(*of_group);
        let is_last = index + 1 == group_rows.len();
        if is_last || rows * count as u128 >= total * (parts.len() as u128 + 1) {
            parts.push(start..index + 1);
            start = index + 1;
        }
    }
    parts
}

// === impl PassTable ===

impl fmt::Debug for PassTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PassTable").field("parts", &self.parts).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for PassTable {
    fn schema(&self) -> SchemaRef {
        partial_schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        if projection.is_some_and(|columns| !columns.iter().copied().eq(0..PARTIAL_COLUMNS.len())) {
            return Err(DataFusionError::Internal("a pass is read with all its columns".to_owned()));
        }
        Ok(Arc::new(PassExec::new(Arc::clone(&self.message), work(&self.parts)?, None)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_groups_are_divided_by_rows() {
        assert_eq!(parts(&[10, 10, 10, 10], 2), [0..2, 2..4]);
        assert_eq!(parts(&[100, 1, 1, 1], 2), [0..1, 1..4]);
        assert_eq!(parts(&[1, 1, 1, 100], 2).first(), Some(&(0..4)));
        assert_eq!(parts(&[5, 5], 16), [0..1, 1..2]);
        assert_eq!(parts(&[0, 0], 3).first(), Some(&(0..2)));
        for count in 1..40 {
            let found = parts(&[7; 33], count);
            assert!(found.len() <= count && found.len() >= count.min(33) / 2, "{count}: {found:?}");
            assert!(found.iter().flat_map(Clone::clone).eq(0..33), "{count}");
        }
    }

    #[test]
    fn a_query_groups_drops_and_sorts_as_the_pass_says() {
        let pass = RemotePass { message: Vec::new(), group_rows: Vec::new(), is_sorted: false, least_rows: Vec::new() };
        assert!(query(&pass).ends_with("FROM pass GROUP BY \"aggregate\", \"value\", \"part\""));
        let sql = query(&RemotePass { is_sorted: true, least_rows: vec![(3, 5), (4, 2)], ..pass });
        let having =
            "HAVING CASE \"aggregate\" WHEN 3 THEN sum(\"rows\") >= 5 WHEN 4 THEN sum(\"rows\") >= 2 ELSE true END";
        assert!(sql.contains(having) && sql.ends_with("ORDER BY \"aggregate\", \"value\", \"part\""), "{sql}");
    }
}

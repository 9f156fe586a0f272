//! `forebay-server splits`: the splits of datasets, by the names of their files, without serving.

use std::sync::Arc;

use forebay_catalog::{Catalog, Dataset};
use forebay_runtime::cpu_pool::CpuPool;
use futures::{FutureExt, future::LocalBoxFuture};
use serde_json::json;

use super::opening;
use crate::config::Flags;

/// Finds the splits of the datasets of a server. Returns a line of JSON for each dataset, and what is wrong with the others.
pub fn splits(flags: &Flags) -> LocalBoxFuture<'_, (Vec<String>, Vec<String>)> {
    find(flags).boxed_local()
}

async fn find(flags: &Flags) -> (Vec<String>, Vec<String>) {
    let (datasets, problems) = flags.datasets();
    let mut problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let cpu = match CpuPool::new(0) {
        Ok(cpu) => cpu,
        Err(error) => return (Vec::new(), vec![format!("cannot start the CPU threads: {error}")]),
    };
    let datasets = Catalog::new(datasets, &cpu).datasets();
    let mut lines = Vec::with_capacity(datasets.len());
    for found in futures::future::join_all(datasets.iter().map(of)).await {
        match found {
            Ok(line) => lines.push(line),
            Err(problem) => problems.push(problem),
        }
    }
    (lines, problems)
}

async fn of(dataset: &Arc<Dataset>) -> Result<String, String> {
    let failed = |reason: String| format!("--dataset: {reason}");
    dataset.check_path().map_err(|error| failed(error.to_string()))?;
    let splits = tokio::select! {
        splits = dataset.splits() => splits.map_err(|error| failed(error.to_string()))?,
        () = opening::too_long(dataset) => return Err(failed(format!("the store of \"{}\" does not respond in time", dataset.name()))),
    };
    let splits: Vec<_> = splits.iter().map(|split| json!({"name": split.name, "url": split.files})).collect();
    Ok(json!({"dataset": dataset.name(), "splits": splits}).to_string())
}

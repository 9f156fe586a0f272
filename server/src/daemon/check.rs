//! `forebay-server check`: validates what starting would validate, and reads the datasets, without serving.

use std::{panic, path::Path, sync::Arc};

use forebay_cache::DiskTier;
use forebay_catalog::{
    Catalog, Dataset, Location, ViewDefinition,
    view::{ViewLimits, Views},
};
use forebay_runtime::{budget::Budget, cpu_pool::CpuPool, shutdown::Shutdown, state::State};
use forebay_settings::Values;
use futures::{FutureExt, future::LocalBoxFuture};

use super::{opening, state};
use crate::config::Flags;

/// Settings whose values are listed if they are valid.
const LISTED: [&str; 7] =
    ["listen", "metrics-listen", "tls-cert", "tls-key", "tls-client-ca", "principals", "ticket-key"];

/// What a check found, a line each.
#[derive(Debug, Default)]
pub struct Findings {
    /// What is valid.
    pub good: Vec<String>,
    /// What must be changed.
    pub problems: Vec<String>,
}

/// Checks the settings of a server. The future is boxed for the reason given at [`run`](super::run).
pub fn check(flags: Flags, values: &Values) -> LocalBoxFuture<'_, Findings> {
    find(flags, values).boxed_local()
}

async fn find(flags: Flags, values: &Values) -> Findings {
    // A job that panics, as the reader of a corrupt file may, returns an error.
    panic::set_hook(Box::new(|_| {}));
    let mut findings = Findings::default();
    let (datasets, _) = flags.datasets();
    let (views, _) = flags.views(&datasets);
    let place = flags.state();
    let cache_dir = flags.cache_dir().map(Path::to_owned);
    if let Err(problems) = flags.check() {
        findings.problems.extend(problems.iter().map(ToString::to_string));
    } else {
        let of = |flag: &'static str| values.get(flag).into_iter().flatten().map(move |value| (flag, value));
        let listed = LISTED.into_iter().flat_map(of);
        findings.good.extend(listed.map(|(flag, value)| format!("--{flag} {}", value.to_string_lossy())));
    }
    if let Ok(place) = &place {
        let problems = state::check(place).await;
        if problems.is_empty() {
            findings.good.push(format!("--state {}", place.shown));
        }
        findings.problems.extend(problems);
    }
    if let Some(directory) = &cache_dir {
        let checked = DiskTier::check(directory).map_err(|error| format!("--cache-dir {error}"));
        let writable = || {
            let failed = |error| format!("--cache-dir \"{}\": cannot write to it: {error}", directory.display());
            state::writable(directory).map_err(failed)
        };
        match checked.and_then(|()| writable()) {
            Ok(()) => findings.good.push(format!("--cache-dir {}", directory.display())),
            Err(problem) => findings.problems.push(problem),
        }
    }
    let scratch = place.map(|place| place.scratch).unwrap_or_default();
    let (_shutdown, watch) = Shutdown::new();
    match CpuPool::new(0) {
        Ok(cpu) => {
            let state = State::at(&scratch, &cpu);
            let runner = Arc::new(Views::new(&state, ViewLimits::NONE, Budget::new(0), watch));
            findings.add_datasets(datasets, views, &runner, &cpu).await;
        }
        Err(error) => findings.problems.push(format!("cannot start the CPU threads: {error}")),
    }
    findings
}

impl Findings {
    async fn add_datasets(
        &mut self,
        datasets: Vec<(String, Location)>,
        mut views: Vec<ViewDefinition>,
        runner: &Arc<Views>,
        cpu: &CpuPool,
    ) {
        if !views.is_empty()
            && let Err(error) = runner.find_program().await
        {
            self.problems.push(format!("--view: {error}"));
            views.clear();
        }
        let datasets = match Catalog::new(datasets, cpu).with_views(views, runner, cpu) {
            Ok(catalog) => catalog.datasets(),
            Err(error) => return self.problems.push(format!("--view: {error}")),
        };
        for outcome in futures::future::join_all(datasets.iter().map(read)).await {
            match outcome {
                Ok(line) => self.good.push(line),
                Err(line) => self.problems.push(line),
            }
        }
    }
}

/// Reads the footers of a dataset. For a view without a result, checks the SQL.
async fn read(dataset: &Arc<Dataset>) -> Result<String, String> {
    let name = dataset.name();
    let (kind, flag) = if dataset.is_view() { ("view", "--view") } else { ("dataset", "--dataset") };
    dataset.check_path().map_err(|error| format!("{flag}: {error}"))?;
    tokio::select! {
        opened = opening::open_one(dataset) => match opened {
            Ok(Some(snapshot)) => {
                let (files, rows) = (snapshot.files().len(), snapshot.row_count());
                let unit = if files == 1 { "file" } else { "files" };
                let left_out = dataset.left_out();
                let ignored = left_out.by_reason().map(|(reason, names)| format!("; ignored: {names} ({reason})"));
                Ok(format!("{kind} \"{name}\": {files} {unit}, {rows} rows{}", ignored.collect::<String>()))
            }
            Ok(None) => Ok(format!("{kind} \"{name}\": the SQL is valid and runs at the first use")),
            Err(error) => Err(format!("{flag}: {error}")),
        },
        () = opening::too_long(dataset) => Err(format!("{flag}: {kind} \"{name}\": its store does not respond in time")),
    }
}

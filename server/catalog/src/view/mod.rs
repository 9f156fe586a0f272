//! Views: datasets that are the result of SQL over others. Runs `forebay-prepare`, which writes a folder of Parquet under
//! the state directory, once for each snapshot of the datasets that the SQL reads.
//!
//! This module knows snapshots by their digests only; `catalog` lists the results and opens them.

mod error;
mod outputs;
mod program;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use forebay_runtime::{
    budget::Budget,
    metrics::ViewRunGuard,
    shutdown::{Phase, ShutdownWatch},
    state::{State, short_digest},
};
use serde::Deserialize;
use tokio::sync::watch;

pub use error::ViewError;

use outputs::ViewOutputs;
use program::PrepareProgram;

/// The version of the rules by which expressions of queries get their values, those of `expr`. Results that are kept have it
/// in their keys.
pub const QUERY_RULES: u32 = 2;

/// The longest SQL of a view: it is an argument of the child, which Linux limits to 128 KiB.
pub const VIEW_SQL_BYTES_MAX: usize = 64 << 10;

/// The least memory of a run, which `forebay-prepare` requires.
pub const VIEW_MEMORY_BYTES_MIN: u64 = 16 << 20;

/// Time between lines of progress in the log.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// What runs of views may use.
#[derive(Clone, Copy, Debug)]
pub struct ViewLimits {
    /// Memory of one run, reserved from the budget of the server.
    pub memory_bytes: u64,
    /// Threads of one run; 0: one per core.
    pub cpu_threads: usize,
}

/// Runs the SQL of views. Concurrent callers of one view share a run, which continues if they leave.
#[derive(Debug)]
pub struct Views {
    folder: PathBuf,
    spill_folder: PathBuf,
    limits: ViewLimits,
    budget: Budget,
    shutdown: ShutdownWatch,
    program: Mutex<Option<PrepareProgram>>,
    running: Mutex<BTreeMap<PathBuf, watch::Receiver<Option<RunOutcome>>>>,
}

/// A view at one state of its datasets.
#[derive(Clone, Debug)]
pub struct ViewJob {
    /// Its name.
    pub name: String,
    /// Its SQL.
    pub sql: String,
    /// The datasets that it reads.
    pub inputs: Vec<ViewInput>,
}

/// A dataset that a view reads.
#[derive(Clone, Debug)]
pub struct ViewInput {
    /// Its name in the SQL.
    pub name: String,
    /// Its location, in the form of `--dataset`.
    pub url: String,
    /// Its unit of INT96 timestamps, in the form of `--int96-unit`.
    pub int96_unit: &'static str,
    /// The file of its pinned schema, in the form of `--dataset-schema`.
    pub schema: Option<PathBuf>,
    /// The digest of its snapshot.
    pub snapshot: String,
}

type RunOutcome = Result<(), ViewError>;

/// What the program prints about a run.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RunReport {
    rows: u64,
    bytes: u64,
    files: u64,
    spilled_bytes: u64,
}

// === impl ViewLimits ===

impl ViewLimits {
    /// Those of a process that only checks the SQL of views.
    pub const NONE: Self = Self { memory_bytes: 0, cpu_threads: 0 };
}

// === impl Views ===

impl Views {
    /// No run yet; results are written to the scratch directory of the state.
    pub fn new(state: &State, limits: ViewLimits, budget: Budget, shutdown: ShutdownWatch) -> Self {
        Self {
            folder: state.view_directory(),
            spill_folder: state.spill_directory(),
            limits,
            budget,
            shutdown,
            program: Mutex::default(),
            running: Mutex::default(),
        }
    }

    /// Checks that the program is installed, and uses its present version from now on.
    pub async fn find_program(&self) -> Result<(), ViewError> {
        let found = PrepareProgram::find().await?;
        *self.program.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        Ok(())
    }

    /// The folder of the result, which exists once a run has ended.
    pub async fn result(&self, job: &ViewJob) -> Result<PathBuf, ViewError> {
        let key = job.key(&self.program().await?);
        Ok(ViewOutputs::new(&self.folder, &job.name).result(&key))
    }

    /// Notes that a result is used: for each view, the results that were used last are kept.
    pub fn mark_used(&self, result: &Path) {
        if result.starts_with(&self.folder) {
            outputs::mark_used(result);
        }
    }

    /// Checks the SQL against its datasets, and writes nothing.
    pub async fn check(&self, job: &ViewJob) -> Result<(), ViewError> {
        let mut arguments = job.arguments(Path::new("/checked"), &self.spill_folder);
        arguments.extend(["--dry-run", "--cpu-threads", "1"].map(OsString::from));
        let run = self.program().await?.start(&arguments)?;
        let checked = run.output(|_| {}, self.shutdown.reached(Phase::Drained)).await;
        checked.map(|_| ()).map_err(in_settings_of_server)
    }

    /// Runs the SQL, or joins the run of another caller. A result that exists and is damaged is replaced.
    pub async fn run(self: &Arc<Self>, job: ViewJob) -> Result<(), ViewError> {
        let out = self.result(&job).await?;
        let mut running = self.join(out, job);
        let ended = running.wait_for(Option::is_some).await;
        ended.map_or(Err(ViewError::Stopped), |outcome| outcome.clone().unwrap_or(Err(ViewError::Stopped)))
    }

    fn join(self: &Arc<Self>, out: PathBuf, job: ViewJob) -> watch::Receiver<Option<RunOutcome>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = running.get(&out) {
            return known.clone();
        }
        let (sender, receiver) = watch::channel(None);
        running.insert(out.clone(), receiver.clone());
        let views = Arc::clone(self);
        // Ends with the shutdown.
        tokio::spawn(async move {
            let outcome = views.execute(&out, &job).await;
            views.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&out);
            sender.send_replace(Some(outcome));
        });
        receiver
    }

    async fn execute(&self, out: &Path, job: &ViewJob) -> RunOutcome {
        let outputs = ViewOutputs::new(&self.folder, &job.name);
        let lock = tokio::select! {
            lock = outputs.lock() => lock?,
            () = self.shutdown.reached(Phase::Drained) => return Err(ViewError::Stopped),
        };
        if lock.waited && out.is_dir() {
            return Ok(());
        }
        let _memory = self.budget.reserve_fairly(self.limits.memory_bytes).await?;
        let program = self.program().await?;
        let (mut guard, started) = (ViewRunGuard::open(), Instant::now());
        let view = job.name.as_str();
        tracing::info!(view, inputs = job.shown_inputs(), "view run started");
        let mut arguments = job.arguments(out, &self.spill_folder);
        arguments.extend(self.limit_arguments());
        let progress = |text: &str| tracing::info!(view, progress = text, "view is running");
        let run = async { program.start(&arguments)?.output(progress, self.shutdown.reached(Phase::Drained)).await };
        let printed = run.await.map_err(in_settings_of_server).inspect_err(|error| {
            tracing::warn!(view, %error, "view run failed");
        })?;
        guard.succeeded();
        let report: RunReport = serde_json::from_str(&printed).unwrap_or_default();
        let RunReport { rows, bytes, files, spilled_bytes } = report;
        let seconds = started.elapsed().as_secs_f64();
        tracing::info!(view, rows, bytes, files, spilled_bytes, seconds, "view run ended");
        if let Some(key) = out.file_name().and_then(|key| key.to_str()) {
            outputs.remove_old(key);
        }
        Ok(())
    }

    fn limit_arguments(&self) -> Vec<OsString> {
        let ViewLimits { memory_bytes, cpu_threads } = self.limits;
        let progress_seconds = PROGRESS_INTERVAL.as_secs();
        [
            ("--memory-bytes", memory_bytes),
            ("--cpu-threads", cpu_threads as u64),
            ("--progress-seconds", progress_seconds),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.into(), value.to_string().into()])
        .collect()
    }

    async fn program(&self) -> Result<PrepareProgram, ViewError> {
        let known = || self.program.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known().is_none() {
            self.find_program().await?;
        }
        known().ok_or(ViewError::NotInstalled)
    }
}

/// The error of a run with the names of the server's flags.
fn in_settings_of_server(error: ViewError) -> ViewError {
    match error {
        ViewError::Failed(text) => ViewError::Failed(
            text.replace("--memory-bytes", "--view-memory-bytes").replace("--dataset", "--dataset or --view"),
        ),
        other => other,
    }
}

// === impl ViewJob ===

impl ViewJob {
    /// What decides the result, as an id: the SQL, the program and the snapshots of the datasets.
    fn key(&self, program: &PrepareProgram) -> String {
        let mut inputs: Vec<String> =
            self.inputs.iter().map(|input| format!("{}\n{}\n", input.name, input.snapshot)).collect();
        inputs.sort();
        let head = format!("forebay view {QUERY_RULES}\n{}\n{}\n", program.version, inputs.len());
        short_digest(&[head.as_bytes(), inputs.concat().as_bytes(), self.sql.as_bytes()])
    }

    fn arguments(&self, out: &Path, spill_folder: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--exit-with-stdin".into(), "--json".into(), "--replace".into()];
        let mut add = |flag: &str, value: OsString| arguments.extend([flag.into(), value]);
        add("--sql", self.sql.clone().into());
        for ViewInput { name, url, int96_unit, schema, snapshot } in &self.inputs {
            add("--dataset", format!("{name}={url}").into());
            add("--int96-unit", format!("{name}={int96_unit}").into());
            if let Some(path) = schema {
                add("--dataset-schema", [OsStr::new(&format!("{name}=")), path.as_os_str()].into_iter().collect());
            }
            add("--snapshot", format!("{name}={snapshot}").into());
        }
        add("--out", out.into());
        if spill_folder.is_dir() {
            add("--spill-dir", spill_folder.into());
        }
        arguments
    }

    fn shown_inputs(&self) -> String {
        let shown = |input: &ViewInput| format!("{} {}", input.name, input.snapshot);
        self.inputs.iter().map(shown).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(sql: &str, snapshots: &[(&str, &str)]) -> ViewJob {
        let input = |(name, snapshot): &(&str, &str)| ViewInput {
            name: (*name).to_owned(),
            url: "/data".to_owned(),
            int96_unit: "us",
            schema: None,
            snapshot: (*snapshot).to_owned(),
        };
        ViewJob { name: "v".to_owned(), sql: sql.to_owned(), inputs: snapshots.iter().map(input).collect() }
    }

    #[test]
    fn a_result_is_that_of_its_sql_snapshots_and_program() {
        let key = |sql: &str, snapshots: &[(&str, &str)], version: &str| {
            job(sql, snapshots).key(&PrepareProgram::of_version(version))
        };
        let known = key("SELECT 1", &[("a", "1"), ("b", "2")], "1.0");
        assert_eq!(known, key("SELECT 1", &[("b", "2"), ("a", "1")], "1.0"));
        for other in [
            key("SELECT 2", &[("a", "1"), ("b", "2")], "1.0"),
            key("SELECT 1", &[("a", "2"), ("b", "1")], "1.0"),
            key("SELECT 1", &[("a", "1")], "1.0"),
            key("SELECT 1", &[("a", "1"), ("b", "2")], "1.1"),
        ] {
            assert_ne!(known, other);
        }
    }

    #[test]
    fn errors_name_the_flags_of_the_server() {
        let error = ViewError::Failed("the query needs more than --memory-bytes 16MiB".to_owned());
        assert!(in_settings_of_server(error).to_string().contains("--view-memory-bytes 16MiB"));
    }
}

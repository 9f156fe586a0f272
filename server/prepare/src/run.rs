//! One run: SQL and datasets in, a dataset out.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use datafusion::{
    error::DataFusionError, execution::context::SessionContext, logical_expr::LogicalPlan, physical_plan::ExecutionPlan,
};
use forebay_catalog::{Location, Stores};
use forebay_expr::SQL_BYTES_MAX;
use forebay_runtime::cpu_pool::CpuPool;
use forebay_settings::ByteSize;
use serde::Serialize;

use crate::{
    destination::{Destination, Existing},
    engine::Engine,
    error::{PrepareError, cause, of_input, sentence},
    flags::Flags,
    inputs::{self, Input},
    manifest::{Manifest, Recipe, recipe_digest},
    output_schema,
    parquet_file::WrittenFile,
    progress::Progress,
    session::{Joins, Limits},
    signals::interrupted,
    sql::{self, Query},
    table,
    write::{self, RunError, Shape},
};

/// Storage requests at once.
const STORAGE_REQUESTS_MAX: usize = 64;

/// The setting that DataFusion names when spilled data exceeds its limit.
const SPILL_LIMIT: &str = "max_temp_directory_size";

/// The result of a run.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The folder of the dataset.
    pub out: String,
    /// What was done.
    pub status: Status,
    /// The rows of the dataset.
    pub rows: u64,
    /// The bytes of its files.
    pub bytes: u64,
    /// Its files.
    pub files: usize,
    /// Bytes that were spilled to disk.
    pub spilled_bytes: u64,
    /// Duration of the run.
    pub seconds: f64,
}

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It wrote a new dataset.
    Written,
    /// It replaced the dataset.
    Replaced,
    /// The dataset is that of this query and these inputs: nothing was done.
    UpToDate,
    /// The query is valid for its inputs: nothing was done.
    Checked,
}

/// Everything that a run needs.
struct Job {
    out: String,
    engine: Engine,
    progress_interval: Duration,
    inputs: Vec<Input>,
    recipe: Recipe,
    limits: Limits,
    memory_shown: String,
    shape: Shape,
}

/// The files that a query wrote, and the bytes that it spilled.
struct Written {
    manifest: Manifest,
    files: Vec<WrittenFile>,
    spilled_bytes: u64,
}

/// Runs the query of the options.
pub async fn run(flags: &Flags) -> Result<Outcome, PrepareError> {
    let started = Instant::now();
    let sql = query_text(flags)?;
    let engine = Engine::new(&flags.engine)?;
    let mut stores = Stores::new(STORAGE_REQUESTS_MAX);
    let out = flags.out.as_deref().unwrap_or_default();
    let mut destination = Destination::open(out, &Location::parse("out", out, &mut stores)?)?;
    let cpu = CpuPool::new(flags.cpu_threads as usize).map_err(|error| PrepareError::Threads(error.to_string()))?;
    let inputs = inputs::open(&flags.inputs, &mut stores, &cpu).await?;
    check_apart(&destination, &inputs, out)?;
    let mut job = Job::new(flags, engine, inputs, sql, cpu.threads())?;
    let context = job.open(Joins::Hash, job.limits.threads)?;
    let query = job.plan(&context).await?;
    job.recipe.is_volatile = query.is_volatile;
    if flags.dry_run {
        output_schema::written(&job.physical(&context, &query.plan).await?.schema())?;
        return Ok(job.outcome(Status::Checked, started));
    }
    let status = match destination.existing().await? {
        Existing::Nothing => Status::Written,
        Existing::Prepared(earlier)
            if !earlier.volatile && earlier.recipe == recipe_digest(&job.recipe, &job.inputs) =>
        {
            let (rows, bytes, files) = (earlier.rows, earlier.bytes, earlier.files().len());
            return Ok(Outcome { rows, bytes, files, ..job.outcome(Status::UpToDate, started) });
        }
        Existing::Prepared(_) | Existing::Damaged(_) if flags.replace => Status::Replaced,
        other => return Err(destination.write_error(refusal(&other))),
    };
    let written = job.write_or_discard(&mut destination).await?;
    destination.publish(written.manifest.to_text().map_err(|error| PrepareError::Query(error.to_string()))?).await?;
    Ok(Outcome {
        rows: written.files.iter().map(|file| file.rows).sum(),
        bytes: written.files.iter().map(|file| file.bytes).sum(),
        files: written.files.len(),
        spilled_bytes: written.spilled_bytes,
        ..job.outcome(status, started)
    })
}

fn query_text(flags: &Flags) -> Result<String, PrepareError> {
    match (&flags.sql, &flags.sql_file) {
        (Some(sql), _) => Ok(sql.clone()),
        (None, None) => Err(PrepareError::Usage("--sql or --sql-file is required".to_owned())),
        (None, Some(path)) if path == Path::new("-") && flags.exit_with_stdin => {
            Err(PrepareError::Usage("--sql-file -: with --exit-with-stdin, standard input holds no query".to_owned()))
        }
        (None, Some(path)) => {
            let read = if path == Path::new("-") { read_stdin() } else { read_file(path) };
            read.map_err(|source| PrepareError::SqlFile { path: path.clone(), source })
        }
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.len() > SQL_BYTES_MAX as u64 {
        return Err(io::Error::other(format!("it has more than {SQL_BYTES_MAX} bytes")));
    }
    fs::read_to_string(path)
}

fn read_stdin() -> io::Result<String> {
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(io::stdin().lock(), SQL_BYTES_MAX as u64 + 1), &mut text)?;
    Ok(text)
}

/// The directory of spilled data, which must exist.
pub(crate) fn spill_directory(given: Option<&Path>) -> Result<PathBuf, PrepareError> {
    let directory = given.map_or_else(env::temp_dir, Path::to_owned);
    if directory.is_dir() {
        return Ok(directory);
    }
    Err(PrepareError::Usage(format!("--spill-dir {}: there is no such directory", directory.display())))
}

/// Checks that no input is in the folder of the result.
fn check_apart(destination: &Destination, inputs: &[Input], out: &str) -> Result<(), PrepareError> {
    for input in inputs {
        let inside = input.snapshot.files().iter().find(|file| destination.contains(file.display()));
        if let Some(file) = inside {
            let reason =
                format!("the dataset \"{}\" reads {} there: choose another folder", input.name, file.display());
            return Err(PrepareError::Usage(format!("--out {out}: {reason}")));
        }
    }
    Ok(())
}

fn refusal(existing: &Existing) -> String {
    match existing {
        Existing::Nothing => String::new(),
        Existing::Prepared(earlier) if earlier.volatile => {
            "it exists, and the query depends on the time or on random numbers; --replace runs it again".to_owned()
        }
        Existing::Prepared(_) => {
            "it exists, from another query, other options or other inputs; --replace replaces it".to_owned()
        }
        Existing::Damaged(reason) => format!("it exists and is damaged: {reason}; --replace replaces it"),
        Existing::Foreign(reason) => {
            format!("it exists and is not a prepared dataset: {reason}; choose another folder")
        }
    }
}

// === impl Job ===

impl Job {
    fn new(
        flags: &Flags,
        engine: Engine,
        inputs: Vec<Input>,
        sql: String,
        threads: usize,
    ) -> Result<Self, PrepareError> {
        let memory_bytes = usize::try_from(flags.memory_bytes.0).unwrap_or(usize::MAX);
        let spill_directory = spill_directory(flags.spill_dir.as_deref())?;
        let (row_group_rows, file_bytes) = (flags.row_group_rows, flags.file_bytes.0);
        let partitions = engine.partitions(flags.cpu_threads, threads);
        Ok(Self {
            out: flags.out.clone().unwrap_or_default(),
            engine,
            progress_interval: Duration::from_secs(flags.progress_seconds),
            inputs,
            recipe: Recipe { sql, row_group_rows: u64::from(row_group_rows), file_bytes, is_volatile: false },
            limits: Limits { memory_bytes, spill_directory, spill_bytes: flags.spill_bytes.0, threads: partitions },
            memory_shown: flags.memory_bytes.to_string(),
            shape: Shape { row_group_rows: row_group_rows as usize, file_bytes, memory_bytes, threads },
        })
    }

    /// An outcome without rows.
    fn outcome(&self, status: Status, started: Instant) -> Outcome {
        let (out, seconds) = (self.out.clone(), started.elapsed().as_secs_f64());
        Outcome { out, status, rows: 0, bytes: 0, files: 0, spilled_bytes: 0, seconds }
    }

    fn open(&self, joins: Joins, threads: usize) -> Result<SessionContext, PrepareError> {
        let limits = Limits { threads, ..self.limits.clone() };
        self.engine.session(&self.inputs, &limits, joins).map_err(|error| self.query_error(&error))
    }

    async fn plan(&self, context: &SessionContext) -> Result<Query, PrepareError> {
        let names: Vec<&str> = self.inputs.iter().map(|input| input.name.as_str()).collect();
        sql::plan(&context.state(), &self.recipe.sql, &names).await
    }

    /// Writes the files of the run. If that fails or a signal arrives, removes them.
    async fn write_or_discard(&self, destination: &mut Destination) -> Result<Written, PrepareError> {
        let written = {
            let shared = &mut *destination;
            tokio::select! {
                biased;
                () = interrupted() => Err(PrepareError::Interrupted),
                written = self.write_in_memory(shared) => written,
            }
        };
        self.engine.release().await;
        if written.is_err() {
            destination.discard().await;
        }
        written
    }

    /// Runs the query with hash joins and, if they do not fit the memory, with joins that sort and spill; last, with one
    /// partition at a time, which leaves each operator the most memory. A cluster chooses its joins itself.
    async fn write_in_memory(&self, destination: &mut Destination) -> Result<Written, PrepareError> {
        if !self.engine.is_embedded() {
            return self.write(destination, Joins::SortMerge, self.limits.threads).await;
        }
        let decoded = self.inputs.iter().map(|input| table::decoded_bytes(&input.snapshot)).sum::<u64>();
        let threads = self.limits.threads;
        // Tables larger than the memory rarely fit as hash tables.
        let fits = decoded <= self.limits.memory_bytes as u64;
        for joins in [Joins::Hash, Joins::SortMerge].into_iter().skip(usize::from(!fits)) {
            match self.write(destination, joins, threads).await {
                Err(PrepareError::Memory { .. }) => destination.discard().await,
                other => return other,
            }
        }
        self.write(destination, Joins::SortMerge, 1).await
    }

    async fn write(
        &self,
        destination: &mut Destination,
        joins: Joins,
        threads: usize,
    ) -> Result<Written, PrepareError> {
        let context = self.open(joins, threads)?;
        let plan = self.plan(&context).await?.plan;
        let plan = self.physical(&context, &plan).await?;
        let schema = output_schema::written(&plan.schema())?;
        let staging = destination.stage().await?;
        let progress = Arc::new(Progress::default());
        let disk = Arc::clone(&context.runtime_env().disk_manager);
        let pool = Arc::clone(&context.runtime_env().memory_pool);
        let written = async {
            let rows = self.engine.rows(Arc::clone(&plan), &context).await?;
            write::write(rows, &schema, &staging, self.shape, &pool, &progress).await
        };
        let outcome = tokio::select! {
            outcome = written => outcome,
            () = progress.show(self.progress_interval, || disk.used_disk_space()) => return Err(PrepareError::Interrupted),
        };
        let files = match outcome {
            Ok(files) => files,
            Err(error) => return Err(self.run_error(destination, error).await),
        };
        inputs::check_unchanged(&self.inputs).await?;
        let manifest = Manifest::new(&self.recipe, &self.inputs, &schema, &staging.relative, &files);
        Ok(Written { manifest, files, spilled_bytes: spilled(plan.as_ref()) })
    }

    async fn physical(
        &self,
        context: &SessionContext,
        plan: &LogicalPlan,
    ) -> Result<Arc<dyn ExecutionPlan>, PrepareError> {
        let planned = context.state().create_physical_plan(plan).await;
        planned.map_err(|error| self.query_error(&error))
    }

    async fn run_error(&self, destination: &Destination, error: RunError) -> PrepareError {
        // An executor knows only that its file is another one.
        if !self.engine.is_embedded()
            && let Err(changed) = inputs::check_unchanged(&self.inputs).await
        {
            return changed;
        }
        match error {
            RunError::Query(error) => self.query_error(&error),
            RunError::Write(error) => destination.write_error(format!("cannot be written: {}", root_text(&error))),
            RunError::Encoder(error) => PrepareError::Query(error.to_string()),
        }
    }

    fn query_error(&self, error: &DataFusionError) -> PrepareError {
        if let Some(error) = of_input(error) {
            return error;
        }
        if let Some(error) = self.engine.error(error, &self.inputs) {
            return error;
        }
        let root = error.find_root();
        if error.to_string().contains(SPILL_LIMIT) {
            let directory = self.limits.spill_directory.clone();
            let reason = format!("more than --spill-bytes {}", ByteSize(self.limits.spill_bytes));
            return PrepareError::Spill { directory, reason };
        }
        if matches!(root, DataFusionError::ResourcesExhausted(_)) {
            return PrepareError::Memory { limit: self.memory_shown.clone(), reason: sentence(error) };
        }
        // Reads of files report errors of the store: others are of spilled data.
        if let Some(error) = cause::<io::Error>(error) {
            let directory = self.limits.spill_directory.clone();
            return PrepareError::Spill { directory, reason: error.to_string() };
        }
        PrepareError::Query(sentence(error))
    }
}

/// The message of an error and of its first cause.
fn root_text(error: &(dyn std::error::Error + 'static)) -> String {
    let text = error.to_string();
    match cause::<io::Error>(error).map(ToString::to_string) {
        Some(cause) if !text.contains(&cause) => format!("{text}: {cause}"),
        _ => text,
    }
}

/// The bytes that the operators of a plan spilled.
fn spilled(plan: &dyn ExecutionPlan) -> u64 {
    let own = plan.metrics().and_then(|metrics| metrics.spilled_bytes()).unwrap_or(0) as u64;
    own + plan.children().into_iter().map(|child| spilled(child.as_ref())).sum::<u64>()
}

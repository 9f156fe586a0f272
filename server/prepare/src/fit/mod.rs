//! `forebay-prepare fit`: fits a plan as a server does, without one. With a cluster, its executors run the passes.

mod flags;
mod parts;

use std::{
    fs,
    io::{self, Read, Write},
    path::Path,
};

use forebay_catalog::{Catalog, Stores};
use forebay_expr::ExprError;
use forebay_plan::Sample;
use forebay_proto::v1::{self, fit_update::Update};
use forebay_runtime::{cpu_pool::CpuPool, error::near_names};
use forebay_stream::{FitSpec, FitTask, StreamError, Streams, UnreadPin};
use futures::TryStreamExt;

pub use flags::FitFlags;
#[cfg(feature = "ballista")]
pub(crate) use parts::worker;

use crate::{
    engine::Engine,
    error::{PrepareError, cause},
    inputs::{self, Input},
    run::spill_directory,
    session::Limits,
    signals::interrupted,
};

/// Storage requests at once.
const STORAGE_REQUESTS_MAX: usize = 64;

/// A plan that was fitted.
#[derive(Debug)]
pub struct Fitted {
    result: v1::FitResult,
}

/// Fits the plan of the options.
pub async fn fit(flags: &FitFlags) -> Result<Fitted, PrepareError> {
    let plan = read_plan(&flags.plan)?;
    let engine = Engine::new(&flags.engine)?;
    let sample = Sample::check(flags.sample, flags.sample_seed);
    let sample = sample.map_err(|error| PrepareError::Usage(format!("--{error}")))?;
    let spill_directory = spill_directory(flags.spill_dir.as_deref())?;
    let cpu = CpuPool::new(flags.cpu_threads as usize).map_err(|error| PrepareError::Threads(error.to_string()))?;
    let mut stores = Stores::new(STORAGE_REQUESTS_MAX);
    let (catalog, named) = inputs::catalog(&flags.inputs, &mut stores, &cpu)?;
    check_name(&flags.source, &named)?;
    let inputs = inputs::pinned(&catalog, named, &flags.inputs).await?;
    let memory_bytes = usize::try_from(flags.memory_bytes.0).unwrap_or(usize::MAX);
    let threads = engine.partitions(flags.cpu_threads, cpu.threads());
    let limits = Limits { memory_bytes, spill_directory, spill_bytes: u64::MAX, threads };
    let spec = FitSpec { dataset: flags.source.clone(), plan, sample, refit: true };
    let result = run(&engine, &limits, (catalog, &inputs), cpu, spec).await?;
    let fitted = Fitted { result };
    if let Some(path) = &flags.out {
        fitted.write(path)?;
    }
    Ok(fitted)
}

/// Checks that a dataset is one of those of the flags.
fn check_name(name: &str, named: &[(String, String)]) -> Result<(), PrepareError> {
    if named.iter().any(|(known, _)| known == name) {
        return Ok(());
    }
    let near = near_names(name, named.iter().map(|(known, _)| known.as_str()));
    Err(PrepareError::Usage(format!("no --dataset is named \"{name}\": {near}")))
}

/// Runs a fit to its end or to a signal.
async fn run(
    engine: &Engine,
    limits: &Limits,
    (catalog, inputs): (Catalog, &[Input]),
    cpu: CpuPool,
    spec: FitSpec,
) -> Result<v1::FitResult, PrepareError> {
    let failed =
        |error: io::Error| PrepareError::Spill { directory: limits.spill_directory.clone(), reason: error.to_string() };
    // Removed with everything in it when it is dropped.
    let folder = tempfile::Builder::new().prefix("forebay-fit-").tempdir_in(&limits.spill_directory).map_err(failed)?;
    let parts = parts::of(catalog, cpu, limits.memory_bytes, folder.path()).map_err(PrepareError::Fit)?;
    let mut streams = Streams::new(parts);
    if let Some(runner) = engine.passes(limits) {
        streams = streams.with_runner(runner);
    }
    let ended = tokio::select! {
        biased;
        () = interrupted() => Err(PrepareError::Interrupted),
        ended = result(streams.fit(spec)) => match ended {
            Ok(result) => inputs::check_unchanged(inputs).await.map(|()| result),
            Err(error) => Err(fit_error(engine, inputs, &error).await),
        },
    };
    engine.release().await;
    ended
}

/// The result of a fit, after its last update.
async fn result(mut task: FitTask) -> Result<v1::FitResult, StreamError> {
    let mut fitted = v1::FitResult::default();
    while let Some(update) = task.try_next().await? {
        if let Some(Update::Result(result)) = update.update {
            fitted = result;
        }
    }
    Ok(v1::FitResult { cached: None, ..fitted })
}

async fn fit_error(engine: &Engine, inputs: &[Input], error: &StreamError) -> PrepareError {
    let error = unshared(error);
    // An executor knows only that its file is another one.
    if let Err(changed) = inputs::check_unchanged(inputs).await {
        return changed;
    }
    match cause(error).and_then(|error| engine.error(error, inputs)) {
        Some(PrepareError::Query(reason)) => return PrepareError::Fit(reason),
        Some(error) => return error,
        None => {}
    }
    if let Some(pin) = UnreadPin::of(error).filter(|pin| pin.is_change) {
        return PrepareError::Changed(pin.reason);
    }
    // The names of the server's flags.
    let text = error.to_string().replace("--fit-memory-bytes", "--memory-bytes");
    match error {
        StreamError::Expression { source: ExprError::Evaluation { .. }, .. } => PrepareError::Fit(text),
        StreamError::Plan(_) | StreamError::Expression { .. } | StreamError::InputDrift { .. } => {
            PrepareError::Plan(text)
        }
        _ => PrepareError::Fit(text.replace("--memory-limit-bytes", "--memory-bytes")),
    }
}

/// The error of a computation that several requests may share.
fn unshared(error: &StreamError) -> &StreamError {
    match error {
        StreamError::Shared(error) => unshared(error),
        error => error,
    }
}

/// Reads a plan in JSON, or the plan of the result of a fit.
fn read_plan(path: &Path) -> Result<v1::Plan, PrepareError> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().read_to_end(&mut bytes).map(|_| ())
    } else {
        fs::read(path).map(|read| bytes = read)
    };
    read.map_err(|source| PrepareError::PlanFile { path: path.to_owned(), source })?;
    let decoded = forebay_proto::decode::<v1::Plan>(bytes.trim_ascii());
    decoded.map(|(plan, _)| plan).map_err(|error| PrepareError::Plan(format!("{}: {error}", path.display())))
}

// === impl Fitted ===

impl Fitted {
    /// The result as `forebay fit --json` writes it: equal fits have equal texts.
    pub fn to_text(&self) -> String {
        forebay_proto::to_pretty_json(&self.result) + "\n"
    }

    /// The warnings of the plan.
    pub fn warnings(&self) -> &[String] {
        &self.result.warnings
    }

    /// Writes the file of `--out` at once.
    fn write(&self, path: &Path) -> Result<(), PrepareError> {
        let failed = |error: &dyn std::error::Error| PrepareError::Out {
            out: path.display().to_string(),
            reason: format!("cannot be written: {error}"),
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|error| failed(&error))?;
        file.write_all(self.to_text().as_bytes()).map_err(|error| failed(&error))?;
        file.persist(path).map_err(|error| failed(&error))?;
        Ok(())
    }
}

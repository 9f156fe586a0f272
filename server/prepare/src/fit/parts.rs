//! The parts of a server that a fit needs.

use std::{path::Path, time::Duration};

use forebay_cache::RowCache;
use forebay_catalog::Catalog;
#[cfg(feature = "ballista")]
use forebay_catalog::Stores;
use forebay_columns::{tokenizers::Tokenizers, udf::Udfs};
use forebay_engine::Engine;
use forebay_plan::Limits;
use forebay_runtime::{budget::Budget, cpu_pool::CpuPool, state::State};
#[cfg(feature = "ballista")]
use forebay_stream::FitWorker;
use forebay_stream::{Device, StreamParts};

/// The parts over these datasets, whose files are in `folder`.
pub(super) fn of(catalog: Catalog, cpu: CpuPool, memory_bytes: usize, folder: &Path) -> Result<StreamParts, String> {
    let state = State::open(folder, folder, &cpu).map_err(|error| error.to_string())?;
    let budget = Budget::new(memory_bytes as u64);
    let engine = Engine::new(memory_bytes, &budget, &state).map_err(|error| error.to_string())?;
    Ok(StreamParts {
        catalog,
        engine,
        budget,
        cache: RowCache::new(0),
        state,
        // Limits of streams, of which there are none.
        limits: Limits { batch_bytes_max: 0, pause_max: Duration::ZERO, idle_max: Duration::ZERO, groups_max: 0 },
        device: Device::Cpu,
        udfs: Udfs::new(Vec::new(), Duration::ZERO, cpu.clone()),
        tokenizers: Tokenizers::new(Vec::new()),
        cpu,
    })
}

/// The worker of an executor with this number of cores. Its aggregates are those of the cluster: only the rows that are being read are
/// in its memory, a few blocks and row groups for each core.
#[cfg(feature = "ballista")]
pub(crate) fn worker(cores: usize, folder: &Path, stores: Stores) -> Result<FitWorker, String> {
    let cpu = CpuPool::new(cores).map_err(|error| error.to_string())?;
    let folder = folder.join("fits");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let parts = of(Catalog::new([], &cpu), cpu, usize::MAX, &folder)?;
    Ok(FitWorker::new(parts, stores))
}

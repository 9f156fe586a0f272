//! The parts of the server that streams and fits run on.

use forebay_cache::RowCache;
use forebay_catalog::Catalog;
use forebay_columns::{images::ImagePool, tokenizers::Tokenizers, udf::Udfs};
use forebay_engine::Engine;
use forebay_plan::Limits;
use forebay_runtime::{budget::Budget, cpu_pool::CpuPool, state::State};
use forebay_scan::Sharing;

use super::{
    device::Device, epoch::shared_sequences::SharedSequences, plan_store::PlanStore,
    prepare::table_columns::TableColumns,
};

/// The parts of the server that streams and fits run on, shared by all of them.
#[derive(Debug)]
pub(crate) struct Environment {
    pub catalog: Catalog,
    pub engine: Engine,
    pub cpu: CpuPool,
    pub budget: Budget,
    pub state: State,
    pub plans: PlanStore,
    pub limits: Limits,
    pub device: Device,
    /// Finished rows of row groups.
    pub cache: RowCache,
    /// Row groups that streams have open.
    pub sharing: Sharing,
    /// Python functions.
    pub udfs: Udfs,
    /// Tokenizers of the operator.
    pub tokenizers: Tokenizers,
    /// The threads that decode images.
    pub images: ImagePool,
    /// Columns of tables that plans look up.
    pub table_columns: TableColumns,
    /// Sequences of row groups that several readers have open.
    pub sequences: SharedSequences,
}

/// The parts of the server that streams run on.
#[derive(Debug)]
pub struct StreamParts {
    /// The datasets.
    pub catalog: Catalog,
    /// Computes the aggregates of fits.
    pub engine: Engine,
    /// Decodes and computes.
    pub cpu: CpuPool,
    /// The memory of streams, fits and descriptions.
    pub budget: Budget,
    /// Finished rows that streams share.
    pub cache: RowCache,
    /// Plans, counts and results.
    pub state: State,
    /// Limits of streams.
    pub limits: Limits,
    /// Computes features.
    pub device: Device,
    /// Python functions.
    pub udfs: Udfs,
    /// Tokenizers of the operator.
    pub tokenizers: Tokenizers,
}

// === impl Environment ===

impl Environment {
    /// The environment of these parts.
    pub(super) fn new(parts: StreamParts) -> Self {
        let StreamParts { catalog, engine, cpu, budget, cache, state, limits, device, udfs, tokenizers } = parts;
        let (plans, sharing) = (PlanStore::new(state.clone()), Sharing::default());
        let images = ImagePool::new(cpu.clone());
        let (table_columns, sequences) = (TableColumns::default(), SharedSequences::default());
        Self {
            catalog,
            engine,
            cpu,
            budget,
            state,
            plans,
            limits,
            device,
            cache,
            sharing,
            udfs,
            tokenizers,
            images,
            table_columns,
            sequences,
        }
    }
}

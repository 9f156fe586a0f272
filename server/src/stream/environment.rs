//! The parts of the server that streams and fits run on.

use super::{device::Device, plan_store::PlanStore};
use crate::{
    budget::Budget, cache::RowCache, catalog::Catalog, cpu_pool::CpuPool, engine::Engine, images::ImagePool,
    plan::Limits, scan::Sharing, state::State, tokenizers::Tokenizers, udf::Udfs,
};

/// The parts of the server that streams and fits run on, shared by all of them.
#[derive(Debug)]
pub(super) struct Environment {
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
}

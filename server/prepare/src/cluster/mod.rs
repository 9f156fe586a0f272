//! Queries and fits on a Ballista cluster: this process plans, the cluster runs, this process writes the result.
//!
//! The plan is made here, over the pinned files of the inputs, and sent as a physical plan. Its nodes are DataFusion's, and
//! `pass`, which computes the values of a fit (`codec`, `passes`). Each path in it carries the pin of its file (`pins`), and `forebay-executor` reads only files that are still the
//! pinned ones (`pinned_store`): Ballista's own programs do not know these paths. Distribution, shuffles and retries are Ballista's; nothing of them is here.

mod codec;
mod job;
mod messages;
mod pass;
mod passes;
mod pinned_store;
mod pins;
mod planning;
mod programs;
mod result;

pub(crate) use job::Cluster;
pub(crate) use passes::ClusterPasses;
pub(crate) use planning::session;
pub use programs::{executor, scheduler};

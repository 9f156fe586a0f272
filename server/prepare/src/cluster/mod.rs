//! Queries on a Ballista cluster: this process plans, the cluster runs, this process writes the result.
//!
//! The plan is made here, over the pinned files of the inputs, and sent as a physical plan. Its nodes are DataFusion's, so that it
//! needs no codec. Each path in it carries the pin of its file (`pins`), and `forebay-executor` reads only files that are still the
//! pinned ones (`pinned_store`): Ballista's own programs do not know these paths. Distribution, shuffles and retries are Ballista's; nothing of them is here.

mod job;
mod messages;
mod pinned_store;
mod pins;
mod planning;
mod programs;
mod result;

pub(crate) use job::Cluster;
pub(crate) use planning::session;
pub use programs::{executor, scheduler};

//! The batches of one rank of an epoch.
//!
//! ```text
//! batches ─┬─ in_order: pieces of row groups ──────────────────────────────────┬─▶ outlet ──▶ the stream's queue
//! (batch_task)
//!          ├─ shuffled: lane_task (windows) ─▶ interleave (rows) ─▶ padding ───┤
//!          ├─ mixture: lane_task (windows of every source) ─▶ mixer (rows) ────┤
//!          └─ bucketed: one of the first two for each bucket, in turn ───────────┘
//! ```
//!
//! All read row groups through `group`, or through `cached` if the cache has room for them; `memory` sizes them before
//! they start, and `fitting` finds parameters of less memory for those that are refused.

mod balanced;
pub(crate) mod batch_task;
pub(crate) mod batches;
mod bucketed;
mod cached;
mod dataset;
mod divided;
pub(crate) mod fitting;
pub(crate) mod in_order;
mod interleave;
mod lane_task;
pub(crate) mod memory;
pub(crate) mod mixture;
mod outlet;
mod packed;
mod padding;
mod piece;
pub(crate) mod row_group;
mod run;
mod sequences;
pub(crate) mod shared_sequences;
mod shuffled;
mod stored;
mod windowed;

//! The batches of one rank of an epoch.
//!
//! ```text
//! batches ─┬─ in_order: pieces of row groups ──────────────────────────────────┬─▶ outlet ──▶ the stream's queue
//! (task)
//!          ├─ shuffled: lane_task (windows) ─▶ interleave (rows) ─▶ padding ───┤
//!          └─ mixture: lane_task (windows of every source) ─▶ mixer (rows) ────┘
//! ```
//!
//! All read row groups through `group`; `memory` sizes them before they start,
//! and `fitting` finds parameters of less memory for those that are refused.

pub(crate) mod batches;
pub(crate) mod fitting;
mod group;
pub(crate) mod in_order;
mod interleave;
mod lane_task;
pub(crate) mod memory;
pub(crate) mod mixture;
mod outlet;
mod padding;
mod shuffled;
pub(crate) mod task;

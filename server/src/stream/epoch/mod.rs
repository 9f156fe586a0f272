//! The batches of one rank of an epoch.
//!
//! ```text
//! batches ─┬─ in_order: pieces of row groups ──────────────────────────────────┬─▶ outlet ──▶ the stream's queue
//! (task)
//!          └─ shuffled: lane_task (windows) ─▶ interleave (rows) ─▶ padding ───┘
//! ```
//!
//! Both read row groups through `group`; `memory` sizes them before they start.

pub(crate) mod batches;
mod group;
pub(crate) mod in_order;
mod interleave;
mod lane_task;
pub(crate) mod memory;
mod outlet;
mod padding;
mod shuffled;
pub(crate) mod task;

//! Resolves a checked request to its snapshot, compiled plan and order.

mod balanced;
pub(crate) mod bucketed;
pub(crate) mod cache;
pub(crate) mod cache_level;
pub(crate) mod compiled;
pub(crate) mod dataset;
pub(crate) mod drawn;
pub(crate) mod drift;
pub(crate) mod functions;
pub(crate) mod lookup;
pub(crate) mod mixed;
pub(crate) mod mixture;
pub(crate) mod narrowing;
pub(crate) mod ordered;
pub(crate) mod prepared;
pub(crate) mod resolver;
pub(crate) mod table_columns;
mod units;
mod weighted;
pub(crate) mod windows;

//! Resolves a checked request to its snapshot, compiled plan and order.

pub(crate) mod cache;
mod compiled;
pub(crate) mod count;
pub(crate) mod deciding;
mod drift;
pub(crate) mod finished;
pub(crate) mod groups;
mod joins;
pub(crate) mod lookup;
pub(crate) mod mixture;
pub(crate) mod passing;
pub(crate) mod prepare;
pub(crate) mod rows;
pub(crate) mod units;

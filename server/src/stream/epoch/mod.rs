//! One rank's batches of an epoch.

pub(crate) mod batches;
pub(crate) mod group;
pub(crate) mod in_order;
pub(crate) mod shuffled;
pub(crate) mod task;

//! A checked request → its snapshot, compiled plan and order.

pub(crate) mod compiled;
pub(crate) mod count;
pub(crate) mod drift;
pub(crate) mod lookup;
pub(crate) mod prepare;
pub(crate) mod rows;
pub(crate) mod units;

//! The calls of Flight, one module each.

pub(crate) mod do_action;
pub(crate) mod do_exchange;
pub(crate) mod do_get;

//! Outputs of a plan → a program.

pub(crate) mod chain;
pub(crate) mod inputs;
pub(crate) mod join;
pub(crate) mod program;

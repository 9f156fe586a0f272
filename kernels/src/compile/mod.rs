//! Compilation: the outputs of a plan → a [`Program`](program::Program), checked against the types of the input's
//! columns.
//!
//! Compilation reads no rows of the input and never imports `execute`. The one thing that it executes, the ops after a
//! `lookup` over the table's rows, it executes through the function in [`inputs::Inputs`].

pub(crate) mod chain;
pub(crate) mod chain_ops;
mod cross;
mod encoding;
mod group_scales;
pub(crate) mod inputs;
mod list_ops;
mod lookup;
mod number_ops;
pub(crate) mod outputs;
pub(crate) mod program;
mod string_ops;

//! Compilation: the outputs of a plan → a [`Program`](program::Program), checked against the types of the input's columns.
//!
//! Compilation reads no rows and never imports `execute`. The one thing that it runs, the ops after a `lookup` over the table's
//! rows, it runs through the function that [`inputs::Inputs`] carries.

pub(crate) mod chain;
mod chain_ops;
mod cross;
pub(crate) mod inputs;
mod list_ops;
mod lookup;
mod number_ops;
pub(crate) mod outputs;
pub(crate) mod program;
mod string_ops;

//! Resolves a checked request to its snapshot, compiled plan and order.

pub(crate) mod cache;
mod compiled;
pub(crate) mod count;
pub(crate) mod deciding;
pub(crate) mod derivation;
pub(crate) mod documents;
pub(crate) mod drift;
pub(crate) mod expressions;
pub(crate) mod finished;
pub(crate) mod function_column;
mod function_names;
pub(crate) mod functions;
pub(crate) mod groups;
mod image_columns;
mod joins;
pub(crate) mod lookup;
pub(crate) mod mixture;
pub(crate) mod narrowing;
pub(crate) mod passing;
pub(crate) mod prepare;
pub(crate) mod prepared;
mod recent;
pub(crate) mod rows;
mod sequences;
mod skipped;
mod units;
mod wanted;

//! Rows: which columns are read, which rows pass and what is derived from them; the driver that reads row groups and hands
//! their rows to sinks.
//!
//! ```text
//! expressions, joins, functions, history ─▶ derivation ─▶ selection ─▶ scan ─▶ reader ─┐
//!                                                                  sources of epochs ─┴─▶ drive ─▶ sinks
//! ```
//!
//! Every loop over the rows of a row group is that of [`drive`]; [`pass`] opens row groups for it.

pub(crate) mod derivation;
pub(crate) mod documents;
pub(crate) mod drive;
pub(crate) mod expressions;
pub(crate) mod function_column;
mod function_names;
pub(crate) mod functions;
pub(crate) mod group;
pub(crate) mod history;
mod image_columns;
mod joins;
pub(crate) mod neighbours;
pub(crate) mod pass;
pub(crate) mod passing;
pub(crate) mod prefilter;
pub(crate) mod pruning;
pub(crate) mod reader;
pub(crate) mod scan;
pub(crate) mod selection;

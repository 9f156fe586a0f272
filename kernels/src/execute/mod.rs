//! Execution on the CPU: a program over record batches → an output batch.
//!
//! A tile of rows is loaded from Arrow, runs through its whole chain in cache, and is written to its rows of the
//! output. No temporary is as large as a column, except the values of a mapped dictionary.

pub(crate) mod builder;
pub(crate) mod canonical;
pub(crate) mod dictionary;
pub(crate) mod explain;
pub(crate) mod fuse;
pub(crate) mod hash_values;
pub(crate) mod interleave;
#[cfg(test)]
mod levels;
mod list_output;
pub(crate) mod list_rows;
pub(crate) mod lists;
pub(crate) mod load;
pub(crate) mod mapped;
pub(crate) mod matrix;
mod matrix_output;
mod row_run;
pub(crate) mod source;
mod spare;
pub(crate) mod text;
pub(crate) mod transpose;
pub(crate) mod workspace;

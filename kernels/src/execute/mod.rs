//! Programs on the CPU: a tile of rows is loaded from Arrow, runs through its whole chain in cache, and is written at its place
//! in the output. No temporary has the size of a column, except a dictionary's mapped values.

pub(crate) mod builder;
pub(crate) mod dictionary;
pub(crate) mod explain;
pub(crate) mod fuse;
pub(crate) mod interleave;
#[cfg(test)]
mod levels;
mod list_output;
pub(crate) mod list_rows;
pub(crate) mod lists;
pub(crate) mod load;
pub(crate) mod matrix;
mod matrix_output;
mod row_run;
pub(crate) mod source;
pub(crate) mod text;
pub(crate) mod transpose;
pub(crate) mod workspace;

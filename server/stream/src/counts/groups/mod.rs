//! Grouped streams: the groups of a column and the rows of each per row group.
//!
//! One pass over the column counts the rows of every group. The stream of a group is then that of a filter whose counts
//! are known: it has the same order, positions and tickets, and reads no row group without rows of the group.

pub(crate) mod counts;
mod stored;
pub(crate) mod table;

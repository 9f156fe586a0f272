//! Grouped streams: the groups of a column, the rows of each per row group, and the filter of one group.
//!
//! One pass over the column counts the rows of every group. The stream of a group is then that of a filter whose counts
//! are known: it has the same order, positions and tickets, and reads no row group without rows of the group.

pub(crate) mod column;
pub(crate) mod counts;
mod filter;
mod key;
mod stored;
pub(crate) mod table;

pub(crate) use column::GroupColumn;
pub(crate) use filter::GroupFilter;

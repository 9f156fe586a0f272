//! The column that a request groups by, its keys, and the filter of one group.

mod column;
mod filter;
mod key;

pub(crate) use column::GroupColumn;
pub(crate) use filter::GroupFilter;
pub(crate) use key::GroupKey;

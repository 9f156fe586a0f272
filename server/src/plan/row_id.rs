//! Row ids: a row's index in its snapshot.

/// Name of the column with each row's index in the snapshot, added on request.
pub const ROW_ID: &str = "__row_id";

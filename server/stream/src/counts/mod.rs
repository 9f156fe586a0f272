//! What one pass over the rows finds once for a snapshot and a plan: the rows that pass a filter, those without an image,
//! sequences, groups, series and weights. Storable in memory and under `--state`.

pub(crate) mod filtered_rows;
pub(crate) mod groups;
pub(crate) mod passing;
pub(crate) mod recent;
pub(crate) mod sequences;
pub(crate) mod series;
pub(crate) mod skipped;
pub(crate) mod store;
pub(crate) mod weights;

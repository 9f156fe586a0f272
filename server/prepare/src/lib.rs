//! Prepares datasets with SQL: joins, windows, duplicates and groups, which a stream cannot compute row by row.
//!
//! Data flow: `inputs` (→ snapshots) → `sql` (→ plan) → `session` (DataFusion) → `write` (rows → Parquet files) →
//! `destination` (files → dataset). The server never runs this code: it reads the result like any other dataset.

#![forbid(unsafe_code)]

mod destination;
mod error;
mod flags;
mod inputs;
mod manifest;
mod output_schema;
mod owner;
mod parquet_file;
mod pinned_reader;
mod progress;
mod row_groups;
mod run;
mod session;
mod sql;
mod sql_position;
mod table;
mod write;

pub use error::PrepareError;
pub use flags::Flags;
pub use owner::stop_with_stdin;
pub use run::{Outcome, Status, run};

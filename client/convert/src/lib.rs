//! Converts CSV, JSON lines, Arrow and Parquet files to Parquet files that stream well.
//!
//! Data flow: `sources` (paths → files of one format) → a reader per format (`csv_file`, `json_file`, `arrow_file`,
//! `parquet_file`: a file → batches of one schema) → `writer` (batches → row groups of bounded size) →
//! `destination` (a hidden folder, renamed at the end). Rows keep their order. Memory is bounded by a few batches and
//! an encoded row group.
//!
//! Every value either survives or is an error that names file, line and column.

#![forbid(unsafe_code)]

mod arrow_file;
mod batches;
mod csv_file;
mod csv_records;
mod destination;
mod error;
mod format;
mod input;
mod json_file;
mod json_type;
mod options;
mod parquet_file;
mod run;
mod same_schema;
mod sources;
mod text;
mod text_kind;
mod type_name;
mod writer;

pub use error::ConvertError;
pub use format::Format;
pub use options::Options;
pub use run::{Outcome, Progress, convert};

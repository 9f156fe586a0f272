//! Converts CSV, JSON lines, Arrow, Parquet, Avro, ORC, `WebDataset`, `TFRecord` and MDS files and folders of images
//! to Parquet files that stream well.
//!
//! Data flow: `sources` (paths → files of one format) → a reader per format (`csv_file`, `json_file`, `arrow_file`,
//! `parquet_file`, `avro`, `orc`, `webdataset`, `tfrecord`, `mds`, `image_folder`: a file or folder → batches of one
//! schema) → `writer` (batches → row groups of bounded size) → `destination` (a hidden folder, renamed at the end). Rows
//! keep their order. Memory is bounded by a few batches and an encoded row group.
//!
//! Every value either survives or is an error that names file, record and column.

#![forbid(unsafe_code)]

mod arrow_file;
#[cfg(feature = "avro")]
mod avro;
mod batches;
mod csv_file;
mod csv_records;
mod destination;
mod error;
mod format;
mod image_folder;
mod input;
mod json_file;
mod json_type;
mod json_value;
mod mds;
mod options;
mod orc;
mod parquet_file;
mod raw_column;
mod run;
mod same_schema;
mod sources;
mod text;
mod text_kind;
#[cfg(feature = "tfrecord")]
mod tfrecord;
mod type_name;
mod webdataset;
mod writer;

pub use error::{ConvertError, Place};
pub use format::Format;
pub use options::Options;
pub use run::{Outcome, Progress, Start, convert};

//! Messages → validated requests and kernel programs.
//!
//! Pure: depends on messages and schemas, never on data, files or the content of expressions. `forebay-kernels` defines
//! the meaning of each op; this module defines what a fit must learn, and `engine` computes it.

#![forbid(unsafe_code)]

mod balance;
mod bucket_by_length;
mod by;
mod canonical;
mod chain_start;
mod decode_image;
mod default_dtype;
mod encodings;
mod error;
mod group_scales;
mod grouped_ops;
mod grouping;
mod history;
mod history_ops;
mod learn;
mod lookup;
mod mixture;
mod null_advice;
mod ops;
mod outputs;
mod pack;
mod parameters;
mod path;
mod request;
mod row_id;
mod sample;
mod sample_weight;
mod source;
mod table_rows;
mod take;
mod tokenize;
mod udf;
mod values;
mod warnings;
mod window;

pub use balance::Balance;
pub use bucket_by_length::{LENGTH, LengthBuckets};
pub use canonical::{canonical, plan_id, plan_id_of_bytes};
pub use decode_image::{DecodeImageCall, decode_image_calls};
pub use encodings::{chain_schema, fitted_columns, is_of_other_rows, of_snapshot, without_folds, write_fitted_rows};
pub use error::PlanError;
pub use grouped_ops::groups_path;
pub use grouping::{GroupBuckets, Grouping};
pub use history::{HistoryCall, check_history, history_calls};
pub use history_ops::history_path;
pub use learn::{Answer, Question, Statistic, first_unlearned, learn, pass_count, questions, shares_vocabularies};
pub use lookup::{Lookup, Tables, lookups, pin, table_names};
pub use mixture::{MixtureFields, SourceFields, SourcePattern, Weights};
pub use outputs::{check_shape, compile, output_specs, stored_columns};
pub use pack::{PackedOutput, packed_output, packs};
pub use path::join_path;
pub use request::{Limits, Request, RequestLimits};
pub use row_id::{ROW_ID, reads_row_ids};
pub use sample::Sample;
pub use sample_weight::SAMPLE_WEIGHT;
pub use source::Source;
pub use table_rows::{TableRows, indices};
pub use take::{Take, TakeBy};
pub use tokenize::{TokenizeCall, pin_tokenizers, tokenize_calls};
pub use udf::{UdfCall, pin_udfs, udf_calls};
pub use warnings::warnings;
pub use window::{WindowedOutputs, Windows, check_no_parts};

/// Limit of the outputs, derived columns or units of a plan.
pub const PLAN_ENTRIES_MAX: usize = 4096;

/// Limit of the columns of all outputs, before ops widen them.
pub const PLAN_COLUMNS_MAX: usize = 65_536;

/// The most operators of all expressions of a request. Planning takes 0.05 to 0.5 ms for each, more in long expressions.
pub const PLAN_OPERATORS_MAX: usize = 8192;

/// Limit of the ops of a part.
pub const OPS_MAX: usize = 64;

/// Limit of the encoded bytes of a part's ops, multiplied by its columns.
pub const PLAN_BYTES_MAX: usize = 128 << 20;

#[cfg(test)]
mod tests;

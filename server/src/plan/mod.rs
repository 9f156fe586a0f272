//! Plan text → checked requests and kernel programs.
//!
//! Pure: it looks at messages and schemas, never at data, files or expressions' insides. What an op means is the
//! kernels' business; what a fit must learn is named here and answered by `engine`.

mod canonical;
mod error;
mod learn;
mod lookup;
mod ops;
mod outputs;
mod parameters;
mod path;
mod request;

pub use canonical::{canonical, plan_id, plan_id_of_bytes};
pub use error::PlanError;
pub use learn::{Answer, Question, Wanted, first_unlearned, learn, pass_count, questions};
pub use lookup::{Lookup, Tables, lookups, pin, table_names};
pub use outputs::{check_shape, compile, output_specs, stored_columns};
pub use request::{BATCH_SIZE_MAX, Limits, Request, RequestLimits, Source};

/// The column of a row's index in the snapshot, added on request.
pub const ROW_ID: &str = "__row_id";

/// The most outputs, parts or derived columns of a plan.
pub const PLAN_ENTRIES_MAX: usize = 4096;

/// The most columns of all outputs before ops widen them.
pub const PLAN_COLUMNS_MAX: usize = 65_536;

/// The most ops of a part.
pub const OPS_MAX: usize = 64;

/// The most bytes of a part's ops, once for each of its columns.
pub const PLAN_BYTES_MAX: usize = 128 << 20;

#[cfg(test)]
mod tests;

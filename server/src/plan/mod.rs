//! Plan text → checked requests and kernel programs.
//!
//! Pure: it looks at messages and schemas, never at data, files or expressions' insides. What an op means is the
//! kernels' business; what a fit must learn is named here and answered by `engine`.

mod canonical;
mod learn;
mod outputs;
mod request;

use forebay_kernels::CompileError;

pub use canonical::{canonical, plan_id};
pub use learn::{Answer, Question, Wanted, first_unlearned, learn, pass_count, questions};
pub use outputs::{check_shape, compile, output_specs, stored_columns};
pub use request::{BATCH_SIZE_MAX, Limits, Request, Source};

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

/// What is wrong with a request or its plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A field has a value that is not allowed.
    #[error("{path}: {reason}")]
    Field {
        /// The field, such as `plan.outputs[0].parts[1].ops[2].clip`.
        path: String,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// A column that the dataset does not have.
    #[error("{path}: no column \"{column}\": {near}")]
    UnknownColumn {
        /// The field that names it.
        path: String,
        /// The column.
        column: String,
        /// Names to offer.
        near: String,
    },
    /// Outputs that cannot be computed from these columns.
    #[error("plan.outputs: {0}")]
    Outputs(#[from] CompileError),
    /// An op that has not learned yet.
    #[error(
        "{path}: {op} must first learn from the data: run the action \"fit\" with this plan (forebay fit, or .fit() in \
         Python) and send the plan_id or the plan that it returns"
    )]
    NotFitted {
        /// The op.
        path: String,
        /// Its name.
        op: &'static str,
    },
}

impl PlanError {
    pub(crate) fn field(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Field { path: path.into(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests;

//! Errors of requests and plans, with the path of the field.

use arrow::datatypes::Schema;
use forebay_kernels::{CompileError, OpProblem};
use forebay_order::FieldError;
use forebay_proto::v1;
use forebay_runtime::error::near_names;

use super::{canonical::path_in_original, path::chain_path};

/// An invalid request or plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A field has a value that is not allowed.
    #[error("{path}: {reason}")]
    Field {
        /// The field, such as `plan.outputs[0].parts[1].ops[2].clip`.
        path: String,
        /// The mistake, and what is allowed.
        reason: String,
    },
    /// The dataset does not have the column.
    #[error("{path}: no column \"{column}\": {near}")]
    UnknownColumn {
        /// The field that names the column.
        path: String,
        /// The column.
        column: String,
        /// Suggested names.
        near: String,
    },
    /// A take has too many rows.
    #[error("{path}: {rows} rows, the limit is {limit}: divide them among several requests")]
    TakeRows {
        /// The field.
        path: &'static str,
        /// The number of rows.
        rows: usize,
        /// The limit.
        limit: usize,
    },
    /// The outputs cannot be computed from these columns.
    #[error("plan.outputs: {0}")]
    Outputs(#[from] CompileError),
    /// A chain of ops cannot be computed from these columns.
    #[error("{path}: {problem}")]
    Chain {
        /// The field.
        path: String,
        /// The mistake.
        problem: CompileError,
    },
    /// An op is not fitted.
    #[error(
        "{path}: {op} must first learn from the data: run the action \"fit\" with this plan (forebay fit, or .fit() in \
         Python) and send the plan_id or the plan that it returns"
    )]
    NotFitted {
        /// The path of the op.
        path: String,
        /// The op's name.
        op: &'static str,
    },
    /// The position was saved under an unknown version of the order.
    #[error(
        "order_version: the position was saved under version {requested} of the order, and this server knows versions 1 \
         to {served}: resume on a server of that version, or start the epoch again"
    )]
    OrderChanged {
        /// The version in the request.
        requested: u32,
        /// The latest version of this server.
        served: u32,
    },
}

impl From<FieldError> for PlanError {
    fn from(error: FieldError) -> Self {
        Self::field(error.field, error.reason)
    }
}

impl PlanError {
    /// Returns the error that a field of a request is invalid.
    pub fn field(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Field { path: path.into(), reason: reason.into() }
    }

    /// The error of a field that requests row ids where the dataset has a column of their name.
    pub fn row_id_column(path: impl Into<String>, name: &str) -> Self {
        let reason = format!(
            "the dataset has a column \"{name}\", which is also the name of the row's index in the dataset: rename the \
             column"
        );
        Self::field(path, reason)
    }

    /// Converts an error of the kernels, and adds the path of the chain if it is about one.
    pub(crate) fn of_outputs(error: CompileError, schema: &Schema) -> Self {
        match error {
            CompileError::Chain { output, chain, error } => Self::of_chain(&chain_path(output, chain), *error, schema),
            other => Self::Outputs(other),
        }
    }

    /// Converts an error of the chain at a path.
    pub fn of_chain(path: &str, problem: CompileError, schema: &Schema) -> Self {
        if let CompileError::Op { op, number, problem, .. } = &problem
            && let OpProblem::UnknownColumn { column } = problem.as_ref()
        {
            let near = near_names(column, schema.fields().iter().map(|field| field.name().as_str()));
            let path = format!("{path}.ops[{}].{op}.columns", number - 1);
            return Self::UnknownColumn { path, column: column.clone(), near };
        }
        match problem {
            CompileError::UnknownColumn { column, .. } => {
                let near = near_names(&column, schema.fields().iter().map(|field| field.name().as_str()));
                Self::UnknownColumn { path: path.to_owned(), column, near }
            }
            CompileError::Op { op, number, .. } => {
                Self::Chain { path: format!("{path}.ops[{}].{op}", number - 1), problem }
            }
            _ => Self::Chain { path: path.to_owned(), problem },
        }
    }

    /// Puts a prefix before the path of the field.
    #[must_use]
    pub(crate) fn within(mut self, prefix: &str) -> Self {
        if let Self::Field { path, .. }
        | Self::UnknownColumn { path, .. }
        | Self::Chain { path, .. }
        | Self::NotFitted { path, .. } = &mut self
        {
            path.insert_str(0, prefix);
        }
        self
    }

    /// Replaces paths of the canonical plan with those of the plan that the client sent.
    #[must_use]
    pub fn in_original(mut self, original: &v1::Plan) -> Self {
        if let Self::Field { path, .. }
        | Self::UnknownColumn { path, .. }
        | Self::Chain { path, .. }
        | Self::NotFitted { path, .. } = &mut self
            && let Some(sent) = path_in_original(path, original)
        {
            *path = sent;
        }
        self
    }
}

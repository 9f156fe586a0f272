//! Errors of requests and plans, named by the field's path.

use arrow::datatypes::Schema;
use forebay_kernels::{CompileError, OpProblem};
use forebay_proto::v1;

use super::{canonical::path_in_original, path::chain_path};
use crate::error::near_names;

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
    /// A chain that cannot be computed from these columns.
    #[error("{path}: {problem}")]
    Chain {
        /// The field.
        path: String,
        /// What is wrong.
        problem: CompileError,
    },
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
    /// A position of an epoch under another version of the order.
    #[error(
        "order_version: the position was saved under version {requested} of the order, and this server follows version \
         {served}: resume on a server of that version, or start the epoch again"
    )]
    OrderChanged {
        /// The version that the request names.
        requested: u32,
        /// The version of this server.
        served: u32,
    },
}

impl PlanError {
    pub(crate) fn field(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Field { path: path.into(), reason: reason.into() }
    }

    /// What is wrong with a chain, or with more, with the field's path.
    pub(crate) fn of_outputs(error: CompileError, schema: &Schema) -> Self {
        match error {
            CompileError::Chain { output, chain, error } => Self::of_chain(&chain_path(output, chain), *error, schema),
            other => Self::Outputs(other),
        }
    }

    /// What is wrong with the chain at a path.
    pub(crate) fn of_chain(path: &str, problem: CompileError, schema: &Schema) -> Self {
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

    /// The same with paths as they are in the plan that was sent, not in its canonical form.
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

//! The names of the columns that calls read and compute, checked against the columns of a plan's rows.

use arrow::datatypes::{Field, Schema};
use forebay_plan::PlanError;
use forebay_runtime::error::near_names;

/// Rejects a result with the name of a column of the dataset.
pub(crate) fn check_name(name: &str, schema: &Schema, path: &str) -> Result<(), PlanError> {
    if schema.index_of(name).is_ok() {
        let reason = format!("its result is named \"{name}\", as a column of the dataset is: rename the column");
        return Err(PlanError::field(path, reason));
    }
    Ok(())
}

/// The field of a column that a call reads.
pub(crate) fn argument_field<'a>(column: &str, schema: &'a Schema, path: &str) -> Result<&'a Field, PlanError> {
    schema.field_with_name(column).map_err(|_| {
        let near = near_names(column, schema.fields().iter().map(|field| field.name().as_str()));
        PlanError::UnknownColumn { path: path.to_owned(), column: column.to_owned(), near }
    })
}

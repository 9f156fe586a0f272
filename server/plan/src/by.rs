//! The columns that tell series, or other groups of rows, apart.

use super::error::PlanError;

/// Checks that the columns are different ones, and that none is the one that orders the rows.
pub(super) fn check_by(by: &[String], order: Option<&str>, path: &str) -> Result<(), PlanError> {
    for (index, column) in by.iter().enumerate() {
        if by[..index].contains(column) || order == Some(column) {
            return Err(PlanError::field(format!("{path}.by[{index}]"), format!("\"{column}\" is named twice")));
        }
    }
    Ok(())
}

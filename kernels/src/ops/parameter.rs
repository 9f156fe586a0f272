//! Checks of parameters.

use crate::error::OpProblem;

/// Returns a finite parameter, or an error that names it.
pub(crate) fn finite(name: &str, value: f64) -> Result<f64, OpProblem> {
    if value.is_finite() {
        Ok(value)
    } else {
        Err(OpProblem::Parameter(format!("{name} must be a finite number, not {value}")))
    }
}

//! Checks that parameters of several ops share.

use crate::error::OpProblem;

/// A finite parameter, or the sentence that says it is not.
pub(crate) fn finite(name: &str, value: f64) -> Result<f64, OpProblem> {
    if value.is_finite() {
        Ok(value)
    } else {
        Err(OpProblem::Parameter(format!("{name} must be a finite number, not {value}")))
    }
}

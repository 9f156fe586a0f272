//! Checks of parameters and inputs.

use crate::{
    domain::{Domain, Number},
    error::OpProblem,
};

/// Returns a finite parameter, or an error that names it.
pub(crate) fn finite(name: &str, value: f64) -> Result<f64, OpProblem> {
    if value.is_finite() {
        Ok(value)
    } else {
        Err(OpProblem::Parameter(format!("{name} must be a finite number, not {value}")))
    }
}

/// Rejects floating-point numbers.
pub(crate) fn whole(number: Number) -> Result<(), OpProblem> {
    if number.is_float() {
        return Err(OpProblem::Input { takes: "whole numbers", gets: Domain::Number(number).words() });
    }
    Ok(())
}

//! `box_cox`: (x^λ − 1) / λ, ln x for λ = 0. `scipy.special.boxcox`.
//!
//! - x < 0 gives NaN; 0 gives −1/λ for λ > 0, else −inf; NaN stays NaN; null stays null.
//! - f32 is computed in f64 and rounded once, everything else is f64: within 2 ulp of the exact value, also near x = 1.
//! - λ must be finite and within ±2^512; below 10^−19 it is treated as 0, as in `scipy`.

use super::{number_op::NumberOp, parameter::finite};
use crate::{
    error::OpProblem,
    vector::{math, tile::Tile},
};

/// A smaller |λ| is treated as 0, as in `scipy`.
const LAMBDA_LEAST: f64 = 1e-19;

/// The parameter λ.
#[derive(Debug)]
pub(crate) struct BoxCox {
    lambda: f64,
}

impl BoxCox {
    pub(crate) fn compile(lambda: f64) -> Result<Self, OpProblem> {
        let lambda = finite("lambda", lambda)?;
        if lambda.abs() > 2f64.powi(512) {
            return Err(OpProblem::Parameter(format!("lambda must be within ±2^512, not {lambda}")));
        }
        // This close to 0, the power differs from the logarithm by less than a double's precision, for any double x.
        Ok(Self { lambda: if lambda.abs() < LAMBDA_LEAST { 0.0 } else { lambda } })
    }
}

impl NumberOp for BoxCox {
    fn apply(&self, tile: &mut Tile) {
        let lambda = self.lambda;
        tile.map_floats(
            #[inline(always)]
            move |value| math::box_cox_single(value, lambda),
            #[inline(always)]
            move |value| math::box_cox(value, lambda),
        );
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        writer.make_floats();
        let lambda = writer.double(self.lambda);
        writer.assign(&format!("box_cox({}, {lambda})", writer.value()));
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Op,
        testing::{assert_doubles, assert_singles, compile_error, doubles, evaluate, ints, singles},
    };

    fn box_cox(lambda: f64) -> [Op; 1] {
        [Op::BoxCox { lambda }]
    }

    /// `scipy.special.boxcox([4, 1, 0, inf, -1, nan], lambda)`
    #[test]
    fn matches_scipy() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        let column = || doubles(&[4.0, 1.0, 0.0, inf, -1.0, nan].map(Some));
        assert_doubles(&evaluate(&box_cox(0.5), column()), &[2.0, 0.0, -2.0, inf, nan, nan].map(Some));
        assert_doubles(&evaluate(&box_cox(-1.0), column()), &[0.75, 0.0, -inf, 1.0, nan, nan].map(Some));
        assert_doubles(
            &evaluate(&box_cox(0.0), column()),
            &[1.386_294_361_119_890_6, 0.0, -inf, inf, nan, nan].map(Some),
        );
        assert_singles(&evaluate(&box_cox(2.0), singles(&[Some(3.0), None])), &[Some(4.0), None]);
        assert_doubles(&evaluate(&box_cox(1.0), ints(&[Some(7), None])), &[Some(6.0), None]);
    }

    #[test]
    fn rejects_invalid_parameters() {
        assert!(compile_error(&box_cox(f64::NAN), ints(&[None])).ends_with("lambda must be a finite number, not NaN"));
        assert!(compile_error(&box_cox(1e300), ints(&[None])).contains("lambda must be within ±2^512"));
    }
}

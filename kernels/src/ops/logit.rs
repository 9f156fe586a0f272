//! `logit`: ln(x / (1 − x)). `torch.logit`.
//!
//! - With `eps`, from 0 to 0.5, x is first clipped to [eps, 1 − eps]. Without it, 0 gives −inf, 1 gives inf, and values
//!   outside [0, 1] give NaN. NaN stays NaN; null stays null.
//! - f32 and its bounds are computed in f32, everything else in f64: the same operations as in torch, with a logarithm
//!   within 1 ulp.

use super::number_op::NumberOp;
use crate::{
    error::OpProblem,
    vector::{math, tile::Tile},
};

/// The bound.
#[derive(Debug)]
pub(crate) struct Logit {
    eps: Option<f64>,
}

impl Logit {
    pub(crate) fn compile(eps: Option<f64>) -> Result<Self, OpProblem> {
        if let Some(eps) = eps.filter(|eps| !(0.0..=0.5).contains(eps)) {
            return Err(OpProblem::Parameter(format!("eps must be from 0 to 0.5, not {eps}")));
        }
        Ok(Self { eps })
    }
}

impl NumberOp for Logit {
    fn apply(&self, tile: &mut Tile) {
        let (low, high) = self.eps.map_or((f64::NEG_INFINITY, f64::INFINITY), |eps| (eps, 1.0 - eps));
        let (low_single, high_single) = match self.eps {
            Some(eps) => (eps as f32, 1.0 - eps as f32),
            None => (f32::NEG_INFINITY, f32::INFINITY),
        };
        tile.map_floats(
            #[inline(always)]
            move |value| {
                let value = if value < low_single { low_single } else { value };
                let value = if value > high_single { high_single } else { value };
                math::ln_single(value / (1.0 - value))
            },
            #[inline(always)]
            move |value| {
                let value = if value < low { low } else { value };
                let value = if value > high { high } else { value };
                math::ln(value / (1.0 - value))
            },
        );
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        writer.make_floats();
        let (low, high) = match self.eps {
            // 1 − eps in the column's precision.
            Some(eps) if writer.number() == crate::domain::Number::F32 => (eps, f64::from(1.0 - eps as f32)),
            Some(eps) => (eps, 1.0 - eps),
            None => (f64::NEG_INFINITY, f64::INFINITY),
        };
        let (low, high) = (writer.float(low), writer.float(high));
        writer.assign(&format!("logit({}, {low}, {high})", writer.value()));
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Op,
        testing::{assert_doubles, assert_singles, compile_error, doubles, evaluate, ints, singles},
    };

    fn logit(eps: impl Into<Option<f64>>) -> [Op; 1] {
        [Op::Logit { eps: eps.into() }]
    }

    /// `torch.logit(torch.tensor([0.5, 0, 1, 0.25, -1, 2, nan], dtype=torch.float64))`
    #[test]
    fn matches_torch() {
        let column = [0.5, 0.0, 1.0, 0.25, -1.0, 2.0, f64::NAN].map(Some);
        let expected =
            [0.0, f64::NEG_INFINITY, f64::INFINITY, -1.098_612_288_668_109_8, f64::NAN, f64::NAN, f64::NAN].map(Some);
        assert_doubles(&evaluate(&logit(None), doubles(&column)), &expected);
        assert_doubles(&evaluate(&logit(None), ints(&[Some(0), None])), &[Some(f64::NEG_INFINITY), None]);
    }

    /// `torch.logit(torch.tensor([0, 1, 0.5, nan]), eps=0.25)`
    #[test]
    fn clips_to_eps() {
        let column = [0.0, 1.0, 0.5, f32::NAN].map(Some);
        let expected = [-1.098_612_3, 1.098_612_3, 0.0, f32::NAN].map(Some);
        assert_singles(&evaluate(&logit(0.25), singles(&column)), &expected);
    }

    #[test]
    fn rejects_invalid_parameters() {
        for eps in [-0.1, 0.6, f64::NAN] {
            assert!(
                compile_error(&logit(eps), ints(&[None])).ends_with(&format!("eps must be from 0 to 0.5, not {eps}"))
            );
        }
    }
}

//! Fuses steps over f32 into one pass: a value goes through a fill, a logarithm and a scale in a register, and the
//! arithmetic hides the latency of memory. The fused pass calls the functions of the steps, so the results are the same
//! to the bit.

use crate::{
    domain::Number,
    ops::{fill_null::FillNull, step::Step},
    vector::{math::ln_1p_single, tile::Tile},
};

/// Runs a tile through the steps of a chain.
pub(crate) fn apply(steps: &[Step], tile: &mut Tile) {
    let mut rest = steps;
    while let Some((step, after)) = rest.split_first() {
        rest = match tile.number() {
            Number::F32 => run(rest, tile),
            _ => None,
        }
        .unwrap_or_else(|| {
            step.op().apply(tile);
            after
        });
    }
}

/// Runs the first steps as one pass over f32, and returns the remaining ones; `None` if no fused pass matches.
fn run<'a>(steps: &'a [Step], tile: &mut Tile) -> Option<&'a [Step]> {
    let (fill, rest) = match steps {
        [Step::FillNull(FillNull::Float(value)), rest @ ..] => (Some(*value as f32), rest),
        _ => (None, steps),
    };
    match rest {
        [Step::Log1p, Step::Scale(scale), rest @ ..] => {
            let scale = scale.single()?;
            tile.map_singles(
                fill,
                ln_1p_single,
                #[inline(always)]
                move |value| scale.apply(value),
            );
            Some(rest)
        }
        [Step::Log1p, rest @ ..] => {
            tile.map_singles(fill, ln_1p_single, same);
            Some(rest)
        }
        [Step::Scale(scale), rest @ ..] => {
            let scale = scale.single()?;
            tile.map_singles(
                fill,
                same,
                #[inline(always)]
                move |value| scale.apply(value),
            );
            Some(rest)
        }
        _ => None,
    }
}

#[inline(always)]
fn same(value: f32) -> f32 {
    value
}

#[cfg(test)]
mod tests {
    use arrow::{array::AsArray, datatypes::Float32Type};

    use crate::{
        Fill, Op,
        testing::{assert_singles, evaluate, singles},
        vector::simd::testing::under_each_level,
    };

    /// Both zeros, infinities and NaN pass through a scale unchanged.
    #[test]
    fn a_scale_keeps_zeros_infinities_and_nan() {
        let column = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45, -1e-45].map(Some);
        let scale = Op::Standardize { mean: 0.0, std: 0.75 };
        for (_, found) in under_each_level(|| evaluate(std::slice::from_ref(&scale), singles(&column))) {
            assert_singles(&found, &column);
        }
    }

    #[test]
    fn a_fused_pass_equals_op_after_op() {
        let fill = |value: f64| Op::FillNull(Fill::Number(value));
        let (scale, clip) = (Op::Standardize { mean: 1.7, std: 1.3 }, Op::Clip { min: Some(-1.0), max: Some(2.0) });
        let tiny = Op::Standardize { mean: 0.0, std: 1e-310 };
        let chains = [
            vec![fill(0.1), Op::Log1p, scale.clone(), clip.clone()],
            vec![fill(-3.0), Op::Log1p, clip.clone()],
            vec![Op::Log1p, scale.clone()],
            vec![scale.clone(), fill(2.0), scale.clone(), Op::Log1p],
            vec![Op::Sqrt, fill(f64::NAN), scale, Op::Abs, Op::Log1p],
            vec![fill(1.0), Op::Log1p, tiny.clone(), clip],
            vec![fill(1.0), tiny],
        ];
        // More than a tile, and not a multiple of 64 rows.
        let value = |row: i32| ((row * row) % 7919) as f32 / 40.0 - 5.0;
        let columns = [
            (0..1500).map(|row| (row % 5 != 0).then(|| value(row))).collect::<Vec<_>>(),
            (0..70).map(|row| Some(value(row))).collect(),
            vec![None; 65],
        ];
        for (chain, column) in chains.iter().flat_map(|chain| columns.iter().map(move |column| (chain, column))) {
            let mut expected = singles(column);
            for op in chain {
                expected = evaluate(std::slice::from_ref(op), expected).as_primitive::<Float32Type>().clone();
            }
            for (_, found) in under_each_level(|| evaluate(chain, singles(column))) {
                assert_singles(&found, &expected.iter().collect::<Vec<_>>());
            }
        }
    }
}

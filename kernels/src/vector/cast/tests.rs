//! Conversions to every dtype, compared with NumPy's rounding and Python's exact fractions.

use arrow::{
    array::{Array, AsArray, Decimal128Array, UInt64Array},
    datatypes as t,
};

use crate::{
    DType, Fill, Op,
    testing::{assemble, assert_doubles, assert_singles, doubles, ints, row_error, singles},
};

#[track_caller]
fn check_16(dtype: DType, column: impl Array + 'static, expected: &[u16]) {
    let values = assemble(dtype, &[&[]], column).unwrap();
    let bits = match dtype {
        DType::Float16 => {
            values.as_primitive::<t::Float16Type>().values().iter().map(|value| value.to_bits()).collect()
        }
        _ => values.as_primitive::<t::UInt16Type>().values().to_vec(),
    };
    assert_eq!(bits, expected);
}

/// `np.float64(v).astype(np.float16).view(np.uint16)`: ties, just above a tie, the largest value, subnormals.
#[test]
fn f64_to_f16_rounds_once() {
    let tie = 1.000_488_281_25;
    let half_smallest = 2f64.powi(-25);
    let column = [65519.99, 65520.0, -65520.0, tie, tie + 2f64.powi(-40), 1.001_464_843_75, half_smallest];
    check_16(DType::Float16, doubles(&column.map(Some)), &[0x7bff, 0x7c00, 0xfc00, 0x3c00, 0x3c01, 0x3c02, 0x0000]);
    let column = [half_smallest * (1.0 + 2f64.powi(-40)), 5e-324, -0.0, 1e-8, f64::INFINITY, 1e300];
    check_16(DType::Float16, doubles(&column.map(Some)), &[0x0001, 0x0000, 0x8000, 0x0000, 0x7c00, 0x7c00]);
}

/// The nearest neighbour by `fractions.Fraction`, ties to even.
#[test]
fn f64_to_bf16_rounds_once() {
    let column = [1.003_906_25, 1.003_906_25 + 2f64.powi(-40), 1.011_718_75, 1.011_718_75 - 2f64.powi(-50), 3e-39];
    check_16(DType::BFloat16, doubles(&column.map(Some)), &[0x3f80, 0x3f81, 0x3f82, 0x3f81, 0x0021]);
    check_16(DType::BFloat16, doubles(&[1e300, -1e300, -0.0].map(Some)), &[0x7f80, 0xff80, 0x8000]);
}

#[test]
fn integers_to_16_bit_floats_round_once() {
    check_16(
        DType::BFloat16,
        ints(&[257, 258, 259, -259, 0, -1, 1 << 40].map(Some)),
        &[0x4380, 0x4381, 0x4382, 0xc382, 0x0000, 0xbf80, 0x5380],
    );
    check_16(DType::BFloat16, UInt64Array::from(vec![1 << 63]), &[0x5f00]);
    check_16(DType::Float16, ints(&[2049, 2051, 65519, -65519].map(Some)), &[0x6800, 0x6802, 0x7bff, 0xfbff]);
}

/// Every f32 whose lower half is 0 or next to a tie, on both sides, as f32 and as f64.
#[test]
fn f32_and_f64_give_the_same_16_bit_floats() {
    let patterns = (0..=u16::MAX).flat_map(|high| [0, 0x7fff, 0x8000, 0x8001].map(|low| u32::from(high) << 16 | low));
    let column = patterns.map(f32::from_bits).filter(|value| !value.is_nan()).collect::<Vec<_>>();
    for dtype in [DType::BFloat16, DType::Float16] {
        let narrow = assemble(dtype, &[&[]], singles(&column.iter().copied().map(Some).collect::<Vec<_>>())).unwrap();
        let wide = column.iter().map(|value| Some(f64::from(*value))).collect::<Vec<_>>();
        assert_eq!(&narrow, &assemble(dtype, &[&[]], doubles(&wide)).unwrap());
    }
}

#[test]
fn f32_holds_exact_integers() {
    let column = ints(&[1 << 53, 16_777_216, -16_777_218, i64::MIN, 3 << 40].map(Some));
    let expected = [9_007_199_254_740_992.0, 16_777_216.0, -16_777_218.0, -9.223_372e18, 3_298_534_883_328.0].map(Some);
    assert_singles(&assemble(DType::Float32, &[&[]], column).unwrap(), &expected);
    assert_singles(&assemble(DType::Float32, &[&[]], UInt64Array::from(vec![1 << 63])).unwrap(), &[Some(9.223_372e18)]);
}

#[test]
fn f64_holds_exact_integers_and_all_floats() {
    let column = ints(&[(1 << 53) - 1, 1 << 53, -(1 << 62)].map(Some));
    let expected = [9_007_199_254_740_991.0, 9_007_199_254_740_992.0, -4_611_686_018_427_387_904.0].map(Some);
    assert_doubles(&assemble(DType::Float64, &[&[]], column).unwrap(), &expected);
    let column = doubles(&[0.1, 1e300, 5e-324, f64::NAN, -0.0].map(Some));
    let expected = [0.1, 1e300, 5e-324, f64::NAN, -0.0].map(Some);
    assert_doubles(&assemble(DType::Float64, &[&[]], column).unwrap(), &expected);
    let column = singles(&[0.1, f32::INFINITY].map(Some));
    assert_doubles(&assemble(DType::Float64, &[&[]], column).unwrap(), &[0.1_f32.into(), f64::INFINITY].map(Some));
}

#[test]
fn rejects_integers_that_a_float_does_not_hold() {
    let expected = "output \"out\", column \"x\", row 1: 16778917 is not a float32; use dtype INT64 or FLOAT64, vocab, \
                    hash_bucket or a scale such as standardize";
    assert_eq!(row_error(DType::Float32, &[], ints(&[Some(1), Some(16_778_917)])), expected);
    let error = |dtype, ops: &[Op], value| row_error(dtype, ops, ints(&[Some(1), Some(value)]));
    for dtype in [DType::Float32, DType::BFloat16] {
        for value in [16_777_217, -16_777_219, (1 << 53) + 1, i64::MAX, i64::MIN + 1] {
            assert!(error(dtype, &[], value).contains(&format!("row 1: {value} is not a float32;")), "{dtype:?}");
        }
    }
    for value in [65_520, -65_520, i64::MIN, 1 << 40] {
        assert!(error(DType::Float16, &[], value).contains(&format!("row 1: {value} is not a finite float16;")));
    }
    assert!(error(DType::Float64, &[], (1 << 53) + 1).contains("9007199254740993 is not a float64; use dtype INT64, "));
    let unsigned = |dtype| row_error(dtype, &[], UInt64Array::from(vec![u64::MAX]));
    assert!(unsigned(DType::Float32).contains("18446744073709551615 is not a float32"));
    assert!(unsigned(DType::Float64).contains("18446744073709551615 is not a float64"));
    // Ops that keep a column's integers, and those that fill in a fraction.
    let clip = Op::Clip { min: Some(0.5), max: None };
    for op in [Op::Abs, Op::FillNull(Fill::Number(0.0)), Op::FillNull(Fill::Number(0.5)), clip] {
        assert!(
            error(DType::Float32, std::slice::from_ref(&op), 16_777_217).contains("16777217 is not a float32"),
            "{op:?}"
        );
        let doubles = error(DType::Float64, std::slice::from_ref(&op), (1 << 53) + 3);
        assert!(doubles.contains("9007199254740995 is not") || doubles.contains("9007199254740996 is not"), "{op:?}");
        let longs = assemble(DType::Int64, &[std::slice::from_ref(&op)], ints(&[Some(1 << 53), Some(7)]));
        assert!(longs.is_ok(), "{op:?}");
    }
    assert!(error(DType::Int64, &[Op::FillNull(Fill::Number(0.5))], (1 << 53) + 3).contains("cannot become INT64"));
    let decimals = Decimal128Array::from(vec![16_777_217]).with_precision_and_scale(38, 0).unwrap();
    assert!(row_error(DType::Float32, &[], decimals).contains("16777217 is not a float32"));
}

#[test]
fn rounds_what_is_no_integer_of_the_column() {
    let column = || ints(&[16_777_217, (1 << 53) + 1, i64::MAX].map(Some));
    let scale = Op::Standardize { mean: 0.0, std: 1.0 };
    let expected = [16_777_216.0, 9_007_199_254_740_992.0, 9.223_372e18].map(Some);
    assert_singles(&assemble(DType::Float32, &[&[scale]], column()).unwrap(), &expected);
    assert!(assemble(DType::Float16, &[&[Op::Log1p]], column()).is_ok());
    // A mean that an f32 does not hold, in a column of small integers.
    let filled = assemble(DType::Float32, &[&[Op::FillNull(Fill::Number(0.1))]], ints(&[None, Some(3)])).unwrap();
    assert_singles(&filled, &[Some(0.1), Some(3.0)]);
    let decimals = Decimal128Array::from(vec![167_772_171]).with_precision_and_scale(38, 1).unwrap();
    assert_singles(&assemble(DType::Float32, &[&[]], decimals).unwrap(), &[Some(16_777_218.0)]);
}

/// `np.float32` of doubles.
#[test]
fn f32_rounds_to_nearest_even() {
    let column = doubles(&[0.1, 1e300, 5e-324, f64::NAN, -1e-50].map(Some));
    let expected = [0.1, f32::INFINITY, 0.0, f32::NAN, -0.0].map(Some);
    assert_singles(&assemble(DType::Float32, &[&[]], column).unwrap(), &expected);
}

#[test]
fn floats_convert_to_integers_exactly() {
    let values = assemble(DType::Int32, &[&[]], doubles(&[-2_147_483_648.0, 2_147_483_647.0, -0.0].map(Some))).unwrap();
    assert_eq!(values.as_primitive::<t::Int32Type>().values().as_ref(), &[i32::MIN, i32::MAX, 0]);
    let values = assemble(DType::UInt8, &[&[]], singles(&[0.0, 255.0].map(Some))).unwrap();
    assert_eq!(values.as_primitive::<t::UInt8Type>().values().as_ref(), &[0, 255]);
    let values = assemble(DType::Int64, &[&[]], doubles(&[-9_223_372_036_854_775_808.0, 1e18].map(Some))).unwrap();
    assert_eq!(values.as_primitive::<t::Int64Type>().values().as_ref(), &[i64::MIN, 1_000_000_000_000_000_000]);
    let values = assemble(DType::Int64, &[&[]], UInt64Array::from(vec![i64::MAX as u64])).unwrap();
    assert_eq!(values.as_primitive::<t::Int64Type>().values().as_ref(), &[i64::MAX]);
}

#[test]
fn rejects_lossy_conversions_with_their_row() {
    let float = |dtype, value| row_error(dtype, &[], doubles(&[Some(1.0), Some(value), Some(value)]));
    let expected = "output \"out\", column \"x\": 0.5 (row 1) cannot become INT32 without loss";
    assert_eq!(float(DType::Int32, 0.5), expected);
    for dtype in [DType::Int32, DType::Int64, DType::UInt8] {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1, 1e19, -9.3e18, 5e-324] {
            assert!(float(dtype, value).contains(&format!("{value} (row 1) cannot become {}", dtype.name())));
        }
    }
    assert!(float(DType::Int64, 9_223_372_036_854_775_808.0).contains("(row 1) cannot become INT64"));
    assert!(float(DType::Int32, 2_147_483_648.0).contains("cannot become INT32"));
    assert!(float(DType::UInt8, 256.0).contains("256 (row 1)"));
    assert!(row_error(DType::Int64, &[], singles(&[Some(9.223_372e18)])).contains("cannot become INT64"));
    let int = |dtype, value| row_error(dtype, &[], ints(&[Some(1), Some(value)]));
    assert!(int(DType::Int32, 1 << 31).contains("2147483648 (row 1)"));
    assert!(int(DType::UInt8, -1).contains("-1 (row 1)"));
    assert!(row_error(DType::Int64, &[], UInt64Array::from(vec![1 << 63])).contains("9223372036854775808 (row 0)"));
}

//! NaN and the zeros in comparisons.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, ArrowPrimitiveType, AsArray, Float16Array, Float32Array, Float64Array},
    datatypes::{Float16Type, Float64Type},
};

use super::{Mask, batch_of, check, evaluate};

#[test]
fn all_nan_are_equal_and_greater_than_every_number() {
    let (quiet, negative) = (f64::NAN, f64::from_bits(0xfff8_0000_0000_0001));
    let values = vec![Some(quiet), Some(negative), Some(f64::INFINITY), Some(-0.0), Some(0.0), Some(-1.0), None];
    let t = Some(true);
    let f = Some(false);
    let cases: Vec<(&str, Mask)> = vec![
        ("f < 0", vec![f, f, f, f, f, t, None]),
        ("f > 0", vec![t, t, t, f, f, f, None]),
        ("f >= 0", vec![t, t, t, t, t, f, None]),
        ("f = 0", vec![f, f, f, t, t, f, None]),
        ("f <> 0", vec![t, t, t, f, f, t, None]),
        ("f = f", vec![t, t, t, t, t, t, None]),
        ("f = CAST('NaN' AS DOUBLE)", vec![t, t, f, f, f, f, None]),
        ("f >= CAST('NaN' AS DOUBLE)", vec![t, t, f, f, f, f, None]),
        ("f > CAST('Infinity' AS DOUBLE)", vec![t, t, f, f, f, f, None]),
        ("f IN (CAST('NaN' AS DOUBLE))", vec![t, t, f, f, f, f, None]),
        ("f IN (CAST('NaN' AS DOUBLE), 0, 7, 8, 9)", vec![t, t, f, t, t, f, None]),
        ("f NOT IN (0, 1)", vec![t, t, t, f, f, t, None]),
        ("f IN (-0.0)", vec![f, f, f, t, t, f, None]),
        ("f BETWEEN 0 AND CAST('NaN' AS DOUBLE)", vec![t, t, t, t, t, f, None]),
        ("f IS DISTINCT FROM CAST('NaN' AS DOUBLE)", vec![f, f, t, t, t, t, t]),
        ("f IS NOT DISTINCT FROM 0", vec![f, f, f, t, t, f, f]),
        ("0.0 / 0.0 > 1e300 AND f IS NOT NULL", vec![t, t, t, t, t, t, f]),
        ("greatest(f, 1) > 1", vec![t, t, t, f, f, f, f]),
        ("least(f, 1) < 1", vec![f, f, f, t, t, t, f]),
        ("isnan(greatest(f, 1))", vec![t, t, f, f, f, f, f]),
        ("CASE f WHEN 0 THEN true ELSE false END", vec![f, f, f, t, t, f, f]),
        ("CASE f WHEN CAST('NaN' AS DOUBLE) THEN true ELSE false END", vec![t, t, f, f, f, f, f]),
        ("nullif(f, 0) IS NULL", vec![f, f, f, t, t, f, t]),
        ("nullif(f, CAST('NaN' AS DOUBLE)) IS NULL", vec![t, t, f, f, f, f, t]),
    ];
    let doubles = Arc::new(Float64Array::from(values.clone())) as ArrayRef;
    check("f", Arc::clone(&doubles), &cases);
    check("f", Arc::new(values.iter().map(|value| value.map(|value| value as f32)).collect::<Float32Array>()), &cases);
    check(
        "f",
        Arc::new(
            values
                .iter()
                .map(|value| value.map(<Float16Type as ArrowPrimitiveType>::Native::from_f64))
                .collect::<Float16Array>(),
        ),
        &cases,
    );
}

#[test]
fn zeros_keep_their_sign() {
    let batch = batch_of("f", Arc::new(Float64Array::from(vec![-0.0, 1.0])));
    let sign = |text: &str| evaluate(text, &batch).as_primitive::<Float64Type>().value(0).is_sign_negative();
    assert!(sign("f") && sign("nullif(f, 1)") && sign("coalesce(f, 1)"));
}

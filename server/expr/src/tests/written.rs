//! Expressions are evaluated as written: no identity that holds for most values replaces them, and which columns may be
//! null in the schema does not matter.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
};

use super::super::Expression;

/// One column, in a schema where it is required or may be null.
fn batch(values: ArrayRef, is_nullable: bool) -> RecordBatch {
    let field = Field::new("x", values.data_type().clone(), is_nullable);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![values]).unwrap()
}

fn value(text: &str, batch: &RecordBatch) -> ArrayRef {
    let compiled = Expression::compile(text, &batch.schema()).unwrap_or_else(|error| panic!("{text}: {error}"));
    compiled.evaluate(batch).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn required_and_nullable_columns_of_the_same_values_give_the_same_results() {
    let columns: [(ArrayRef, &[&str]); 3] = [
        (
            Arc::new(Float64Array::from(vec![0.5, 2.0, 1.0, -3.0, 0.0, f64::NAN, -0.0, f64::INFINITY])),
            &[
                "log(x, 1.0)",
                "log(x, x)",
                "power(10.0, log(10.0, x))",
                "log(2.0, power(2.0, x * 1000))",
                "power(x, 0)",
                "x * 0.0",
                "x / x",
                "x - x",
                "x = x",
                "coalesce(x, 1.0)",
            ],
        ),
        (
            Arc::new(Int64Array::from(vec![1, 2, 3, 0, i64::MIN])),
            &["x = x", "x % 1", "x * 0", "x & 0", "x IN (1) AND x IN (2)", "x NOT IN (1) OR x NOT IN (2)", "x ^ x"],
        ),
        (
            Arc::new(StringArray::from(vec!["", "a\nb", "é"])),
            &["x ~ '.*'", "x !~ '.*'", "x ~* '^.*$'", "regexp_like(x, '.*')", "x LIKE '%'", "x SIMILAR TO '%'"],
        ),
    ];
    for (values, texts) in columns {
        for text in texts {
            let [required, nullable] =
                [false, true].map(|is_nullable| value(text, &batch(Arc::clone(&values), is_nullable)));
            assert_eq!(&required, &nullable, "{text}");
        }
    }
}

/// The oracle is the definition: the quotient of two natural logarithms, and what `powf` gives.
#[test]
fn logarithms_and_powers_are_computed_for_every_base() {
    let x = [0.5, 2.0, 1.0, -3.0, 0.0];
    let batch = batch(Arc::new(Float64Array::from(x.to_vec())), true);
    let check = |text: &str, wanted: &dyn Fn(f64) -> f64| {
        let values = value(text, &batch);
        let values = values.as_any().downcast_ref::<Float64Array>().unwrap();
        for (row, x) in x.into_iter().enumerate() {
            let (found, wanted) = (values.value(row), wanted(x));
            assert!(
                found.total_cmp(&wanted).is_eq()
                    || (found - wanted).abs() < 1e-12
                    || (found.is_nan() && wanted.is_nan()),
                "{text} of {x}"
            );
        }
    };
    check("log(x, 1.0)", &|x| 1_f64.ln() / x.ln());
    check("log(x, x)", &|x| x.ln() / x.ln());
    check("power(10.0, log(10.0, x))", &|x| 10_f64.powf(x.log10()));
    check("log(2.0, power(2.0, x * 1000))", &|x| (x * 1000.0).exp2().log2());
}

#[test]
fn lists_and_patterns_are_null_where_their_value_is() {
    let numbers = batch(Arc::new(Int64Array::from(vec![Some(1), Some(3), None])), true);
    let texts = batch(Arc::new(StringArray::from(vec![Some("a"), Some(""), None])), true);
    let (yes, no) = (Some(true), Some(false));
    for (batch, text, expected) in [
        (&numbers, "x IN (1) AND x IN (2)", [no, no, None]),
        (&numbers, "NOT (x IN (1) AND x IN (2))", [yes, yes, None]),
        (&numbers, "x NOT IN (1) OR x NOT IN (2)", [yes, yes, None]),
        (&numbers, "x IN (1, 2) AND x NOT IN (1, 2)", [no, no, None]),
        (&numbers, "(x = 1 AND x = 2) IS NULL", [no, no, yes]),
        (&numbers, "x IN (1, NULL)", [yes, None, None]),
        (&texts, "x ~ '.*'", [yes, yes, None]),
        (&texts, "x ~* '.*'", [yes, yes, None]),
        (&texts, "x !~ '.*'", [no, no, None]),
        (&texts, "x !~* ''", [no, no, None]),
        (&texts, "regexp_like(x, '.*')", [yes, yes, None]),
        (&texts, "regexp_like(x, 'A', 'i')", [yes, no, None]),
        (&texts, "x ~ NULL", [None, None, None]),
        (&texts, "starts_with(x, '')", [yes, yes, None]),
    ] {
        assert_eq!(value(text, batch).as_ref(), &BooleanArray::from(expected.to_vec()) as &dyn Array, "{text}");
    }
}

#[test]
fn constants_are_computed_once() {
    let compiled = |text: &str| {
        let schema = Schema::new(vec![Field::new("x", DataType::Int64, true)]);
        format!("{:?}", Expression::compile(text, &schema).unwrap().physical())
    };
    assert!(compiled("x > 2 * (3 + 4)").contains("Int64(14)") || compiled("x > 2 * (3 + 4)").contains("14"));
    for text in ["1 = 0 OR upper('a') = 'A'", "coalesce(NULL, 2, 3) = 2"] {
        assert!(compiled(text).starts_with("Literal"), "{}", compiled(text));
    }
}

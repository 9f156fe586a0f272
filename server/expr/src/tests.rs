use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array},
    datatypes::Schema,
};

use super::{ColumnStatistics, Expression, PruningStatistics};

fn batch() -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([
        ("delay", Arc::new(Float64Array::from(vec![Some(1.0), None, Some(20.0)])) as _, true),
        ("Carrier", Arc::new(StringArray::from(vec!["UA", "AA", "UA"])) as _, true),
        ("day", Arc::new(Int64Array::from(vec![1, 2, 3])) as _, true),
    ])
    .unwrap()
}

fn schema() -> Arc<Schema> {
    batch().schema()
}

fn passes(text: &str) -> Vec<bool> {
    let mask = Expression::compile_filter(text, &schema()).unwrap().passes(&batch()).unwrap();
    mask.iter().map(|bit| bit.unwrap()).collect()
}

#[test]
fn filters_follow_sql() {
    for (text, expected) in [
        ("delay IS NOT NULL", [true, false, true]),
        ("delay > 15", [false, false, true]),
        ("NOT delay > 15", [true, false, false]),
        ("Carrier = 'UA' AND day % 2 = 1", [true, false, true]),
        ("\"Carrier\" IN ('AA')", [false, true, false]),
        ("DAY > 1", [false, true, true]),
        ("coalesce(delay, 99) > 50", [false, true, false]),
        ("Carrier LIKE 'U%'", [true, false, true]),
        ("CASE WHEN day = 1 THEN true ELSE false END", [true, false, false]),
        ("true", [true, true, true]),
        ("NULL", [false, false, false]),
    ] {
        assert_eq!(passes(text), expected, "{text}");
    }
}

#[test]
fn derived_values_have_a_type_and_list_their_columns() {
    let expression = Expression::compile("delay > 15 OR day = 2", &schema()).unwrap();
    assert_eq!(expression.columns(), ["day", "delay"]);
    let values = expression.evaluate(&batch()).unwrap();
    let late = values.as_any().downcast_ref::<BooleanArray>().unwrap();
    assert_eq!(late.iter().collect::<Vec<_>>(), [Some(false), Some(true), Some(true)]);

    let narrow = batch().project(&[2, 0]).unwrap();
    let bound = expression.bind(&narrow.schema()).unwrap();
    assert_eq!(&bound.evaluate(&narrow).unwrap(), &values);
}

#[test]
fn rejects_unsupported_expressions_with_a_reason() {
    let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
    let nested = format!("{}1{} = 1", "(".repeat(1000), ")".repeat(1000));
    let chain = vec!["day = 1"; 20_000].join(" OR ");
    let chain_small = vec!["day = 1"; 2000].join(" OR ");
    for (text, word) in [
        ("", "empty"),
        ("delay >", "not a SQL expression"),
        ("delay > 1 garbage here", "not a SQL expression"),
        ("dellay > 1", "did you mean \"delay\""),
        ("carrier2 = 'x'", "Carrier"),
        ("day", "true or false"),
        ("avg(delay) > 1", "avg"),
        ("random() > 0.5", "random"),
        ("now() > '2020-01-01'", "now"),
        ("day IN (SELECT 1)", ""),
        ("EXISTS (SELECT * FROM x)", ""),
        ("nosuch(day) = 1", "nosuch"),
        ("repeat(Carrier, 1000000000) = 'x'", "repeat"),
        ("lpad(Carrier, 1000000000) = 'x'", "lpad"),
        ("rpad(Carrier, 1000000000, 'y') = 'x'", "rpad"),
        ("regexp_like(Carrier, '(a{1000}){1000}')", "repeat less"),
        ("Carrier ~ '((a{100}){100}){100}'", "repeat less"),
        ("Carrier SIMILAR TO '(a{1000}){1000}'", "repeat less"),
        ("regexp_count(Carrier, concat('(a{1000}', '){1000}')) > 0", "must be a string literal"),
        ("regexp_like(Carrier, Carrier)", "must be a string literal"),
        (&format!("Carrier LIKE '{}'", "%a".repeat(600)), "the limit is 1024"),
        ("Carrier > 5 + 'x'", ""),
        ("delay = $1", ""),
        (&deep, "limit"),
        (&nested, ""),
        (&chain, "limit"),
        (&chain_small, "limit"),
    ] {
        let error = Expression::compile_filter(text, &schema()).unwrap_err().to_string();
        assert!(error.contains(word) && error.len() < 800, "{}: {error}", &text[..text.len().min(40)]);
    }
}

/// Nested calls.
fn nested(depth: usize, before: &str, inner: &str, after: &str) -> String {
    format!("{}{inner}{}", before.repeat(depth), after.repeat(depth))
}

/// Compiles on a thread of the CPU pool, for its stack size.
fn compiled(text: String) -> Result<Expression, super::ExprError> {
    let pool = forebay_runtime::cpu_pool::CpuPool::new(1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(pool.run(move || Expression::compile(&text, &schema()))).unwrap()
}

#[test]
fn rejects_expressions_that_double_at_every_level() {
    for text in [
        nested(20, "coalesce(", "day", ", 1)"),
        nested(20, "nvl(", "day", ", 1)"),
        nested(20, "(", "day", " BETWEEN 0 AND 1)"),
        nested(20, "(", "day", " IN (0, 1, 2))"),
        nested(20, "CASE WHEN ", "delay > 1", " THEN day = 1 ELSE day = 2 END"),
    ] {
        let error = compiled(text).unwrap_err().to_string();
        assert!(error.contains("less deeply"), "{error}");
    }
    // Other expressions may be nested as deeply as parentheses.
    for text in [
        nested(12, "coalesce(delay, ", "day", ")"),
        nested(12, "CASE WHEN delay > 1 THEN 1 ELSE ", "day", " END"),
        nested(30, "abs(", "day", ")"),
    ] {
        compiled(text).unwrap();
    }
}

#[test]
fn rejects_values_of_unbounded_size() {
    let long = "a".repeat(1000);
    for text in [
        nested(9, "replace(", "Carrier", &format!(", 'a', '{long}')")),
        nested(9, "replace(", "'a'", &format!(", 'a', '{long}')")),
        nested(9, "regexp_replace(", "Carrier", &format!(", '.', '{long}', 'g')")),
        nested(9, "regexp_replace(", "Carrier", ", '(.*)', '\\1\\1\\1\\1\\1\\1\\1\\1\\1\\1\\1\\1\\1\\1\\1\\1')"),
    ] {
        let error = Expression::compile(&text, &schema()).and_then(|compiled| compiled.evaluate(&batch()));
        assert!(error.as_ref().is_err_and(|error| error.to_string().contains("the limit is")), "{error:?}");
    }
    let error = compiled(nested(26, "encode(", "Carrier", ", 'hex')")).unwrap_err().to_string();
    assert!(error.contains("the limit is"), "{error}");
}

#[test]
fn computes_growing_values_a_few_rows_at_a_time() {
    // 30,000 rows of up to 40,000 bytes during evaluation, none of which are kept.
    let grown = "replace(Carrier, 'a', repeated)".replace("repeated", &format!("'{}'", "x".repeat(40_000)));
    let carriers: StringArray = (0..30_000).map(|row| Some(if row % 1000 == 0 { "a" } else { "b" })).collect();
    let batch = RecordBatch::try_from_iter_with_nullable([("Carrier", Arc::new(carriers) as _, true)]).unwrap();
    let length = Expression::compile(&format!("character_length({grown})"), &batch.schema()).unwrap();
    let lengths = arrow::compute::cast(&length.evaluate(&batch).unwrap(), &arrow::datatypes::DataType::Int64).unwrap();
    let lengths = lengths.as_any().downcast_ref::<Int64Array>().unwrap();
    assert_eq!(lengths.len(), 30_000);
    assert_eq!((lengths.value(1000), lengths.value(1001)), (40_000, 1));

    // The size of the result is bounded too.
    let all: StringArray = (0..30_000).map(|_| Some("a")).collect();
    let batch = RecordBatch::try_from_iter_with_nullable([("Carrier", Arc::new(all) as _, true)]).unwrap();
    let error = Expression::compile(&grown, &batch.schema()).unwrap().evaluate(&batch).unwrap_err().to_string();
    assert!(error.contains("30000 rows take more than"), "{error}");
}

#[test]
fn failures_on_data_name_the_expression() {
    let expression = Expression::compile("10 / (day - 2)", &schema()).unwrap();
    let error = expression.evaluate(&batch()).unwrap_err().to_string();
    assert!(error.contains("10 / (day - 2)") && error.contains("ivide"), "{error}");
}

#[test]
fn the_longest_allowed_expression_is_evaluated_on_the_pool() {
    let text = vec!["day = 1"; 85].join(" OR ");
    let pool = forebay_runtime::cpu_pool::CpuPool::new(1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mask = runtime
        .block_on(pool.run(move || Expression::compile_filter(&text, &schema()).unwrap().passes(&batch()).unwrap()));
    assert_eq!(mask.unwrap(), BooleanArray::from(vec![true, false, false]));
}

#[test]
fn prunes_row_groups_that_cannot_pass() {
    let column = |min: Vec<Option<i64>>, max: Vec<Option<i64>>, nulls: Vec<Option<u64>>| ColumnStatistics {
        minimums: Arc::new(Int64Array::from(min)),
        maximums: Arc::new(Int64Array::from(max)),
        null_counts: UInt64Array::from(nulls),
    };
    let floats = ColumnStatistics {
        minimums: Arc::new(Float64Array::from(vec![0.0, 0.0, 0.0])),
        maximums: Arc::new(Float64Array::from(vec![1.0, 1.0, 1.0])),
        null_counts: UInt64Array::from(vec![0, 100, 5]),
    };
    let statistics = PruningStatistics {
        row_counts: vec![100, 100, 100],
        columns: HashMap::from([
            (
                "day".to_owned(),
                column(vec![Some(1), Some(10), None], vec![Some(9), Some(19), None], vec![Some(0), Some(0), None]),
            ),
            ("delay".to_owned(), floats),
        ]),
    };
    for (text, expected) in [
        ("day > 9", [false, true, true]),
        ("day = 5", [true, false, true]),
        ("day IS NULL", [false, false, true]),
        ("delay IS NOT NULL", [true, false, true]),
        // NaN is greater than every number in expressions, and not included in statistics.
        ("delay > 5", [true, false, true]),
        ("abs(day) > 100", [true, true, true]),
    ] {
        let filter = Expression::compile_filter(text, &schema()).unwrap();
        assert_eq!(filter.may_pass(&schema(), &statistics), expected, "{text}");
    }
}

#[test]
fn numbers_keep_their_written_value() {
    let decimals =
        arrow::array::Decimal128Array::from(vec![Some(805), Some(895), None]).with_precision_and_scale(9, 2).unwrap();
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("price", Arc::new(decimals) as _, true),
        ("small", Arc::new(arrow::array::Int8Array::from(vec![100, -100, 1])) as _, true),
    ])
    .unwrap();
    for (text, expected) in [
        ("price = 8.05", vec![Some(true), Some(false), None]),
        ("price > 8.95", vec![Some(false), Some(false), None]),
        ("8.95 <= price", vec![Some(false), Some(true), None]),
        ("price BETWEEN 8.05 AND 8.05", vec![Some(true), Some(false), None]),
        ("price IN (8.95, 1e3)", vec![Some(false), Some(true), None]),
        ("price > -0.5", vec![Some(true), Some(true), None]),
        ("small + small = 200", vec![Some(true), Some(false), Some(false)]),
        ("small * small = 10000", vec![Some(true), Some(true), Some(false)]),
    ] {
        let values = Expression::compile(text, &batch.schema()).unwrap().evaluate(&batch).unwrap();
        assert_eq!(values.as_any().downcast_ref::<BooleanArray>().unwrap(), &BooleanArray::from(expected), "{text}");
    }
}

#[test]
fn string_functions_return_plain_strings() {
    for text in ["substr(Carrier, 1, 1)", "substring(Carrier from 1 for 1)", "CAST(day AS VARCHAR)", "upper(Carrier)"] {
        let expression = Expression::compile(text, &schema()).unwrap();
        assert_eq!(expression.field("x").data_type(), &arrow::datatypes::DataType::Utf8, "{text}");
        assert_eq!(expression.evaluate(&batch()).unwrap().data_type(), &arrow::datatypes::DataType::Utf8, "{text}");
    }
}

#[test]
fn compile_finds_errors_that_do_not_depend_on_data() {
    for text in ["to_timestamp('x') > to_timestamp(day)", "delay IS DISTINCT FROM 1 AND day = 1"] {
        assert!(Expression::compile(text, &schema()).is_err(), "{text}");
    }
}

mod documented;
mod exact;
mod forms;
mod written;

/// Texts of a few hundred bytes: more than are evaluated at a time.
fn long_texts() -> RecordBatch {
    let texts = (0..4000).map(|row| (row % 9 != 0).then(|| format!("{}{row}", "long ".repeat(row % 100))));
    let texts = Arc::new(StringArray::from(texts.collect::<Vec<_>>())) as ArrayRef;
    RecordBatch::try_from_iter([("text", texts)]).unwrap()
}

#[test]
fn slices_of_a_batch_have_the_values_of_the_batch() {
    let batch = long_texts();
    for text in ["reverse(text)", "text LIKE '%g 17%'", "text ~ '[13]7$'", "length(text)", "regexp_like(text, 'g 3')"] {
        let expression = Expression::compile(text, &batch.schema()).unwrap();
        let small = (0..batch.num_rows()).step_by(50).map(|row| expression.evaluate(&batch.slice(row, 50)).unwrap());
        let small: Vec<ArrayRef> = small.collect();
        let whole = arrow::compute::concat(&small.iter().map(AsRef::as_ref).collect::<Vec<_>>()).unwrap();
        assert_eq!(&expression.evaluate(&batch).unwrap(), &whole, "{text}");
    }
}

#[test]
fn an_evaluation_ends_when_its_caller_leaves() {
    let pool = forebay_runtime::cpu_pool::CpuPool::new(1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (begun, is_begun) = tokio::sync::oneshot::channel();
    let (ended, has_ended) = std::sync::mpsc::channel();
    let job = pool.run(move || {
        let batch = long_texts();
        let expression = Expression::compile("text ~ '(a|b)*c$'", &batch.schema()).unwrap();
        begun.send(()).unwrap();
        while expression.evaluate(&batch).is_ok() {}
        ended.send(Expression::compile("1 = 1", &batch.schema()).is_err()).unwrap();
    });
    runtime.block_on(async {
        tokio::select! {
            _ = job => unreachable!("it evaluates until its caller leaves"),
            begun = is_begun => begun.unwrap(),
        }
    });
    assert_eq!(has_ended.recv_timeout(std::time::Duration::from_mins(1)), Ok(true));
}

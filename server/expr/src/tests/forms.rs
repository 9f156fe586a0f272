//! Other spellings of functions and operators, and errors that name what is not offered.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array, ListArray, RecordBatch, TimestampMicrosecondArray},
    datatypes::{DataType, Int32Type, Int64Type},
};

use super::{super::Expression, passes, schema};

fn error(text: &str) -> String {
    Expression::compile(text, &schema()).unwrap_err().to_string()
}

#[test]
fn unknown_functions_get_near_names_or_what_to_use_instead() {
    for (text, part) in [
        ("regexp_replce(Carrier, 'a', 'b')", "no function \"regexp_replce\": did you mean \"regexp_replace\""),
        ("COALESC(day, 1)", "did you mean \"coalesce\""),
        ("date_dif(day, day)", "\"datediff\""),
        ("xxhash64(Carrier)", "use hash64(x, seed)"),
        ("monotonically_increasing_id()", "use __row_id"),
        ("unix_timestamp(day)", "to_unixtime"),
        ("array_contains(Carrier, 'UA')", "array_length()"),
        ("Carrier = lpad('a', 1000000000)", "all memory"),
        ("len(Carrier)", "length()"),
        ("iff(day = 1, 1, 2)", "use if("),
    ] {
        let error = error(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn forms_that_are_not_offered_are_named() {
    for (text, part) in [
        ("day IN (SELECT 1)", "subqueries are not supported"),
        ("(SELECT 1) = day", "subqueries are not supported"),
        ("EXISTS (SELECT 1)", "subqueries are not supported"),
        ("row_number() OVER (ORDER BY day) = 1", "window functions (row_number() OVER …) are not supported"),
        ("sum(day) OVER () = 1", "window functions"),
        ("avg(delay) > 1", "aggregate functions (avg()) are not supported"),
        ("count(*) > 1", "aggregate functions (count()) are not supported"),
        ("Carrier LIKE ANY ('a', 'b')", "LIKE ANY is not supported: combine"),
        ("Carrier ILIKE ANY ('a', 'b')", "ILIKE ANY is not supported: combine"),
        ("Carrier RLIKE 'a'", "RLIKE is not supported: use regexp_like"),
        ("day = ANY (ARRAY[1, 2])", "not supported: use IN"),
        ("day > ALL (ARRAY[1, 2])", "not supported"),
        ("ARRAY[1, 2] IS NULL", "array literals are not supported"),
        ("Carrier COLLATE de = 'a'", "COLLATE is not supported"),
        ("Carrier -> 'a' = 'b'", "the operator -> is not supported"),
        ("count(day) FILTER (WHERE day > 1) > 1", "aggregate functions"),
    ] {
        let error = error(text);
        assert!(error.contains(part) && !error.contains("this form"), "{text}: {error}");
    }
}

#[test]
fn a_string_in_double_quotes_gets_a_hint() {
    let error = error("Carrier == \"UA\"");
    assert!(error.contains("no column \"UA\"") && error.contains("strings use single quotes: 'UA'"), "{error}");
    let unquoted = self::error("Carrier == UA");
    assert!(unquoted.contains("no column \"UA\"") && !unquoted.contains("quotes"), "{unquoted}");
    assert_eq!(passes("Carrier == 'UA'"), [true, false, true]);
    assert_eq!(passes("\"Carrier\" == 'UA'"), [true, false, true]);
}

#[test]
fn aliases_have_the_meaning_of_what_they_stand_for() {
    assert_eq!(passes("if(day > 1, delay > 15, true)"), [true, false, true]);
    assert_eq!(passes("IF(delay IS NULL, day, 9) = 2"), [false, true, false]);
    assert_eq!(passes("delay <=> NULL"), [false, true, false]);
    assert_eq!(passes("NOT delay <=> 1.0"), [false, true, true]);
    assert_eq!(passes("delay <=> 1 AND day = 1"), [true, false, false]);
    let days = [Some(0), Some(951_782_400_000_000), Some(-1), None];
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(days.to_vec()));
    let batch = RecordBatch::try_from_iter_with_nullable([("t", times, true)]).unwrap();
    for (text, expected) in [
        // 1970-01-01 is a Thursday, 2000-02-29 a Tuesday, 1969-12-31 a Wednesday.
        ("dayofweek(t)", [Some(5), Some(3), Some(4), None]),
        ("year(t)", [Some(1970), Some(2000), Some(1969), None]),
        ("month(t) + 0", [Some(1), Some(2), Some(12), None]),
        ("day(t)", [Some(1), Some(29), Some(31), None]),
        ("dayofyear(t)", [Some(1), Some(60), Some(365), None]),
        ("weekofyear(t)", [Some(1), Some(9), Some(1), None]),
        ("quarter(t)", [Some(1), Some(1), Some(4), None]),
        ("hour(t)", [Some(0), Some(0), Some(23), None]),
        ("minute(t)", [Some(0), Some(0), Some(59), None]),
        ("second(t)", [Some(0), Some(0), Some(59), None]),
        ("datediff(t, DATE '1970-01-01')", [Some(0), Some(11_016), Some(-1), None]),
        ("datediff('2000-03-01', t)", [Some(11_017), Some(1), Some(11_018), None]),
    ] {
        let values = Expression::compile(text, &batch.schema()).unwrap().evaluate(&batch).unwrap();
        let values = arrow::compute::cast(&values, &DataType::Int64).unwrap();
        assert_eq!(values.as_primitive::<Int64Type>(), &Int64Array::from(expected.to_vec()), "{text}");
    }
    for (text, part) in [
        ("year()", "year() takes one argument"),
        ("datediff('day', day, day)", "datediff() takes two arguments"),
        ("if(day, 1)", "if() takes a condition and two values"),
        ("array_length(Carrier)", "expects a list, not Utf8"),
        ("regexp_extract(Carrier, Carrier)", "must be a string literal"),
        ("regexp_extract(Carrier, '(a{1000}){1000}')", "repeat less"),
        ("regexp_extract(Carrier, 'a')", "has 0 groups, not 1"),
    ] {
        let error = error(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn list_lengths_count_elements() {
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(1), None]),
        Some(vec![]),
        None,
        Some(vec![None, None, None]),
    ]);
    for kind in [
        lists.data_type().clone(),
        DataType::LargeList(Arc::new(arrow::datatypes::Field::new("item", DataType::Int32, true))),
    ] {
        let lists = arrow::compute::cast(&lists, &kind).unwrap();
        let batch = RecordBatch::try_from_iter_with_nullable([("list", lists, true)]).unwrap();
        for text in ["array_length(list)", "size(list)"] {
            let values = Expression::compile(text, &batch.schema()).unwrap().evaluate(&batch).unwrap();
            let expected = Int64Array::from(vec![Some(2), Some(0), None, Some(3)]);
            assert_eq!(values.as_primitive::<Int64Type>(), &expected, "{text} of {kind}");
        }
    }
}

#[test]
fn columns_named_like_keywords_must_be_quoted() {
    let schema = arrow::datatypes::Schema::new(vec![arrow::datatypes::Field::new("user", DataType::Int64, true)]);
    let error = Expression::compile("user > 3", &schema).unwrap_err().to_string();
    assert!(error.contains("for the column, write \"user\" in double quotes"), "{error}");
    assert!(Expression::compile("\"user\" > 3", &schema).is_ok());
}

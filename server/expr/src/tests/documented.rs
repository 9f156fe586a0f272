//! The page of functions: it lists every function, and every example on it gives the result next to it.

use std::{collections::BTreeSet, fs, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, Int64Array, RecordBatch},
    datatypes::DataType,
    util::display::array_value_to_string,
};
use regex::Regex;

use super::super::{Expression, aliases, functions};

/// The page, with the pipes of code in tables as they are in an expression.
fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/reference/functions.md");
    fs::read_to_string(path).unwrap()
}

/// The value of an expression without columns in each of two rows, as the page writes it, or `error`.
fn value(text: &str) -> String {
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let batch = RecordBatch::try_from_iter([("row", rows)]).unwrap();
    let evaluated = Expression::compile(text, &batch.schema()).and_then(|compiled| compiled.evaluate(&batch));
    let Ok(values) = evaluated else { return "error".to_owned() };
    let [one, other] = [0, 1].map(|row| written(&values, row));
    assert_eq!(one, other, "{text}");
    one
}

fn written(values: &ArrayRef, row: usize) -> String {
    if values.data_type().is_null() || values.is_null(row) {
        return "NULL".to_owned();
    }
    let text = array_value_to_string(values, row).unwrap();
    match values.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => format!("'{text}'"),
        _ => text,
    }
}

#[test]
fn every_example_gives_the_result_that_the_page_states() {
    let page = page();
    let pairs = Regex::new("`([^`]+)` → `([^`]*)`").unwrap();
    let examples: Vec<(String, String)> =
        pairs.captures_iter(&page).map(|found| (found[1].replace("\\|", "|"), found[2].replace("\\|", "|"))).collect();
    assert!(examples.len() > 150, "{} examples", examples.len());
    assert_eq!(page.matches(" → ").count(), examples.len(), "an arrow without an example");
    let wrong: Vec<String> = examples
        .into_iter()
        .filter_map(|(text, expected)| {
            let found = value(&text);
            (found != expected).then(|| format!("{text}: {found}, the page has {expected}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_page_lists_every_function() {
    let names = Regex::new(r"`([a-z]\w*)\(").unwrap();
    let rows = page().lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect::<Vec<_>>();
    let first_cells = rows.iter().filter_map(|row| row.split('|').nth(1));
    let listed: Vec<String> = first_cells
        .flat_map(|cell| names.captures_iter(cell).map(|found| found[1].to_owned()).collect::<Vec<_>>())
        .collect();
    let unique: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
    assert_eq!(unique.len(), listed.len(), "a function is listed twice");
    let offered: BTreeSet<&str> = functions::offered_names().into_iter().chain(aliases::names()).collect();
    assert_eq!(unique, offered);
}

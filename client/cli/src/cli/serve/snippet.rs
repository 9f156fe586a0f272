//! Three lines of Python that read a dataset from the server.

use arrow::datatypes::{DataType, Field};
use forebay_client::Table;

use crate::cli::output;

/// A line that says what is served.
pub(super) fn dataset(table: &Table) -> String {
    let name = &table.info.name;
    if table.info.error.is_empty() {
        format!("serving {name}: {} rows\n", output::count(table.info.rows))
    } else {
        format!("not serving {name}: {}\n", table.info.error)
    }
}

/// The lines for a dataset: its numbers as one matrix, else its first column as stored.
pub(super) fn of(url: &str, table: &Table) -> String {
    let numbers = table.schema.fields().iter().filter(|field| is_number(field)).count();
    let output = match table.schema.fields().first() {
        Some(first) if numbers == 0 => format!("fb.cols({}).as_stored()", quoted(first.name())),
        _ => "fb.cols.numeric().fill_null(0)".to_owned(),
    };
    format!(
        "    import forebay as fb\n    plan = fb.Plan(outputs={{\"x\": {output}}})\n    \
         for batch in fb.connect({}).stream({}, \
         plan, batch_size=1024, shuffle=True): print(batch[\"x\"])",
        quoted(url),
        quoted(&table.info.name)
    )
}

fn is_number(field: &Field) -> bool {
    field.data_type().is_integer()
        || field.data_type().is_floating()
        || matches!(
            field.data_type(),
            DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..)
        )
}

/// A string of Python. Its escapes include those of JSON for characters without another form.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

//! The columns that distinguish series and order their rows, checked against the schema of the rows.

use arrow::datatypes::{DataType, Schema};
use forebay_plan::{PlanError, Windows};
use forebay_runtime::error::near_names;

use crate::describe::type_name;

/// The columns of the series, and what decides their values other than the snapshot.
#[derive(Debug)]
pub(crate) struct SeriesColumns {
    pub by: Vec<String>,
    pub order: String,
    /// Joined and derived columns, as bytes; empty if all columns are stored.
    pub source: Vec<u8>,
}

/// A row at an edge of a block: the values of its series and of the order, as bytes that compare like them.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub key: Vec<u8>,
    pub order: Vec<u8>,
    /// The row's index in the snapshot.
    pub row: u64,
}

impl SeriesColumns {
    /// Finds the columns of a request in the schema of stored, joined and derived columns; `computed` has the latter two as
    /// bytes.
    pub(crate) fn check(
        windows: &Windows,
        schema: &Schema,
        stored: &Schema,
        computed: impl FnOnce() -> Vec<u8>,
    ) -> Result<Self, PlanError> {
        for (index, column) in windows.by.iter().enumerate() {
            check_column(&format!("window.by[{index}]"), column, schema, |data_type| {
                matches!(data_type, DataType::Boolean) || is_ordered(data_type) || is_bytes(data_type)
            })?;
        }
        check_column("window.order", &windows.order, schema, is_ordered)?;
        let are_stored = windows.by.iter().chain([&windows.order]).all(|name| stored.index_of(name).is_ok());
        let source = if are_stored { Vec::new() } else { computed() };
        Ok(Self { by: windows.by.clone(), order: windows.order.clone(), source })
    }

    /// Whether a row is of the same series as the row before it; an error if it does not follow that in its order.
    pub(crate) fn continues(&self, before: Option<&Edge>, row: Option<&Edge>) -> Result<bool, PlanError> {
        match (before, row) {
            (Some(before), Some(row)) if before.key == row.key => {
                if before.order < row.order {
                    return Ok(true);
                }
                Err(self.not_rising(row.row, before.order == row.order))
            }
            _ => Ok(false),
        }
    }

    /// The error of a row that does not follow the row before it in the order of its series.
    pub(crate) fn not_rising(&self, row: u64, is_equal: bool) -> PlanError {
        let (order, by) = (&self.order, self.by.join(", "));
        let series = if by.is_empty() { String::new() } else { format!(" of its series ({by})") };
        let found = if is_equal { "is that of" } else { "is before that of" };
        let reason = format!(
            "row {row}: its \"{order}\" {found} the row before it{series}, and windows need strictly rising rows: {}",
            if is_equal { "remove duplicates" } else { "sort the dataset" }
        );
        PlanError::field("window.order", reason)
    }

    /// The error of a row whose series ended before.
    pub(crate) fn unsorted(&self, row: u64) -> PlanError {
        let (order, by) = (&self.order, self.by.join(", "));
        let reason = format!(
            "row {row}: rows of its series ({by}) ended before, and windows need the rows of a series together: sort the dataset \
             by {by}, {order}"
        );
        PlanError::field("window.by", reason)
    }
}

fn check_column(
    path: &str,
    column: &str,
    schema: &Schema,
    is_accepted: impl Fn(&DataType) -> bool,
) -> Result<(), PlanError> {
    let Ok(field) = schema.field_with_name(column) else {
        let near = near_names(column, schema.fields().iter().map(|field| field.name().as_str()));
        return Err(PlanError::UnknownColumn { path: path.to_owned(), column: column.to_owned(), near });
    };
    if is_accepted(plain(field.data_type())) {
        return Ok(());
    }
    let found = type_name(field.data_type());
    Err(PlanError::field(path, format!("column \"{column}\" is {found}: expected numbers, text, dates or times")))
}

/// The type of the values of a column, which may be a dictionary.
pub(crate) fn plain(data_type: &DataType) -> &DataType {
    if let DataType::Dictionary(_, values) = data_type { values } else { data_type }
}

fn is_ordered(data_type: &DataType) -> bool {
    let is_text = matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let is_span = matches!(data_type, DataType::Duration(_) | DataType::Interval(_));
    (data_type.is_numeric() || data_type.is_temporal() || is_text) && !is_span
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_))
}

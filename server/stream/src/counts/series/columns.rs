//! The columns that distinguish series and order their rows, checked against the schema of the rows.

use arrow::datatypes::{DataType, Schema};
use forebay_plan::{PlanError, Windows};
use forebay_runtime::error::near_names;

use crate::{
    describe::type_name,
    rows::history::{History, plain},
};

/// The columns of the series, and what decides their values other than the snapshot.
#[derive(Debug)]
pub(crate) struct SeriesColumns {
    pub by: Vec<String>,
    pub order: String,
    /// The field that names them, and what needs them, for errors.
    field: &'static str,
    needed_by: &'static str,
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
    /// Finds the columns of windows in the schema of stored, joined and derived columns; `computed` has the latter two as
    /// bytes.
    pub(crate) fn of_windows(
        windows: &Windows,
        schema: &Schema,
        stored: &Schema,
        computed: impl FnOnce() -> Vec<u8>,
    ) -> Result<Self, PlanError> {
        let (by, order) = (windows.by.clone(), windows.order.clone());
        let columns = Self { by, order, field: "window", needed_by: "windows need", source: Vec::new() };
        columns.check(schema, stored, computed)
    }

    /// The same for the columns of a history.
    pub(crate) fn of_history(
        history: &History,
        schema: &Schema,
        stored: &Schema,
        computed: impl FnOnce() -> Vec<u8>,
    ) -> Result<Self, PlanError> {
        let (by, order) = (history.by.clone(), history.order.clone());
        let needed_by = "lag, diff and rolling need";
        let columns = Self { by, order, field: "plan.history", needed_by, source: Vec::new() };
        columns.check(schema, stored, computed)
    }

    fn check(self, schema: &Schema, stored: &Schema, computed: impl FnOnce() -> Vec<u8>) -> Result<Self, PlanError> {
        for (index, column) in self.by.iter().enumerate() {
            check_column(&format!("{}.by[{index}]", self.field), column, schema, |data_type| {
                matches!(data_type, DataType::Boolean) || is_ordered(data_type) || is_bytes(data_type)
            })?;
        }
        check_column(&format!("{}.order", self.field), &self.order, schema, is_ordered)?;
        let are_stored = self.by.iter().chain([&self.order]).all(|name| stored.index_of(name).is_ok());
        let source = if are_stored { Vec::new() } else { computed() };
        Ok(Self { source, ..self })
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
            "row {row}: its \"{order}\" {found} the row before it{series}, and {} strictly rising rows: {}",
            self.needed_by,
            if is_equal { "remove duplicates" } else { "sort the dataset" }
        );
        PlanError::field(format!("{}.order", self.field), reason)
    }

    /// The error of a row whose value has no place in an order.
    pub(crate) fn unordered(&self, row: u64) -> PlanError {
        PlanError::field(format!("{}.order", self.field), format!("row {row}: \"{}\" is null or NaN there", self.order))
    }

    /// The error of columns that functions compute.
    pub(crate) fn of_functions(&self) -> PlanError {
        let reason =
            "series cannot be distinguished by columns that functions compute: use stored, joined or derived ones";
        PlanError::field(format!("{}.by", self.field), reason)
    }

    /// The error of a row whose series ended before.
    pub(crate) fn unsorted(&self, row: u64) -> PlanError {
        let (order, by) = (&self.order, self.by.join(", "));
        let reason = format!(
            "row {row}: rows of its series ({by}) ended before, and {} the rows of a series together: sort the dataset by {by}, \
             {order}",
            self.needed_by
        );
        PlanError::field(format!("{}.by", self.field), reason)
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

fn is_ordered(data_type: &DataType) -> bool {
    let is_text = matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let is_span = matches!(data_type, DataType::Duration(_) | DataType::Interval(_));
    (data_type.is_numeric() || data_type.is_temporal() || is_text) && !is_span
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_))
}

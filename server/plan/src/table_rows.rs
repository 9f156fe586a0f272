//! The columns and rows of a raw table of a request.

use std::collections::{HashMap, HashSet};

use arrow::datatypes::{Schema, SchemaRef};
use forebay_proto::v1;
use forebay_runtime::error::near_names;

use super::error::PlanError;

/// A validated `TableRead`: some columns of a raw table, and its first rows.
#[derive(Clone, Debug)]
pub struct TableRows {
    /// Indices of the columns in the requested order; none: every column as stored.
    columns: Option<Vec<usize>>,
    limit: Option<u64>,
}

impl TableRows {
    /// Every column and row.
    pub const ALL: Self = Self { columns: None, limit: None };

    /// Validates a message against the stored columns.
    pub fn check(read: &v1::TableRead, stored: &Schema) -> Result<Self, PlanError> {
        let columns =
            if read.columns.is_empty() { None } else { Some(indices(&read.columns, stored, "table.columns")?) };
        Ok(Self { columns, limit: read.limit })
    }

    /// Returns the names of the columns in the requested order; empty for all columns.
    pub fn names(&self, stored: &Schema) -> Vec<String> {
        let columns = self.columns.iter().flatten();
        columns.filter_map(|index| stored.fields().get(*index)).map(|field| field.name().clone()).collect()
    }

    /// Returns the limit of rows; none for all rows.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Returns the number of rows that are used of a table of `stored` rows.
    pub fn row_count(&self, stored: u64) -> u64 {
        self.limit.map_or(stored, |limit| limit.min(stored))
    }

    /// Returns whether these are not all columns and rows.
    pub fn is_part(&self) -> bool {
        self.columns.is_some() || self.limit.is_some()
    }

    /// Returns the schema of the rows.
    pub fn schema(&self, stored: &SchemaRef) -> SchemaRef {
        let Some(columns) = &self.columns else { return SchemaRef::clone(stored) };
        let fields: Vec<_> = columns.iter().filter_map(|index| stored.fields().get(*index).cloned()).collect();
        Schema::new_with_metadata(fields, stored.metadata().clone()).into()
    }

    /// Returns the indices of the columns in stored order; none for all columns.
    pub fn stored_order(&self) -> Option<Vec<usize>> {
        let mut sorted = self.columns.clone()?;
        sorted.sort_unstable();
        Some(sorted)
    }

    /// Returns, for each column in the requested order, its place in [`Self::stored_order`]; none if that is the
    /// requested order.
    pub fn places(&self) -> Option<Vec<usize>> {
        let columns = self.columns.as_ref().filter(|columns| !columns.is_sorted())?;
        let sorted = self.stored_order()?;
        Some(columns.iter().map(|column| sorted.partition_point(|before| before < column)).collect())
    }
}

/// Returns the indices of distinct columns, each of which exists once; `path` is the field that names them.
pub fn indices(names: &[String], stored: &Schema, path: &str) -> Result<Vec<usize>, PlanError> {
    let mut found: HashMap<&str, (usize, usize)> = HashMap::with_capacity(stored.fields().len());
    for (index, field) in stored.fields().iter().enumerate() {
        found.entry(field.name()).or_insert((index, 0)).1 += 1;
    }
    let (mut seen, mut indices) = (HashSet::new(), Vec::new());
    for name in names {
        match found.get(name.as_str()) {
            None => {
                let near = near_names(name, stored.fields().iter().map(|field| field.name().as_str()));
                return Err(PlanError::UnknownColumn { path: path.to_owned(), column: name.clone(), near });
            }
            Some((_, count)) if *count > 1 => {
                return Err(PlanError::field(path, format!("the dataset has {count} columns \"{name}\"")));
            }
            Some(_) if !seen.insert(name) => {
                return Err(PlanError::field(path, format!("\"{name}\" is listed twice: list each column once")));
            }
            Some((index, _)) => indices.push(*index),
        }
    }
    Ok(indices)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;

    fn stored() -> SchemaRef {
        let field = |name: &str| Field::new(name, DataType::Int64, true);
        Schema::new(["a", "b", "c", "twice", "twice"].map(field).to_vec()).into()
    }

    fn rows(columns: &[&str], limit: Option<u64>) -> Result<TableRows, String> {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        let read = v1::TableRead { columns, limit, ..v1::TableRead::default() };
        TableRows::check(&read, &stored()).map_err(|error| error.to_string())
    }

    #[test]
    fn columns_keep_the_requested_order_and_are_read_in_stored_order() {
        let some = rows(&["c", "a", "b"], Some(7)).unwrap();
        let names: Vec<_> = some.schema(&stored()).fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(
            (names.join(""), some.stored_order(), some.places()),
            ("cab".into(), Some(vec![0, 1, 2]), Some(vec![2, 0, 1]))
        );
        assert_eq!((some.row_count(5), some.row_count(50), some.is_part()), (5, 7, true));
        let all = rows(&[], None).unwrap();
        assert_eq!((all.schema(&stored()), all.stored_order(), all.places()), (stored(), None, None));
        assert_eq!((all.row_count(5), all.is_part()), (5, false));
        assert_eq!(rows(&["a", "c"], Some(0)).unwrap().places(), None);
    }

    #[test]
    fn unknown_and_repeated_columns_are_errors() {
        let errors = [
            (&["aa", "b"][..], "table.columns: no column \"aa\": did you mean \"a\"?"),
            (&["twice"], "table.columns: the dataset has 2 columns \"twice\""),
            (&["b", "b"], "table.columns: \"b\" is listed twice: list each column once"),
        ];
        for (columns, expected) in errors {
            assert_eq!(rows(columns, None).unwrap_err(), expected);
        }
    }
}

//! What a conversion reads and writes.

use std::path::PathBuf;

use arrow::datatypes::DataType;
use forebay_order::row_groups::{ROW_GROUP_BYTES, ROW_GROUP_ROWS_MAX};

use crate::{error::ConvertError, format::Format, type_name};

/// Options of a conversion.
#[derive(Clone, Debug)]
pub struct Options {
    /// Files and folders, in the order of their rows.
    pub sources: Vec<PathBuf>,
    /// The folder of the result.
    pub out: PathBuf,
    /// The format of all files; by default that of their names and first bytes.
    pub format: Option<Format>,
    /// Whether an earlier result is replaced.
    pub replace: bool,
    /// Types of columns, in place of those inferred.
    pub types: Vec<(String, DataType)>,
    /// Rows of the beginning from which types are inferred.
    pub infer_rows: usize,
    /// Texts of CSV that are null.
    pub nulls: Vec<String>,
    /// The character between fields of CSV; by default a comma, and a tab in `.tsv` files.
    pub delimiter: Option<u8>,
    /// The character around fields of CSV.
    pub quote: u8,
    /// Whether the first line of CSV has the names of the columns.
    pub has_header: bool,
    /// The Python whose pyarrow reads ORC; by default `python3`.
    pub python: PathBuf,
    /// Rows of a row group.
    pub row_group_rows: usize,
    /// Bytes at which a row group ends earlier.
    pub row_group_bytes: usize,
    /// Bytes at which a file is complete.
    pub file_bytes: u64,
}

// === impl Options ===

impl Options {
    /// Options with every default.
    pub fn new(sources: Vec<PathBuf>, out: PathBuf) -> Self {
        Self {
            sources,
            out,
            format: None,
            replace: false,
            types: Vec::new(),
            infer_rows: 10_000,
            nulls: vec![String::new()],
            delimiter: None,
            quote: b'"',
            has_header: true,
            python: PathBuf::from("python3"),
            row_group_rows: ROW_GROUP_ROWS_MAX as usize,
            row_group_bytes: ROW_GROUP_BYTES as usize,
            file_bytes: 512 << 20,
        }
    }

    /// Adds a type of a column, written as `COLUMN=TYPE`.
    pub fn add_type(&mut self, text: &str) -> Result<(), ConvertError> {
        let usage = |reason: String| ConvertError::Usage(format!("--type {text}: {reason}"));
        let (column, kind) = text.rsplit_once('=').ok_or_else(|| usage("expected COLUMN=TYPE".to_owned()))?;
        let kind = type_name::parse(kind).map_err(usage)?;
        if self.types.iter().any(|(other, _)| other == column) {
            return Err(usage(format!("column \"{column}\" has a type already")));
        }
        self.types.push((column.to_owned(), kind));
        Ok(())
    }

    /// The type that is set for a column.
    pub(crate) fn type_of(&self, column: &str) -> Option<&DataType> {
        self.types.iter().find(|(name, _)| name == column).map(|(_, kind)| kind)
    }

    /// Refuses types of columns that no file has.
    pub(crate) fn check_types<'a>(&self, columns: impl Iterator<Item = &'a str> + Clone) -> Result<(), ConvertError> {
        match self.types.iter().find(|(name, _)| !columns.clone().any(|column| column == name)) {
            None => Ok(()),
            Some((name, _)) => {
                let columns: Vec<&str> = columns.take(20).collect();
                let reason = format!("--type {name}=…: no file has this column; they have {}", columns.join(", "));
                Err(ConvertError::Usage(reason))
            }
        }
    }
}

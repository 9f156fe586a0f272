//! One version of a table, as the log of either format describes it.

use arrow::datatypes::Field;

/// One version of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct LakeTable {
    /// The version as users write it: the number of a Delta version, the ID of an Iceberg snapshot.
    pub version: String,
    /// The columns, in the order of the table's schema. Partition columns are among them.
    pub columns: Vec<Column>,
    /// The names of the columns that have one value in each file, which is in [`TableFile::partition_values`].
    pub partition_columns: Vec<String>,
    /// The files, sorted by path.
    pub files: Vec<TableFile>,
}

/// A version of one table: it never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableState {
    /// The ID of the table: another table in the same folder has another one.
    pub id: String,
    /// The version.
    pub version: String,
}

/// What the log of a table has.
#[derive(Debug)]
pub enum TableLog {
    /// The version with this index among the known ones. No more of the log was read than this takes to find out.
    Known(usize),
    /// Another version.
    Version(LakeTable, TableState),
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name, type and nullability as users see them. The fields of structs have the table's names, too.
    pub field: Field,
    /// How data files store it.
    pub stored: StoredAs,
}

/// How data files store a column or a nested field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAs {
    /// What identifies it in a file.
    pub key: ColumnKey,
    /// Its nested fields: for a struct, each field in order; for a list, its items; for a map, its keys and its values.
    pub children: Vec<StoredAs>,
}

/// What identifies a column in a file, among the fields next to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnKey {
    /// Its name there.
    Name(String),
    /// Its Parquet field ID.
    Id(i32),
    /// Its Parquet field ID or, in a file whose columns have no IDs, the first of these names that the file has.
    IdOrName {
        /// The ID.
        id: i32,
        /// The names.
        names: Vec<String>,
    },
    /// Its place: the items of a list, the keys and the values of a map.
    Position,
}

/// A data file of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFile {
    /// Where it is.
    pub path: FilePath,
    /// Its size.
    pub bytes: u64,
    /// Its rows, with the deleted ones, if the log records them.
    pub rows: Option<u64>,
    /// The value of each of [`LakeTable::partition_columns`], as text that Arrow casts to the type of the column:
    /// `2024-02-29`, `2024-02-29 23:59:59.000001`, `true`, `-1.5`. `None` is null.
    pub partition_values: Vec<Option<String>>,
    /// What the log has for columns, by index, that the file may lack. Another column that it lacks is null.
    pub if_missing: Vec<(usize, LogValue)>,
    /// The indices of its deleted rows, rising and without repetition, counted from 0 over all row groups.
    pub deleted: Vec<u64>,
}

/// The value of a column in all rows of a file, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogValue {
    /// As Arrow casts it to the type of the column; `None` is null.
    Text(Option<String>),
    /// In a form that is not read: a file without the column is refused.
    Unread,
}

/// The place of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilePath {
    /// A path from the root of the table, with `/` between its parts and without percent encoding.
    Relative(String),
    /// A URL.
    Absolute(String),
}

// === impl ColumnKey ===

impl ColumnKey {
    /// Its field ID, if it is known by one.
    pub fn id(&self) -> Option<i32> {
        match self {
            Self::Id(id) | Self::IdOrName { id, .. } => Some(*id),
            Self::Name(_) | Self::Position => None,
        }
    }
}

// === impl StoredAs ===

impl StoredAs {
    /// A column without nested fields.
    pub fn leaf(key: ColumnKey) -> Self {
        Self { key, children: Vec::new() }
    }
}

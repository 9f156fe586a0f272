//! The manifest of a prepared dataset: what it was made from, and its files.

use arrow::datatypes::Schema;
use chrono::{SecondsFormat, Utc};
use forebay_catalog::view::QUERY_RULES;
use forebay_runtime::state::short_digest;
use serde::{Deserialize, Serialize};

use crate::{
    inputs::{Input, InputRecord},
    parquet_file::WrittenFile,
};

/// What decides the result of a run.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    /// The query.
    pub sql: String,
    /// Rows of a row group.
    pub row_group_rows: u64,
    /// Bytes of a file.
    pub file_bytes: u64,
    /// Whether the query depends on more than its inputs.
    pub is_volatile: bool,
}

/// A manifest as written.
#[derive(Debug, Serialize)]
pub(crate) struct Manifest {
    version: u32,
    program: &'static str,
    created: String,
    recipe: String,
    volatile: bool,
    sql: String,
    row_group_rows: u64,
    file_bytes: u64,
    rows: u64,
    bytes: u64,
    schema: Vec<ColumnRecord>,
    files: Vec<FileRecord>,
    inputs: Vec<InputRecord>,
}

#[derive(Debug, Serialize)]
struct ColumnRecord {
    name: String,
    r#type: String,
    nullable: bool,
}

#[derive(Debug, Deserialize, Serialize)]
struct FileRecord {
    path: String,
    rows: u64,
    row_groups: u64,
    bytes: u64,
    sha256: String,
}

/// What a run reads of the manifest of an earlier one.
#[derive(Debug, Deserialize)]
pub(crate) struct EarlierManifest {
    /// The digest of the query, its options and inputs.
    pub recipe: String,
    /// Whether the query depends on more than these.
    pub volatile: bool,
    /// The rows of the dataset.
    pub rows: u64,
    /// The bytes of its files.
    pub bytes: u64,
    files: Vec<FileRecord>,
}

/// The digest of a query, its options and the states of its inputs.
pub(crate) fn recipe_digest(recipe: &Recipe, inputs: &[Input]) -> String {
    let options = format!("forebay prepare {QUERY_RULES}\n{}\n{}\n", recipe.row_group_rows, recipe.file_bytes);
    let mut sorted: Vec<&Input> = inputs.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let states: Vec<String> =
        sorted.iter().map(|input| format!("{}\n{}\n", input.name, input.snapshot.digest())).collect();
    short_digest(&[options.as_bytes(), states.concat().as_bytes(), recipe.sql.as_bytes()])
}

// === impl Manifest ===

impl Manifest {
    /// The manifest of a complete run whose files are in `folder`, relative to the manifest.
    pub(crate) fn new(recipe: &Recipe, inputs: &[Input], schema: &Schema, folder: &str, files: &[WrittenFile]) -> Self {
        let columns = schema.fields().iter().map(|field| ColumnRecord {
            name: field.name().clone(),
            r#type: field.data_type().to_string(),
            nullable: field.is_nullable(),
        });
        let records = files.iter().map(|file| FileRecord {
            path: format!("{folder}{}", file.name),
            rows: file.rows,
            row_groups: file.row_groups,
            bytes: file.bytes,
            sha256: file.sha256.clone(),
        });
        Self {
            version: 1,
            program: concat!("forebay-prepare ", env!("CARGO_PKG_VERSION")),
            created: Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true),
            recipe: recipe_digest(recipe, inputs),
            volatile: recipe.is_volatile,
            sql: recipe.sql.clone(),
            row_group_rows: recipe.row_group_rows,
            file_bytes: recipe.file_bytes,
            rows: files.iter().map(|file| file.rows).sum(),
            bytes: files.iter().map(|file| file.bytes).sum(),
            schema: columns.collect(),
            files: records.collect(),
            inputs: inputs.iter().map(InputRecord::new).collect(),
        }
    }

    /// The text of the file.
    pub(crate) fn to_text(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }
}

// === impl EarlierManifest ===

impl EarlierManifest {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// Path relative to the manifest and size of each file.
    pub(crate) fn files(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        self.files.iter().map(|file| (file.path.as_str(), file.bytes))
    }
}

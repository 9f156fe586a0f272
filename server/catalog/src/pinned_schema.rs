//! The schema that a dataset has independent of its files: `--dataset-schema`, read from the footer of a Parquet file on
//! this machine, or the schema of a lake table.

use std::{
    fs::File as DiskFile,
    io::{Read, Seek, SeekFrom},
    path::{Path as FilePath, PathBuf},
};

use arrow::datatypes::SchemaRef;

use super::{footer, leaves::Int96Unit};

/// The largest file footer that is read.
const FOOTER_BYTES_MAX: u64 = 64 << 20;

/// The schema that a dataset must have, in place of the union of its files' schemas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedSchema {
    source: SchemaSource,
    schema: SchemaRef,
}

/// Where a pinned schema is from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SchemaSource {
    /// The file of `--dataset-schema`.
    File(PathBuf),
    /// The version of a table, such as `version 12`.
    Table(String),
    /// A snapshot that another process opened.
    Snapshot,
}

// === impl PinnedSchema ===

impl PinnedSchema {
    /// Reads the schema of a Parquet file. Its rows, if it has any, are not read.
    pub fn read(path: &FilePath, int96: Int96Unit) -> Result<Self, String> {
        let (end, file_bytes) = footer_bytes(path).map_err(|source| source.to_string())?;
        let footer = footer::of_bytes(end, file_bytes, int96)?;
        let path = std::path::absolute(path).map_err(|source| source.to_string())?;
        Ok(Self { source: SchemaSource::File(path), schema: footer.stored.schema().clone() })
    }

    /// The schema of a version of a table.
    pub(super) fn of_table(version: &str, schema: SchemaRef) -> Self {
        Self { source: SchemaSource::Table(version.to_owned()), schema }
    }

    /// The schema of a snapshot of the same files.
    pub(super) fn of_snapshot(schema: SchemaRef) -> Self {
        Self { source: SchemaSource::Snapshot, schema }
    }

    /// The absolute path of the file; `None` for the schema of a table.
    pub fn path(&self) -> Option<&FilePath> {
        match &self.source {
            SchemaSource::File(path) => Some(path),
            SchemaSource::Table(_) | SchemaSource::Snapshot => None,
        }
    }

    /// The end of an error: where the schema is from, and what to do about a file that it does not fit.
    pub(super) fn refusal(&self) -> String {
        match &self.source {
            SchemaSource::File(path) => format!(
                "the schema of --dataset-schema, \"{}\", cannot hold its values: convert the file, or pin another schema",
                path.display()
            ),
            SchemaSource::Table(version) => {
                format!("{version} of the table cannot hold its values: rewrite the file")
            }
            SchemaSource::Snapshot => "the snapshot cannot hold its values: the file is another one".to_owned(),
        }
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

/// The footer of a file with its length and magic bytes, and the size of the file. For a file that is not Parquet, its
/// last bytes.
fn footer_bytes(path: &FilePath) -> std::io::Result<(Vec<u8>, u64)> {
    let mut file = DiskFile::open(path)?;
    let file_bytes = file.metadata()?.len();
    let mut end = [0; 8];
    if file_bytes >= 8 {
        file.seek(SeekFrom::End(-8))?;
        file.read_exact(&mut end)?;
    }
    let [n0, n1, n2, n3, ..] = end;
    let declared = u64::from(u32::from_le_bytes([n0, n1, n2, n3])) + 8;
    file.seek(SeekFrom::Start(file_bytes - declared.min(file_bytes)))?;
    let mut footer = Vec::new();
    file.take(FOOTER_BYTES_MAX).read_to_end(&mut footer)?;
    Ok((footer, file_bytes))
}

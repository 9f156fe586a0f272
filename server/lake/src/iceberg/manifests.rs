//! Manifest lists and manifests: the data files and delete files of a snapshot.

use super::{
    avro::{AvroFile, AvroRecord},
    spec::PartitionValue,
};

const DATA: i64 = 0;
const POSITION_DELETES: i64 = 1;
const EQUALITY_DELETES: i64 = 2;
/// The status of an entry whose file is no longer in the table.
const REMOVED: i64 = 2;

/// A manifest, as the list names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ManifestText {
    pub url: String,
    bytes: u64,
    pub spec_id: i32,
    sequence: i64,
    /// Files that it adds or keeps, if the list has the counts.
    live: Option<i64>,
    /// Whether reading it needs a key.
    pub is_encrypted: bool,
}

/// A file of a snapshot.
#[derive(Clone, Debug)]
pub(super) struct ManifestEntry {
    pub url: String,
    pub content: FileContent,
    /// `parquet`, `puffin`, …, in lower case.
    pub format: String,
    pub bytes: u64,
    pub rows: u64,
    /// Rises with each commit. Deletes by position apply to files of lower or equal numbers, those by equality of lower ones.
    pub sequence: i64,
    pub spec_id: i32,
    /// In the order of the fields of the spec.
    pub partition: Vec<PartitionValue>,
    /// The data file of a deletion vector.
    pub data_file: Option<String>,
    /// The first byte of a deletion vector in the file, and its length.
    pub blob: Option<(u64, u64)>,
    /// The columns of an equality delete file by which rows are deleted.
    pub equality_ids: Vec<i32>,
    /// Whether reading it needs a key.
    pub is_encrypted: bool,
}

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileContent {
    Data,
    PositionDeletes,
    EqualityDeletes,
}

/// The manifests that a list names.
pub(super) fn parse_list(bytes: &[u8]) -> Result<Vec<ManifestText>, String> {
    let mut manifests = Vec::new();
    AvroFile::open(bytes)?.each(|record| {
        manifests.push(ManifestText {
            url: record.required_text("manifest_path")?.to_owned(),
            bytes: record.count("manifest_length")?,
            spec_id: spec_id(record.required_integer("partition_spec_id")?)?,
            sequence: record.integer("sequence_number")?.unwrap_or(0),
            live: live_count(record)?,
            is_encrypted: is_encrypted(record),
        });
        Ok(())
    })?;
    Ok(manifests)
}

/// The files of a manifest that are in the table.
pub(super) fn parse_manifest(manifest: &ManifestText, bytes: &[u8]) -> Result<Vec<ManifestEntry>, String> {
    if bytes.len() as u64 != manifest.bytes {
        return Err(format!("it has {} bytes, but the manifest list says {}", bytes.len(), manifest.bytes));
    }
    let file = AvroFile::open(bytes)?;
    if let Some(spec) = file.text("partition-spec-id").filter(|spec| *spec != manifest.spec_id.to_string()) {
        return Err(format!("it has partition spec {spec}, but the manifest list says {}", manifest.spec_id));
    }
    let mut entries = Vec::new();
    file.each(|record| {
        if record.required_integer("status")? != REMOVED {
            entries.push(entry(manifest, record)?);
        }
        Ok(())
    })?;
    match manifest.live {
        Some(live) if live != entries.len() as i64 => {
            Err(format!("it has {} files, but the manifest list says {live}", entries.len()))
        }
        _ => Ok(entries),
    }
}

fn entry(manifest: &ManifestText, record: AvroRecord<'_>) -> Result<ManifestEntry, String> {
    let file = record.required_record("data_file")?;
    let content = match file.integer("content")?.unwrap_or(DATA) {
        DATA => FileContent::Data,
        POSITION_DELETES => FileContent::PositionDeletes,
        EQUALITY_DELETES => FileContent::EqualityDeletes,
        other => return Err(format!("a file has the unknown content {other}")),
    };
    let blob = match file.integer("content_offset")? {
        None => None,
        Some(_) => Some((file.count("content_offset")?, file.count("content_size_in_bytes")?)),
    };
    Ok(ManifestEntry {
        url: file.required_text("file_path")?.to_owned(),
        content,
        format: file.required_text("file_format")?.to_ascii_lowercase(),
        bytes: file.count("file_size_in_bytes")?,
        rows: file.count("record_count")?,
        // New entries inherit the number of their manifest, which is not known when they are written.
        sequence: record.integer("sequence_number")?.unwrap_or(manifest.sequence),
        spec_id: manifest.spec_id,
        partition: PartitionValue::all(file.required_record("partition")?),
        data_file: file.text("referenced_data_file")?.map(str::to_owned),
        blob,
        equality_ids: file.integers("equality_ids")?,
        is_encrypted: is_encrypted(file),
    })
}

/// Whether the file of a record is encrypted.
fn is_encrypted(record: AvroRecord<'_>) -> bool {
    record.value("key_metadata").is_some()
}

fn spec_id(value: i64) -> Result<i32, String> {
    i32::try_from(value).map_err(|_| format!("the partition spec {value} is not an ID"))
}

/// The files that a manifest adds and keeps. Version 1 has other names for the counts, or none.
fn live_count(record: AvroRecord<'_>) -> Result<Option<i64>, String> {
    let count = |name: &str, early_name: &str| {
        let found = record.integer(name)?;
        if found.is_some() { Ok::<_, String>(found) } else { record.integer(early_name) }
    };
    let added = count("added_files_count", "added_data_files_count")?;
    let kept = count("existing_files_count", "existing_data_files_count")?;
    Ok(added.zip(kept).map(|(added, kept)| added.saturating_add(kept)))
}

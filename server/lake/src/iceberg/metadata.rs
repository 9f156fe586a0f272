//! Table metadata: the snapshots, schemas and partition specs in a `.metadata.json` file.

use std::{collections::HashMap, io::Read};

use flate2::read::MultiGzDecoder;
use serde::Deserialize;

use super::{
    name_mapping::NameMapping,
    schema::{FieldText, SchemaText},
    spec::{PartitionFieldText, SpecText},
};
use crate::error::LakeError;

/// The largest metadata file, uncompressed.
pub(super) const METADATA_BYTES_MAX: u64 = 128 << 20;

const VERSIONS: std::ops::RangeInclusive<i64> = 1..=3;
const NAME_MAPPING: &str = "schema.name-mapping.default";
const ENCRYPTION_KEY: &str = "encryption.key-id";
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A parsed metadata file.
#[derive(Debug)]
pub(super) struct TableMetadata {
    /// Its path, for errors.
    file: String,
    text: MetadataText,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MetadataText {
    #[serde(default)]
    table_uuid: Option<String>,
    #[serde(default)]
    current_snapshot_id: Option<i64>,
    #[serde(default)]
    snapshots: Vec<SnapshotText>,
    #[serde(default)]
    current_schema_id: Option<i32>,
    #[serde(default)]
    schemas: Vec<SchemaText>,
    /// The only schema, in version 1.
    #[serde(default)]
    schema: Option<SchemaText>,
    #[serde(default)]
    partition_specs: Vec<SpecText>,
    /// The only partition spec, in version 1.
    #[serde(default)]
    partition_spec: Option<Vec<PartitionFieldText>>,
    #[serde(default)]
    properties: HashMap<String, String>,
}

/// What is read before the rest, whose form depends on it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct VersionText {
    format_version: i64,
}

/// A snapshot of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SnapshotText {
    pub snapshot_id: i64,
    #[serde(default)]
    manifest_list: Option<String>,
    #[serde(default)]
    schema_id: Option<i32>,
    /// The key of an encrypted manifest list, in version 3.
    #[serde(default)]
    key_id: Option<String>,
}

// === impl TableMetadata ===

impl TableMetadata {
    /// Parses a metadata file, which may be compressed.
    pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Self, LakeError> {
        let corrupt = |reason: &dyn std::fmt::Display| {
            LakeError::Corrupt(format!("\"{file}\" is not the metadata of an Iceberg table: {reason}"))
        };
        let bytes = uncompressed(bytes).map_err(|source| corrupt(&source))?;
        let version: VersionText = serde_json::from_slice(&bytes).map_err(|source| corrupt(&source))?;
        if !VERSIONS.contains(&version.format_version) {
            return Err(LakeError::Unsupported(format!(
                "\"{file}\" has format version {}; versions {} to {} are supported",
                version.format_version,
                VERSIONS.start(),
                VERSIONS.end()
            )));
        }
        let text: MetadataText = serde_json::from_slice(&bytes).map_err(|source| corrupt(&source))?;
        if text.properties.contains_key(ENCRYPTION_KEY) {
            return Err(LakeError::Unsupported(format!("the table is encrypted (property {ENCRYPTION_KEY})")));
        }
        Ok(Self { file: file.to_owned(), text })
    }

    /// Identifies the table and all of its metadata, besides the snapshot, that decides how files are read.
    pub(super) fn id(&self, schema: &SchemaText) -> String {
        let names = self.text.properties.get(NAME_MAPPING).map_or("", String::as_str);
        format!("{}\n{}\n{names}", self.text.table_uuid.as_deref().unwrap_or(&self.file), schema.schema_id)
    }

    /// The current snapshot, or the one of an ID.
    pub(super) fn snapshot(&self, id: Option<i64>) -> Result<&SnapshotText, LakeError> {
        // Version 1 writes -1 for a table without snapshots.
        let wanted = id.or(self.text.current_snapshot_id.filter(|id| *id >= 0)).ok_or_else(|| {
            LakeError::NoVersion(format!("\"{}\" has no current snapshot: no rows were written yet", self.file))
        })?;
        let found = self.text.snapshots.iter().find(|snapshot| snapshot.snapshot_id == wanted);
        let found = found.ok_or_else(|| match (id, self.text.snapshots.last()) {
            (Some(_), Some(last)) => LakeError::NoVersion(format!(
                "\"{}\" has no snapshot {wanted}, which may have been expired: it has {}, the latest is {}",
                self.file,
                self.text.snapshots.len(),
                last.snapshot_id
            )),
            (Some(_), None) => LakeError::NoVersion(format!("\"{}\" has no snapshots", self.file)),
            (None, _) => LakeError::Corrupt(format!("\"{}\" does not have its current snapshot, {wanted}", self.file)),
        })?;
        match &found.key_id {
            Some(_) => Err(LakeError::Unsupported(format!("the manifest list of snapshot {wanted} is encrypted"))),
            None => Ok(found),
        }
    }

    /// The URL of the manifest list of a snapshot.
    pub(super) fn manifest_list<'a>(&self, snapshot: &'a SnapshotText) -> Result<&'a str, LakeError> {
        snapshot.manifest_list.as_deref().ok_or_else(|| {
            LakeError::Unsupported(format!(
                "snapshot {} in \"{}\" has no manifest list, as early writers of version 1 left it: write to the table \
                 with a current release of Iceberg",
                snapshot.snapshot_id, self.file
            ))
        })
    }

    /// The schema of a snapshot: that of its time if `is_pinned`, else the table's current one.
    pub(super) fn schema(&self, snapshot: &SnapshotText, is_pinned: bool) -> Result<&SchemaText, LakeError> {
        let of_its_time = snapshot.schema_id.filter(|_| is_pinned);
        let found = match of_its_time.or(self.text.current_schema_id) {
            None => self.text.schema.as_ref().or(self.text.schemas.first()),
            Some(id) => {
                let single = self.text.schema.as_ref().filter(|_| self.text.schemas.is_empty());
                self.text.schemas.iter().find(|schema| schema.schema_id == id).or(single)
            }
        };
        found.ok_or_else(|| {
            LakeError::Corrupt(format!("\"{}\" lacks the schema of snapshot {}", self.file, snapshot.snapshot_id))
        })
    }

    /// The column of an ID in the current schema or, if it was dropped, in the last one that had it.
    pub(super) fn field(&self, id: i32) -> Option<&FieldText> {
        let MetadataText { schemas, schema: single, current_schema_id, .. } = &self.text;
        let current = schemas.iter().find(|schema| Some(schema.schema_id) == *current_schema_id);
        let known = current.into_iter().chain(schemas.iter().rev()).chain(single);
        known.flat_map(|schema| &schema.fields).find(|field| field.id == id)
    }

    /// The partition spec of an ID.
    pub(super) fn spec(&self, id: i32) -> Result<&[PartitionFieldText], LakeError> {
        let found = self.text.partition_specs.iter().find(|spec| spec.spec_id == id).map(|spec| spec.fields.as_slice());
        let single = self.text.partition_spec.as_deref().filter(|_| self.text.partition_specs.is_empty());
        found.or(single).ok_or_else(|| LakeError::Corrupt(format!("\"{}\" lacks partition spec {id}", self.file)))
    }

    /// The names of columns in files without field IDs.
    pub(super) fn names(&self) -> Result<Option<NameMapping>, LakeError> {
        let Some(text) = self.text.properties.get(NAME_MAPPING) else { return Ok(None) };
        let parsed = NameMapping::parse(text);
        parsed.map(Some).map_err(|reason| LakeError::Corrupt(format!("table property {NAME_MAPPING}: {reason}")))
    }
}

fn uncompressed(bytes: &[u8]) -> Result<std::borrow::Cow<'_, [u8]>, String> {
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes.into());
    }
    let mut text = Vec::new();
    let mut reader = MultiGzDecoder::new(bytes).take(METADATA_BYTES_MAX + 1);
    reader.read_to_end(&mut text).map_err(|source| source.to_string())?;
    if text.len() as u64 > METADATA_BYTES_MAX {
        return Err(format!("it has more than {METADATA_BYTES_MAX} bytes uncompressed, which is the limit"));
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const TABLE: &str = r#"{"format-version": 2, "current-snapshot-id": 20, "current-schema-id": 1,
        "snapshots": [{"snapshot-id": 10, "schema-id": 0, "manifest-list": "s3://b/l"}, {"snapshot-id": 20}],
        "schemas": [{"schema-id": 0, "fields": []}, {"schema-id": 1, "fields": []}],
        "partition-specs": [{"spec-id": 0, "fields": []}], "properties": {}}"#;

    fn parsed(text: &str) -> Result<TableMetadata, LakeError> {
        TableMetadata::parse("m.json", text.as_bytes())
    }

    #[test]
    fn snapshots_have_the_schema_of_their_time() {
        let table = parsed(TABLE).unwrap();
        let schema = |id: Option<i64>| {
            let snapshot = table.snapshot(id).unwrap();
            (snapshot.snapshot_id, table.schema(snapshot, id.is_some()).unwrap().schema_id)
        };
        assert_eq!((schema(None), schema(Some(10)), schema(Some(20))), ((20, 1), (10, 0), (20, 1)));
        assert_eq!(table.manifest_list(table.snapshot(Some(10)).unwrap()).unwrap(), "s3://b/l");
        assert!(matches!(table.manifest_list(table.snapshot(None).unwrap()), Err(LakeError::Unsupported(_))));
        let missing = table.snapshot(Some(11)).unwrap_err().to_string();
        assert!(missing.contains("no snapshot 11") && missing.contains("the latest is 20"), "{missing}");
        assert!(matches!(table.spec(1), Err(LakeError::Corrupt(_))));
    }

    #[test]
    fn version_1_has_one_schema_and_one_spec() {
        let text = r#"{"format-version": 1, "current-snapshot-id": -1, "schema": {"fields": []},
            "partition-spec": [{"source-id": 1, "transform": "identity", "name": "x"}]}"#;
        let table = parsed(text).unwrap();
        assert!(matches!(table.snapshot(None), Err(LakeError::NoVersion(_))));
        assert_eq!(table.spec(0).unwrap().len(), 1);
        let snapshot = SnapshotText { snapshot_id: 1, manifest_list: None, schema_id: None, key_id: None };
        assert_eq!(table.schema(&snapshot, true).unwrap().fields.len(), 0);
    }

    #[test]
    fn gzip_is_recognized() {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(TABLE.as_bytes()).unwrap();
        assert!(TableMetadata::parse("m", &writer.finish().unwrap()).is_ok());
        assert!(matches!(TableMetadata::parse("m", &[0x1f, 0x8b, 8, 0]), Err(LakeError::Corrupt(_))));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, word) in [
            ("", "m.json\" is not the metadata"),
            ("{}", "format-version"),
            (r#"{"format-version": 4}"#, "has format version 4; versions 1 to 3"),
            (r#"{"format-version": 2, "snapshots": [{}]}"#, "snapshot-id"),
            (r#"{"format-version": 2, "properties": {"encryption.key-id": "k"}}"#, "encrypted"),
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let table = parsed(r#"{"format-version": 2, "properties": {"schema.name-mapping.default": "["}}"#).unwrap();
        assert!(table.names().unwrap_err().to_string().contains("schema.name-mapping.default"));
    }
}

//! Tables in memory, written by hand as the Iceberg specification describes them.

use std::sync::Arc;

use apache_avro::{Schema, Writer, types::Value};
use object_store::{ObjectStoreExt, memory::InMemory};
use serde_json::json;

use super::*;
use crate::{
    folders::TableFolders,
    table::{Column, ColumnKey, FilePath, LogValue},
};

const LIST_SCHEMA: &str = r#"{"type": "record", "name": "manifest_file", "fields": [
    {"name": "manifest_path", "type": "string", "field-id": 500}, {"name": "manifest_length", "type": "long"},
    {"name": "partition_spec_id", "type": "int"}, {"name": "content", "type": "int"},
    {"name": "sequence_number", "type": "long"}, {"name": "added_files_count", "type": "int"},
    {"name": "existing_files_count", "type": "int"},
    {"name": "key_metadata", "type": ["null", "bytes"], "default": null}]}"#;

fn manifest_schema(partition: &str) -> String {
    let counts = r#"["null", {"type": "array", "logicalType": "map", "items": {"type": "record", "name": "k119_v120",
        "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "long"}]}}]"#;
    format!(
        r#"{{"type": "record", "name": "manifest_entry", "fields": [
            {{"name": "status", "type": "int", "field-id": 0}},
            {{"name": "sequence_number", "type": ["null", "long"], "default": null}},
            {{"name": "data_file", "type": {{"type": "record", "name": "r2", "fields": [
                {{"name": "content", "type": "int"}}, {{"name": "file_path", "type": "string"}},
                {{"name": "file_format", "type": "string"}},
                {{"name": "partition", "type": {{"type": "record", "name": "r102", "fields": [{partition}]}}}},
                {{"name": "record_count", "type": "long"}}, {{"name": "file_size_in_bytes", "type": "long"}},
                {{"name": "value_counts", "type": {counts}, "default": null}}]}}}}]}}"#
    )
}

fn avro(schema: &str, records: Vec<Vec<(&str, Value)>>) -> Vec<u8> {
    let schema = Schema::parse_str(schema).unwrap();
    let codec = apache_avro::Codec::Deflate(apache_avro::DeflateSettings::default());
    let mut writer = Writer::with_codec(&schema, Vec::new(), codec).unwrap();
    for record in records {
        let fields = record.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        writer.append_value(Value::Record(fields)).unwrap();
    }
    writer.into_inner().unwrap()
}

/// A data file: its name, status, sequence number and partition values.
type EntryText<'a> = (&'a str, i32, Option<i64>, Vec<(&'a str, Value)>);

fn manifest(partition: &str, entries: Vec<EntryText<'_>>) -> Vec<u8> {
    let record = |(name, status, sequence, partition): EntryText<'_>| {
        let union = |index, value| Value::Union(index, Box::new(value));
        let partition = partition.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let file = [
            ("content", Value::Int(0)),
            ("file_path", Value::String(format!("s3://b/t/data/{name}"))),
            ("file_format", Value::String("PARQUET".to_owned())),
            ("partition", Value::Record(partition)),
            ("record_count", Value::Long(3)),
            ("file_size_in_bytes", Value::Long(100)),
            ("value_counts", union(0, Value::Null)),
        ];
        vec![
            ("status", Value::Int(status)),
            ("sequence_number", sequence.map_or(union(0, Value::Null), |number| union(1, Value::Long(number)))),
            ("data_file", Value::Record(file.map(|(name, value)| (name.to_owned(), value)).to_vec())),
        ]
    };
    avro(&manifest_schema(partition), entries.into_iter().map(record).collect())
}

/// A manifest in the list: its name, bytes, spec and number of live files.
fn list(manifests: &[(&str, usize, i32, i32)]) -> Vec<u8> {
    let record = |(name, bytes, spec, live): &(&str, usize, i32, i32)| {
        vec![
            ("manifest_path", Value::String(format!("s3://b/t/metadata/{name}"))),
            ("manifest_length", Value::Long(*bytes as i64)),
            ("partition_spec_id", Value::Int(*spec)),
            ("content", Value::Int(0)),
            ("sequence_number", Value::Long(7)),
            ("added_files_count", Value::Int(*live)),
            ("existing_files_count", Value::Int(0)),
            ("key_metadata", Value::Union(0, Box::new(Value::Null))),
        ]
    };
    avro(LIST_SCHEMA, manifests.iter().map(record).collect())
}

fn metadata() -> serde_json::Value {
    let field = |id: i32, name: &str, kind: &str| json!({"id": id, "name": name, "required": false, "type": kind});
    let partition = |source: i32, transform: &str| json!({"source-id": source, "field-id": 1000, "transform": transform, "name": "p"});
    json!({"format-version": 2, "current-snapshot-id": 5, "current-schema-id": 1,
        "schemas": [{"schema-id": 0, "fields": [field(1, "a", "int"), field(2, "day", "date")]},
                    {"schema-id": 1, "fields": [field(2, "d", "date"), field(1, "a", "long"), field(3, "x", "float")]}],
        "partition-specs": [{"spec-id": 0, "fields": []}, {"spec-id": 1, "fields": [partition(2, "identity")]},
                            {"spec-id": 2, "fields": [partition(1, "bucket[4]")]}],
        "snapshots": [{"snapshot-id": 4, "schema-id": 0, "manifest-list": "s3://b/t/metadata/l"},
                      {"snapshot-id": 5, "schema-id": 1, "manifest-list": "s3a://b/t/metadata/l"}]})
}

async fn opened(files: &[(&str, Vec<u8>)], snapshot: Option<i64>) -> Result<LakeTable, LakeError> {
    let client = Arc::new(InMemory::new());
    let text = metadata().to_string().into_bytes();
    for (name, bytes) in files.iter().chain(&[("00001-x.metadata.json", text)]) {
        client.put(&Path::from(format!("t/metadata/{name}")), bytes.clone().into()).await.unwrap();
    }
    let folders = TableFolders::of(Path::from("t"));
    let store = TableStore { client, url: "s3://b/".to_owned(), folders, record: |_, _, _| () };
    match read(store, IcebergRequest { metadata: None, snapshot }, &[]).await? {
        TableLog::Version(table, _) => Ok(table),
        TableLog::Known(index) => panic!("no version is known, but {index}"),
    }
}

const DAY: &str = r#"{"name": "p", "type": ["null", {"type": "int", "logicalType": "date"}], "default": null}"#;

fn by_day() -> Vec<u8> {
    let day = |value: Value| vec![("p", value)];
    let entries = vec![
        ("b", 1, None, day(Value::Union(1, Box::new(Value::Date(19_782))))),
        ("gone", 2, Some(1), day(Value::Union(0, Box::new(Value::Null)))),
        ("a", 0, Some(2), day(Value::Union(0, Box::new(Value::Null)))),
    ];
    manifest(DAY, entries)
}

fn unpartitioned() -> Vec<u8> {
    manifest("", vec![("c", 1, None, Vec::new())])
}

#[tokio::test]
async fn a_snapshot_has_the_live_files_of_its_manifests() {
    let bytes = by_day();
    let list = list(&[("m", bytes.len(), 1, 2)]);
    let table = opened(&[("m", bytes), ("l", list)], None).await.unwrap();
    assert_eq!((table.version.as_str(), table.partition_columns), ("5", vec!["d".to_owned()]));
    let name = |column: &Column| (column.field.name().clone(), column.stored.key.clone());
    let want = [("d", 2), ("a", 1), ("x", 3)].map(|(name, id)| (name.to_owned(), ColumnKey::Id(id)));
    assert_eq!(table.columns.iter().map(name).collect::<Vec<_>>(), want);
    let file = |name: &str, day: Option<&str>| TableFile {
        path: FilePath::Relative(format!("data/{name}")),
        bytes: 100,
        rows: Some(3),
        partition_values: vec![day.map(str::to_owned)],
        if_missing: Vec::new(),
        deleted: Vec::new(),
    };
    assert_eq!(table.files, [file("a", None), file("b", Some("2024-02-29"))]);
}

#[tokio::test]
async fn a_pinned_snapshot_has_its_own_schema() {
    let bytes = unpartitioned();
    let list = list(&[("m", bytes.len(), 0, 1)]);
    let table = opened(&[("m", bytes), ("l", list)], Some(4)).await.unwrap();
    let names: Vec<&str> = table.columns.iter().map(|column| column.field.name().as_str()).collect();
    assert_eq!((table.version.as_str(), names), ("4", vec!["a", "day"]));
    assert_eq!(table.files.len(), 1);
}

#[tokio::test]
async fn columns_that_only_some_specs_partition_by_are_read_from_files() {
    let (first, second) = (by_day(), unpartitioned());
    let list = list(&[("m", first.len(), 1, 2), ("n", second.len(), 0, 1)]);
    let table = opened(&[("m", first), ("n", second), ("l", list)], None).await.unwrap();
    assert!(table.partition_columns.is_empty());
    let values: Vec<&[(usize, LogValue)]> = table.files.iter().map(|file| file.if_missing.as_slice()).collect();
    let day = |text: Option<&str>| (0, LogValue::Text(text.map(str::to_owned)));
    assert_eq!(values, [&[day(None)][..], &[day(Some("2024-02-29"))], &[]]);
}

#[tokio::test]
async fn manifests_that_disagree_with_their_list_are_refused() {
    let bytes = by_day();
    let size = bytes.len();
    let truncated = bytes[..size - 20].to_vec();
    let mut damaged = bytes.clone();
    damaged[size - 40] ^= 0x55;
    for (bytes, entry, word) in [
        (bytes.clone(), ("m", size + 1, 1, 2), "but the manifest list says"),
        (bytes.clone(), ("m", size, 1, 3), "it has 2 files, but the manifest list says 3"),
        (bytes.clone(), ("m", size, 0, 2), "has 1 partition values, but its partition spec has 0 fields"),
        (bytes.clone(), ("m", size, 9, 2), "lacks partition spec 9"),
        (truncated, ("m", size - 20, 1, 2), "manifest \"s3://b/t/metadata/m\""),
        (damaged, ("m", size, 1, 2), "manifest \"s3://b/t/metadata/m\""),
        (b"[]".to_vec(), ("m", 2, 1, 2), "manifest \"s3://b/t/metadata/m\""),
    ] {
        let error = opened(&[("m", bytes), ("l", list(&[entry]))], None).await.unwrap_err();
        assert!(matches!(&error, LakeError::Corrupt(text) if text.contains(word)), "{word}: {error}");
    }
    let missing = opened(&[("l", list(&[("none", size, 1, 2)]))], None).await.unwrap_err();
    let word = "there is no \"s3://b/t/metadata/none\", which snapshot 5 of";
    assert!(matches!(&missing, LakeError::Gone(text) if text.contains(word)), "{missing}");
    let twice = unpartitioned();
    let list = list(&[("m", twice.len(), 0, 1), ("m", twice.len(), 0, 1)]);
    let error = opened(&[("m", twice), ("l", list)], None).await.unwrap_err().to_string();
    assert!(error.contains("two manifest entries name the data file \"s3://b/t/data/c\""), "{error}");
}

//! Writes the binary seeds of the corpora: `cargo run -p forebay-fuzz --features seeds --example seeds`.
//!
//! Text seeds are written by hand. Commands and tickets in JSON are the sources of their protobuf versions.

#![expect(clippy::unwrap_used, reason = "the program stops at the first failure")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{
        ArrayRef, BooleanArray, DictionaryArray, FixedSizeBinaryArray, Float64Array, Int64Array, ListArray,
        RecordBatch, StringArray,
    },
    datatypes::{Int32Type, Int64Type},
};
use arrow_flight::{FlightData, FlightDescriptor, encode::FlightDataEncoderBuilder};
use arrow_ipc::{CompressionType, writer::IpcWriteOptions};
use forebay_proto::{Encoding, Message, v1};
use futures::{TryStreamExt, executor::block_on};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, Encoding as PageEncoding},
    file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion},
    schema::types::ColumnPath,
};
use prost::Message as _;

fn main() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    protobuf_versions(&corpus);
    plans(&corpus.join("plan"));
    parquet_files(&corpus.join("parquet"));
    exchanges(&corpus.join("exchange"));
}

// === Tickets and commands ===

/// Writes the protobuf version of every JSON seed.
fn protobuf_versions(corpus: &Path) {
    for path in json_files(&corpus.join("ticket")) {
        let bytes = [b"FBT1".as_slice(), &as_protobuf::<v1::Ticket>(&fs::read(&path).unwrap())].concat();
        fs::write(path.with_extension("bin"), bytes).unwrap();
    }
    for path in json_files(&corpus.join("command")) {
        let text = fs::read_to_string(&path).unwrap();
        let (call, body) = text.split_once('\n').unwrap();
        let body = match call {
            "describe" => as_protobuf::<v1::DescribeRequest>(body.as_bytes()),
            "fit" => as_protobuf::<v1::FitRequest>(body.as_bytes()),
            "replay" => as_protobuf::<v1::ReplayRequest>(body.as_bytes()),
            "plans" => as_protobuf::<v1::PlansRequest>(body.as_bytes()),
            "remove_plan" => as_protobuf::<v1::RemovePlanRequest>(body.as_bytes()),
            "show" => as_protobuf::<v1::ShowRequest>(body.as_bytes()),
            "take" => as_protobuf::<v1::TakeRequest>(body.as_bytes()),
            _ => as_protobuf::<v1::StreamRequest>(body.as_bytes()),
        };
        fs::write(path.with_extension("bin"), [call.as_bytes(), b"\n", &body].concat()).unwrap();
    }
}

fn json_files(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "json")).collect()
}

fn as_protobuf<M: Message>(json: &[u8]) -> Vec<u8> {
    forebay_proto::encode(&forebay_proto::decode::<M>(json).unwrap().0, Encoding::Protobuf)
}

// === Plans ===

/// For every op, choices of a plan (see `src/plan/`) with it alone over a column of each kind. Where the bytes end, each
/// further choice is the first one: a field is set, to 0 or 1.
fn plans(directory: &Path) {
    const REQUEST: [u8; 9] = [1, 0, 0, 0, 0, 0, 1, 0, 0];
    const NO_DTYPE: u8 = 9;
    let ops = forebay_proto::descriptor::<v1::Op>().unwrap();
    for (index, op) in ops.fields().enumerate() {
        for (kind, column) in [("number", 3), ("text", 5), ("list", 10)] {
            // One output of one part of one column: one op.
            let output = [0, NO_DTYPE, 0, 0, column, 1, u8::try_from(index).unwrap()];
            fs::write(directory.join(format!("{}_{kind}", op.name())), [REQUEST.as_slice(), &output].concat()).unwrap();
        }
    }
}

// === Parquet ===

fn table(rows: i64) -> RecordBatch {
    let lists = (0..rows).map(|row| (row % 3 != 0).then(move || (0..row % 4).map(move |item| Some(item * row))));
    let texts: StringArray = (0..rows).map(|row| (row % 4 != 1).then(|| format!("text {}", row % 5))).collect();
    let columns: [(&str, ArrayRef); 5] = [
        ("n", Arc::new((0..rows).map(|row| Some(row * row)).collect::<Int64Array>())),
        ("x", Arc::new((0..rows).map(|row| (row % 2 == 0).then_some(row as f64 / 3.0)).collect::<Float64Array>())),
        ("text", Arc::new(texts)),
        ("flag", Arc::new((0..rows).map(|row| Some(row % 3 == 0)).collect::<BooleanArray>())),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, values)| (name, values, true))).unwrap()
}

fn parquet_files(directory: &Path) {
    let properties = || WriterProperties::builder().set_statistics_enabled(EnabledStatistics::Chunk);
    let write = |name: &str, batch: &RecordBatch, properties: WriterPropertiesBuilder| {
        let file = fs::File::create(directory.join(format!("arrow_rs_{name}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
    };
    let codecs = [
        ("snappy", Compression::SNAPPY),
        ("gzip", Compression::GZIP(Default::default())),
        ("zstd", Compression::ZSTD(Default::default())),
        ("lz4_raw", Compression::LZ4_RAW),
        ("brotli", Compression::BROTLI(Default::default())),
    ];
    for (name, codec) in codecs {
        write(name, &table(40), properties().set_compression(codec));
    }
    let v2 = || properties().set_writer_version(WriterVersion::PARQUET_2_0).set_dictionary_enabled(false);
    write("v1", &table(40), properties().set_dictionary_enabled(false));
    write("v2", &table(40), v2());
    write("groups", &table(40), v2().set_max_row_group_row_count(Some(9)).set_data_page_row_count_limit(3));
    let of = |column: &str| ColumnPath::from(column);
    let encoded = |number, text| {
        let chosen = v2().set_column_encoding(of("n"), number).set_column_encoding(of("text"), text);
        chosen.set_column_encoding(of("x"), PageEncoding::BYTE_STREAM_SPLIT)
    };
    write("delta", &table(40), encoded(PageEncoding::DELTA_BINARY_PACKED, PageEncoding::DELTA_BYTE_ARRAY));
    write("delta_length", &table(40), encoded(PageEncoding::BYTE_STREAM_SPLIT, PageEncoding::DELTA_LENGTH_BYTE_ARRAY));
    let fixed = FixedSizeBinaryArray::try_from_iter([b"abcd", b"efgh"].into_iter()).unwrap();
    let keyed: DictionaryArray<Int32Type> = ["a", "b"].into_iter().collect();
    let odd = [("fixed", Arc::new(fixed) as ArrayRef), ("keyed", Arc::new(keyed) as ArrayRef)];
    write("odd", &RecordBatch::try_from_iter(odd).unwrap(), properties().set_bloom_filter_enabled(true));
    write("no_rows", &table(0), properties());
}

// === Exchanges ===

/// Batches and a plan, as gRPC frames.
fn exchanges(directory: &Path) {
    let plan = r#"{"plan":{"filter":"id <> 2","derive":[{"name":"half","expr":"x / 2"}],"outputs":[
        {"name":"dense","parts":[{"columns":["x","half"],"ops":[{"fill_null":{"value":0}},{"clip":{"min":-3}}]}]},
        {"name":"kind","dtype":"INT64",
         "parts":[{"columns":["kind"],"ops":[{"fill_null":{"text":""}},{"hash_bucket":{"buckets":10}}]}]},
        {"name":"ids","dtype":"AS_STORED","parts":[{"columns":["ids"]}]},
        {"name":"name","dtype":"AS_STORED","parts":[{"columns":["name"]}]}]}}"#;
    for (name, options) in [
        ("plain", IpcWriteOptions::default()),
        ("lz4", IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap()),
        ("zstd", IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD)).unwrap()),
    ] {
        let messages = encoded(vec![batch(0..4), batch(4..6), batch(6..6)], options, plan);
        fs::write(directory.join(name), framed(&messages)).unwrap();
    }
    let twice = encoded(vec![batch(0..3)], IpcWriteOptions::default(), plan);
    fs::write(directory.join("second_schema"), framed(&[twice.clone(), twice.clone()].concat())).unwrap();
    fs::write(directory.join("no_descriptor"), framed(&twice[1..])).unwrap();
    fs::write(directory.join("cut"), &framed(&twice)[..100]).unwrap();
    let id = encoded(vec![batch(0..3)], IpcWriteOptions::default(), r#"{"plan_id":"5f1c"}"#);
    fs::write(directory.join("plan_id"), framed(&id)).unwrap();
    let metadata = FlightData { app_metadata: b"only metadata".as_slice().into(), ..FlightData::default() };
    fs::write(directory.join("metadata"), framed(&[vec![twice[0].clone(), metadata], twice[1..].to_vec()].concat()))
        .unwrap();
}

fn batch(rows: std::ops::Range<i64>) -> RecordBatch {
    let lists = rows.clone().map(|row| Some((0..row % 3).map(Some)));
    let kinds: DictionaryArray<Int32Type> =
        rows.clone().map(|row| ["a", "b", "c"].get(row as usize % 3).copied()).collect();
    let columns: [(&str, ArrayRef); 6] = [
        ("id", Arc::new(rows.clone().map(Some).collect::<Int64Array>())),
        ("x", Arc::new(rows.clone().map(|row| (row != 1).then_some(row as f64)).collect::<Float64Array>())),
        ("kind", Arc::new(kinds)),
        ("ids", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))),
        ("name", Arc::new(rows.clone().map(|row| (row != 0).then(|| format!("käse {row}"))).collect::<StringArray>())),
        ("unused", Arc::new(rows.map(|row| Some(row % 2 == 0)).collect::<BooleanArray>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, values)| (name, values, true))).unwrap()
}

fn encoded(batches: Vec<RecordBatch>, options: IpcWriteOptions, command: &str) -> Vec<FlightData> {
    let stream = futures::stream::iter(batches.into_iter().map(Ok));
    let encoder = FlightDataEncoderBuilder::new()
        .with_options(options)
        .with_flight_descriptor(Some(FlightDescriptor::new_cmd(command.to_owned())))
        .with_dictionary_handling(arrow_flight::encode::DictionaryHandling::Resend);
    block_on(encoder.build(stream).try_collect()).unwrap()
}

/// Messages as gRPC frames: a flag, a length, the message.
fn framed(messages: &[FlightData]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        let message = message.encode_to_vec();
        bytes.push(0);
        bytes.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        bytes.extend(message);
    }
    bytes
}

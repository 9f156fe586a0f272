//! Whole Parquet files, read as stored and through plans.

use std::fs;

use arrow::datatypes::{DataType, Field, Schema};
use arrow_flight::FlightDescriptor;
use forebay_proto::v1::{self, op::Op};

use crate::server::{Process, Server, exclusive, local};

/// Columns that a plan reads.
const COLUMNS_MAX: usize = 8;

/// The bytes are the only file of a dataset.
///
/// # Panics
/// If an invariant is violated, as every target does.
pub fn parquet(data: &[u8]) {
    let _exclusive = exclusive();
    let directory = Process::get().fresh("parquet");
    fs::write(directory.join("x.parquet"), data).expect("write a file");
    let server = Server::over("t", local(&directory));
    let Ok(info) = server.info(&FlightDescriptor::new_path(vec!["t".to_owned()])) else { return };
    server.get_first_and_last(&info);
    let schema = info.try_decode_schema().expect("a valid schema");
    read(&server, stored(&schema), false);
    read(&server, filtered(&schema), true);
    for field in schema.fields().iter().take(COLUMNS_MAX) {
        read(&server, computed(field), true);
    }
}

fn read(server: &Server, plan: v1::Plan, shuffle: bool) {
    let request = v1::StreamRequest {
        dataset: "t".to_owned(),
        plan: Some(plan),
        batch_size: Some(16),
        shuffle,
        with_row_ids: true,
        ..v1::StreamRequest::default()
    };
    if let Ok(info) = server.stream_info(&request) {
        server.get_first_and_last(&info);
    }
}

/// Columns as stored.
fn stored(schema: &Schema) -> v1::Plan {
    let outputs = schema.fields().iter().take(COLUMNS_MAX).map(|field| output(field, v1::DType::AsStored, Vec::new()));
    v1::Plan { outputs: outputs.collect(), ..v1::Plan::default() }
}

/// Columns as stored under a filter, which reads statistics.
fn filtered(schema: &Schema) -> v1::Plan {
    let quoted = |field: &Field| format!("\"{}\"", field.name().replace('"', "\"\""));
    let tests = schema.fields().iter().take(COLUMNS_MAX).map(|field| match field.data_type() {
        data_type if data_type.is_numeric() => format!("{} > 3", quoted(field)),
        DataType::Utf8 => format!("{} > 'b'", quoted(field)),
        _ => format!("{} IS NOT NULL", quoted(field)),
    });
    v1::Plan { filter: tests.collect::<Vec<_>>().join(" OR "), ..stored(schema) }
}

/// A column through ops for its type.
fn computed(field: &Field) -> v1::Plan {
    let zero = || Op::FillNull(v1::FillNull { fill: Some(v1::fill_null::Fill::Value(0.0)) });
    let hash = || Op::HashBucket(v1::HashBucket { buckets: 100, seed: 1 });
    let (dtype, ops) = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(..) => {
            let text = v1::FillNull { fill: Some(v1::fill_null::Fill::Text(String::new())) };
            (v1::DType::Int64, vec![Op::FillNull(text), hash()])
        }
        DataType::List(_) | DataType::LargeList(_) => {
            (v1::DType::Float32, vec![Op::Pad(v1::Pad { n: 4, ..v1::Pad::default() }), zero()])
        }
        _ => (
            v1::DType::Float32,
            vec![zero(), Op::Clip(v1::Clip { min: Some(-10.0), max: Some(10.0), ..v1::Clip::default() })],
        ),
    };
    v1::Plan { outputs: vec![output(field, dtype, ops)], ..v1::Plan::default() }
}

fn output(field: &Field, dtype: v1::DType, ops: Vec<Op>) -> v1::Output {
    let ops = ops.into_iter().map(|op| v1::Op { op: Some(op) }).collect();
    let part = v1::Part { columns: vec![field.name().clone()], ops };
    v1::Output { name: field.name().clone(), dtype: Some(dtype.into()), parts: vec![part], ..v1::Output::default() }
}

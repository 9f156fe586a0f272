//! CPU time of each way from Parquet files to tensors, on one thread: reading and decompressing every page (the floor),
//! the Parquet library's arrays, this server's arrays, and both with the kernels after them.
//!
//! `target/release/scan-stages FOLDER [ROUNDS [STAGE]]` on the files that
//! `python -m harness.benches.criteo` writes. Prints one line of JSON per round.

#![expect(clippy::expect_used, reason = "a bench stops at the first error")]

use std::{collections::BTreeMap, env, fs, hint::black_box, path::PathBuf, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use bytes::Bytes;
use forebay_kernels::{BatchBuilder, Chain, DType, Fill, Op, OutputSpec, Program, Workspace};
use forebay_pages::{Codec, Column, ColumnChunk, ColumnReader, Form, Physical};
use parquet::{
    arrow::arrow_reader::ParquetRecordBatchReaderBuilder,
    file::{
        metadata::RowGroupMetaData,
        reader::{FileReader as _, SerializedFileReader},
    },
};

const CHUNK_ROWS: usize = 8192;
const BATCH_ROWS: usize = 8192;
const WINDOW_ROWS: u32 = 16_384;
const HASH_BUCKETS: u64 = 100_003;

fn cpu_ms() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

/// `dense` float32 [n, 13] of the float columns, `cats` int32 [n, 26] of the others but the label.
fn program(schema: &Schema) -> Arc<Program> {
    let of = |kind: fn(&DataType) -> bool| schema.fields().iter().filter(move |field| kind(field.data_type()));
    let dense = [
        Op::FillNull(Fill::Number(0.0)),
        Op::Log1p,
        Op::Standardize { mean: 0.9, std: 0.7 },
        Op::Clip { min: Some(-3.0), max: Some(3.0) },
    ];
    let hash = [Op::HashBucket { buckets: HASH_BUCKETS, seed: 0 }];
    let chain = |ops: &[Op]| {
        let ops = ops.to_vec();
        move |field: &Arc<Field>| Chain { column: field.name().clone(), ops: ops.clone() }
    };
    let dense = of(|kind| *kind == DataType::Float32).map(chain(&dense)).collect();
    let texts = of(|kind| matches!(kind, DataType::Utf8)).map(chain(&hash));
    let cats = texts.chain(of(|kind| *kind == DataType::Int64).map(chain(&hash))).collect();
    let outputs = [
        OutputSpec { name: "dense".into(), dtype: DType::Float32, chains: dense },
        OutputSpec { name: "cats".into(), dtype: DType::Int32, chains: cats },
    ];
    Arc::new(Program::compile(&outputs, schema).expect("the columns are criteo-shaped"))
}

/// Runs batches through the program.
struct Kernels {
    program: Arc<Program>,
    workspace: Workspace,
}

impl Kernels {
    fn run(&mut self, chunk: &RecordBatch) {
        let builder = BatchBuilder::new(Arc::clone(&self.program), BATCH_ROWS.min(chunk.num_rows()));
        let mut builder = builder.reuse(std::mem::take(&mut self.workspace));
        builder.append(chunk, 0..chunk.num_rows()).expect("the values are in range");
        let (batch, workspace) = builder.finish_and_keep();
        self.workspace = workspace;
        black_box(batch.expect("the batch is complete"));
    }
}

/// Shuffles batches within windows.
struct Shuffled {
    program: Arc<Program>,
    workspace: Workspace,
    places: Vec<u32>,
    window: Option<BatchBuilder>,
}

impl Shuffled {
    fn new(program: &Arc<Program>) -> Self {
        let mut places: Vec<u32> = (0..WINDOW_ROWS).collect();
        places.sort_by_key(|place| place.wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b));
        Self { program: Arc::clone(program), workspace: Workspace::default(), places, window: None }
    }

    fn run(&mut self, chunk: &RecordBatch) {
        let mut done = 0;
        while done < chunk.num_rows() {
            let window = self.window.get_or_insert_with(|| {
                let window = BatchBuilder::scattered(Arc::clone(&self.program), self.places.len());
                window.reuse(std::mem::take(&mut self.workspace))
            });
            let start = window.len();
            let rows = (chunk.num_rows() - done).min(self.places.len() - start);
            let places = &self.places[start..start + rows];
            window.scatter(chunk, done..done + rows, places).expect("the values are in range");
            done += rows;
            if let Some(window) = self.window.take_if(|window| window.is_full()) {
                let (batch, workspace) = window.finish_and_keep();
                self.workspace = workspace;
                black_box(batch.expect("the window is complete"));
            }
        }
    }
}

fn floor(file: &Bytes) {
    let reader = SerializedFileReader::new(file.clone()).expect("the file is Parquet");
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).expect("the row group exists");
        for column in 0..group.num_columns() {
            let mut pages = group.get_column_page_reader(column).expect("the column exists");
            while let Some(page) = pages.get_next_page().expect("the page is valid") {
                black_box(page.buffer().len());
            }
        }
    }
}

fn library(file: &Bytes, mut each: impl FnMut(&RecordBatch)) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(file.clone()).expect("the file is Parquet");
    for chunk in reader.with_batch_size(CHUNK_ROWS).build().expect("the columns are readable") {
        each(&chunk.expect("the pages are valid"));
    }
}

fn own(file: &Bytes, may_key: bool, mut each: impl FnMut(&RecordBatch)) {
    let reader = SerializedFileReader::new(file.clone()).expect("the file is Parquet");
    let builder = ParquetRecordBatchReaderBuilder::try_new(file.clone()).expect("the file is Parquet");
    let schema = SchemaRef::clone(builder.schema());
    for group in reader.metadata().row_groups() {
        let mut columns: Vec<ColumnReader> =
            (0..group.num_columns()).map(|at| open(file, group, &schema, at, may_key)).collect();
        let mut left = usize::try_from(group.num_rows()).expect("the rows are counted");
        while left > 0 {
            let rows = left.min(CHUNK_ROWS);
            let arrays: Vec<ArrayRef> =
                columns.iter_mut().map(|column| column.read(rows).expect("the pages are valid")).collect();
            let fields = schema
                .fields()
                .iter()
                .zip(&arrays)
                .map(|(field, array)| Arc::new(field.as_ref().clone().with_data_type(array.data_type().clone())));
            let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            each(&RecordBatch::try_new(schema, arrays).expect("the columns have equal lengths"));
            left -= rows;
        }
    }
}

fn open(file: &Bytes, group: &RowGroupMetaData, schema: &Schema, at: usize, may_key: bool) -> ColumnReader {
    let (chunk, data_type) = (group.column(at), schema.field(at).data_type().clone());
    let (start, length) = chunk.byte_range();
    let (physical, form) = match &data_type {
        DataType::Float32 => (Physical::Float, Form::Values),
        DataType::Int64 => (Physical::Int64, if may_key { Form::Keys } else { Form::Values }),
        DataType::Int8 => (Physical::Int32, Form::Values),
        _ => (Physical::ByteArray, Form::Keys),
    };
    let rows = usize::try_from(group.num_rows()).expect("the rows are counted");
    let column = Column { physical, codec: Codec::Zstd, is_optional: true, rows, data_type, form };
    let bytes = file.slice(start as usize..(start + length) as usize);
    ColumnChunk::open(&bytes, column).expect("the column is flat and its pages are of known encodings").reader()
}

fn main() {
    let mut arguments = env::args().skip(1);
    let folder = arguments.next().expect("a folder of Parquet files");
    let rounds: usize = arguments.next().map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let only = arguments.next();
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "parquet"));
    let files: Vec<Bytes> = paths.iter().map(|path| fs::read(path).expect("a readable file").into()).collect();
    let (mut rows, mut schema) = (0, None);
    library(&files[0], |chunk| {
        rows += chunk.num_rows();
        schema.get_or_insert_with(|| chunk.schema());
    });
    let rows = rows as f64 * files.len() as f64;
    let program = program(&schema.expect("the file has rows"));
    for _ in 0..rounds {
        let mut times = BTreeMap::new();
        let mut timed = |name: &'static str, work: &mut dyn FnMut(&Bytes)| {
            if only.as_ref().is_some_and(|only| only != name) {
                return;
            }
            let start = cpu_ms();
            files.iter().for_each(&mut *work);
            times.insert(name, ((cpu_ms() - start) / rows * 1e7).round() / 10.0);
        };
        let kernels = || Kernels { program: Arc::clone(&program), workspace: Workspace::default() };
        let mut computed = kernels();
        timed("floor", &mut |file| floor(file));
        timed("library", &mut |file| library(file, |chunk| _ = black_box(chunk.num_rows())));
        timed("library_and_kernels", &mut |file| library(file, |chunk| computed.run(chunk)));
        let mut computed = kernels();
        timed("own", &mut |file| own(file, true, |chunk| _ = black_box(chunk.num_rows())));
        timed("own_without_keyed_numbers", &mut |file| own(file, false, |chunk| _ = black_box(chunk.num_rows())));
        timed("own_and_kernels", &mut |file| own(file, true, |chunk| computed.run(chunk)));
        let mut shuffled = Shuffled::new(&program);
        timed("own_and_shuffled", &mut |file| own(file, true, |chunk| shuffled.run(chunk)));
        println!("{}", serde_json::to_string(&times).expect("numbers are JSON"));
    }
}

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

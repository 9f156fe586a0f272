//! Requests and replies. Ops have the names that plans use.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_kernels::{Chain, DType, Fill, Op, OutputSpec, VocabValues};
use serde::{Deserialize, Serialize};

use crate::clock::Times;

/// A request: an object with one key, the variant's name.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Reads an Arrow file of one record batch into memory as `table`.
    Load { table: String, path: PathBuf },
    /// Compiles an output over a table's columns as `work`.
    Prepare { work: String, table: String, batch_rows: usize, output: Output },
    /// Runs a work over the first `rows` of its table (default: all) and times each of `passes` passes.
    Run { work: String, passes: usize, rows: Option<usize> },
    /// Runs a work once and writes its batches to an Arrow file.
    Write { work: String, path: PathBuf },
    /// Copies the values of a table's columns into existing memory and times each of `passes` passes.
    Copy { table: String, passes: usize },
}

/// A reply.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Reply {
    Done {},
    Rows { rows: usize },
    Times(Times),
    Error { error: String },
}

/// An output in a request.
#[derive(Deserialize)]
pub(crate) struct Output {
    dtype: OutputType,
    chains: Vec<ChainText>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum OutputType {
    Float32,
    Int32,
    Int64,
}

#[derive(Deserialize)]
struct ChainText {
    column: String,
    ops: Vec<OpText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OpText {
    FillNull {
        value: f64,
    },
    Clip {
        min: f64,
        max: f64,
    },
    #[serde(rename = "log1p")]
    Log1p {},
    Standardize {
        mean: f64,
        std: f64,
    },
    Bucketize {
        boundaries: Vec<f64>,
    },
    Vocab {
        values: Vec<String>,
    },
    HashBucket {
        buckets: u64,
        seed: u64,
    },
    OneHot {
        size: u32,
    },
}

impl From<Output> for OutputSpec {
    fn from(output: Output) -> Self {
        let dtype = match output.dtype {
            OutputType::Float32 => DType::Float32,
            OutputType::Int32 => DType::Int32,
            OutputType::Int64 => DType::Int64,
        };
        let chain =
            |chain: ChainText| Chain { column: chain.column, ops: chain.ops.into_iter().map(Op::from).collect() };
        Self { name: "output".into(), dtype, chains: output.chains.into_iter().map(chain).collect() }
    }
}

impl From<OpText> for Op {
    fn from(op: OpText) -> Self {
        match op {
            OpText::FillNull { value } => Self::FillNull(Fill::Number(value)),
            OpText::Clip { min, max } => Self::Clip { min: Some(min), max: Some(max) },
            OpText::Log1p {} => Self::Log1p,
            OpText::Standardize { mean, std } => Self::Standardize { mean, std },
            OpText::Bucketize { boundaries } => Self::Bucketize { boundaries },
            OpText::Vocab { values } => Self::Vocab { values: Arc::new(VocabValues::Strings(values)), oov_buckets: 0 },
            OpText::HashBucket { buckets, seed } => Self::HashBucket { buckets, seed },
            OpText::OneHot { size } => Self::OneHot { size },
        }
    }
}

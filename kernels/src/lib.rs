//! Feature kernels: Arrow arrays in, output buffers out.
//!
//! [`Program::compile`] checks a plan's [`OutputSpec`]s, with all learned parameters filled in, against the types of
//! the input's columns, once per stream. A [`BatchBuilder`] then runs rows of record batches through the program into
//! the row-major buffers of one output batch, in order or scattered. An [`Interleave`] takes rows of several output
//! batches in turn. A [`Packer`] cuts lists of tokens into sequences of a fixed length, and a [`Windowing`] makes matrices of
//! consecutive rows. A [`HistoryOp`] computes values of a row from earlier ones. [`Prefix`] computes the values that a fit learns
//! from, and [`hash64`] the hashes of a column's values.
//!
//! This crate does not depend on gRPC, protobuf, files or DataFusion, and starts no threads, except that the feature
//! `cuda` compiles programs for the GPU in one. The same programs serve training and online serving, and are the oracle
//! of the GPU.
//!
//! Modules import in one direction: `ops` (one op per file) builds on `vector` (tiles and SIMD loops), `compile` on
//! `ops`, `execute` on both, and `cuda` on all of them, except that an op writes its own call with `cuda::writer`.
//! `program` and `prefix` are the entry points that use both `compile` and `execute`.
//!
//! ```
//! use std::sync::Arc;
//! use arrow::array::{ArrayRef, Float32Array, RecordBatch};
//! use forebay_kernels::{BatchBuilder, Chain, DType, Fill, Op, OutputSpec, Program};
//!
//! let delay: ArrayRef = Arc::new(Float32Array::from(vec![Some(3.0), None, Some(-1.0)]));
//! let table = RecordBatch::try_from_iter([("delay", delay)])?;
//! let ops = vec![Op::FillNull(Fill::Number(0.0)), Op::Clip { min: Some(0.0), max: None }];
//! let chains = vec![Chain { column: "delay".into(), ops }];
//! let dense = OutputSpec { name: "dense".into(), dtype: DType::Float32, chains };
//!
//! let program = Arc::new(Program::compile(&[dense], &table.schema())?);
//! let mut builder = BatchBuilder::new(program, 3);
//! builder.append(&table, 0..3)?;
//! let batch = builder.finish()?;
//! assert_eq!(batch["dense"].as_ref(), &Float32Array::from(vec![3.0, 0.0, 0.0]) as &dyn arrow::array::Array);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod compile;
#[cfg(feature = "cuda")]
pub mod cuda;
mod domain;
mod error;
mod execute;
mod history;
mod ops;
mod pack;
mod prefix;
mod program;
mod spec;
#[cfg(test)]
mod testing;
mod vector;
mod windows;

pub use compile::{chain_ops::FIXED_WIDTH_MAX, outputs::SHAPE_KEY, program::Program};
pub use error::{CompileError, KernelError, OpProblem};
pub use execute::{
    builder::BatchBuilder,
    canonical::compact,
    hash_values::{hash64, hash64_integer, is_hashable},
    interleave::Interleave,
    workspace::Workspace,
};
pub use history::{HistoryOp, rolling::RollingStat, values::SeriesRows};
pub use ops::{
    Op,
    as_of::{AsOf, TableTimes},
    encoding::{Encoding, Folds},
    exact_decimal::ExactDecimal,
    fill_null::Fill,
    group_scales::GroupScales,
    lookup::{LookupTable, TableKeys},
    nearest::{float32_of_decimals, float64_of_decimals},
    pad::Side,
    vocab::VocabValues,
};
pub use pack::{DOCUMENT_IDS, POSITION_IDS, Packer, Packing};
pub use prefix::Prefix;
pub use spec::{Chain, DType, MAX_COLUMNS, OutputSpec};
pub use vector::math::ln;
pub use windows::{PlacedWindow, WindowPart, Windowing};

//! What Forebay computes: Arrow arrays in, output buffers out.
//!
//! A plan's outputs arrive as [`OutputSpec`]s, checked and with everything learned filled in. [`Program::compile`] turns them
//! into a program against the columns' types, once a stream; a [`BatchBuilder`] then runs rows of record batches through it
//! into the row-major buffers of one output batch, in order or each at its own place; an [`Interleave`] takes rows of several such
//! batches in turn. [`Prefix`] gives a fit the values that the front of a chain produces.
//!
//! This crate knows nothing of gRPC, protobuf, files, threads or DataFusion: what it builds goes to the server's `stream` room,
//! which puts it on the wire. The same programs serve training, online serving and, as the oracle, the GPU.
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
mod ops;
mod prefix;
mod program;
mod spec;
#[cfg(test)]
mod testing;
mod vector;

pub use compile::program::Program;
pub use error::{CompileError, KernelError, OpProblem};
pub use execute::builder::BatchBuilder;
pub use execute::interleave::Interleave;
pub use execute::workspace::Workspace;
pub use ops::exact_decimal::ExactDecimal;
pub use ops::fill_null::Fill;
pub use ops::lookup::LookupTable;
pub use ops::op::Op;
pub use ops::vocab::VocabValues;
pub use prefix::Prefix;
pub use spec::{Chain, DType, MAX_COLUMNS, OutputSpec};

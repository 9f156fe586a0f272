//! Columns that are computed ahead of a plan's program: tensors of images, tokens of texts, results of Python functions.
//!
//! Each module takes columns, and divides them into jobs of the CPU pool, or of other processes, within the memory budget.
//! None has access to plans, datasets or rows.

#![forbid(unsafe_code)]

pub mod images;
pub mod tokenizers;
pub mod udf;

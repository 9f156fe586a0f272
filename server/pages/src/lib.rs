//! Column chunks of Parquet files, decoded to Arrow arrays.
//!
//! A [`ColumnReader`] reads the flat columns that training data consists of: numbers, booleans and texts. [`ColumnChunk::open`] parses the headers of all pages before it decompresses any byte, and
//! returns `None` for a chunk that it does not read; the Parquet library reads that one. Both give the same values, and
//! damaged bytes are an error of either.
//!
//! Three things make it faster than the library: a page is decompressed into a buffer that is reused, by a context that
//! is reused; bit-packed indices are unpacked in vector registers; and values that repeat stay indices into their
//! dictionary, so that a chain of ops computes each distinct value once.
//!
//! This crate does no I/O and starts no threads, and has no access to plans or files.
#![deny(unsafe_code)]

mod arrays;
mod booleans;
mod column;
mod decode;
mod decompress;
mod delta;
mod description;
mod dictionary;
mod error;
mod header;
mod indices;
mod keyed;
mod levels;
mod numbers;
mod page;
mod room;
mod runs;
mod spare;
mod spread;
mod texts;
pub mod thrift;
mod unpack;
mod unpacked;

pub use column::{ColumnChunk, ColumnReader};
pub use delta::{Deltas, bits};
pub use description::{Codec, Column, Form, Physical};
pub use error::PageError;
pub use header::{Encoding, PageHeader};
pub use room::{Held, Room};

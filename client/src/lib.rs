//! The Rust client of Forebay: ask a server for its datasets and epochs, and read batches that have been checked.
//!
//! ```no_run
//! # async fn example() -> forebay_client::Result<()> {
//! use forebay_client::{Client, StreamRequest};
//! use futures::TryStreamExt;
//!
//! let client = Client::connect("grpc://127.0.0.1:8815").await?;
//! let request = StreamRequest { dataset: "flights".into(), plan_id: "3f2a…".into(), ..Default::default() };
//! let epoch = client.stream_info(&request).await?;
//! let mut batches = client.read(&epoch.endpoints[0]).await?;
//! while let Some(batch) = batches.try_next().await? {
//!     println!("step {}: {} rows", batch.header.step, batch.data.num_rows());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The client computes nothing and keeps no state of a stream: a batch is an address, and any server can serve it.

#![forbid(unsafe_code)]

mod address;
mod batches;
mod client;
mod error;
mod plan_text;

pub use batches::{Batch, BatchStream};
pub use client::{Client, Endpoint, Epoch, Table};
pub use error::{Error, HeaderError, Result, code_name};
pub use forebay_proto::v1::{
    BatchHeader, DatasetInfo, FitProgress, FitResult, Plan, RankInfo, StreamInfo, StreamRequest,
};
pub use plan_text::plan_from_json;

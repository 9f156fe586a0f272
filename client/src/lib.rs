//! Rust client of Forebay: lists a server's datasets, plans epochs, and reads verified batches.
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
//! [`Replicas`] reads a rank's batches from several servers as one stream, which fails over between them. The stream's
//! [`Cursor`] is the position after the last batch; another run resumes from it:
//!
//! ```no_run
//! # async fn example(request: forebay_client::StreamRequest, saved: &str) -> forebay_client::Result<()> {
//! use forebay_client::{Cursor, Replicas};
//! use futures::TryStreamExt;
//!
//! let replicas = Replicas::new(["grpc://10.0.0.1:8815", "grpc://10.0.0.2:8815"])?;
//! let mut batches = replicas.open_at(&request, 0, &Cursor::from_json(saved)?).await?;
//! while let Some(batch) = batches.try_next().await? {
//!     println!("step {}; resume at {}", batch.header.step, batches.cursor().to_json());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Secured servers require [`Credentials`]:
//!
//! ```no_run
//! # async fn example(ca: Vec<u8>, token: &str) -> forebay_client::Result<()> {
//! use forebay_client::{Client, Credentials};
//!
//! let credentials = Credentials::default().with_ca(ca).with_token(token)?;
//! let client = Client::connect_with("grpc+tls://forebay.example:8815", &credentials).await?;
//! # Ok(())
//! # }
//! ```
//!
//! The client computes nothing: a request and a step determine a batch, and any replica can serve it.

#![forbid(unsafe_code)]

mod address;
mod batches;
mod client;
mod credentials;
mod cursor;
mod decode;
mod error;
mod exchange;
mod handshake;
mod opening;
mod plan_text;
mod rank_stream;
mod replicas;
mod retry;
mod ring;
mod server_version;
mod transport;

pub use batches::{Batch, BatchStream};
pub use client::{Client, Endpoint, Epoch, Table};
pub use credentials::Credentials;
pub use cursor::{CURSOR_VERSION, Cursor, CursorError};
pub use error::{Error, HeaderError, Result, code_name};
pub use forebay_proto::{
    defaults::BATCH_SIZE as BATCH_SIZE_DEFAULT,
    resume::ResumeError,
    v1::{
        Assumptions, Balance, BatchHeader, CacheExplain, CheckedOutput, ClassWeight, ColumnDescription, DatasetInfo,
        DescribeRequest, Description, ExchangeRequest, Explain, FitProgress, FitRequest, FitResult, LearnedStatistic,
        LengthBucket, LengthBuckets, LibraryColumn, MixtureSource, Plan, PlanCheck, PlanDataset, RankExplain, RankInfo,
        Reason, Remainder, Replay, ReplayRequest, ReplayRow, SourceInfo, StageSeconds, StoredPlan, StreamInfo,
        StreamRequest, TableRead, TakeRequest, Window,
    },
};
pub use handshake::Mismatch;
pub use plan_text::{FIT_VERSION, plan_as_stored, plan_from_json};
pub use rank_stream::RankStream;
pub use replicas::Replicas;
pub use retry::Retry;
pub use server_version::ServerVersion;
pub use transport::{Transport, Wire};

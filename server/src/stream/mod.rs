//! Wires the rooms of one stream together with bounded channels: snapshot + plan + order → work list → scan → kernels →
//! batches; the same rows into the engine for a fit; and a client's own rows through the same kernels.
//!
//! It knows nothing of gRPC: requests come in checked, batches with their headers go out, to be encoded by `flight`.

mod decode;
mod device;
mod epoch;
mod error;
mod exchange;
mod explain;
mod fit;
mod replay;
mod resolve;
mod table;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use arrow::array::RecordBatch;
use forebay_proto::v1;
use tokio::sync::Semaphore;

pub use device::{Device, DeviceName};
pub use epoch::task::{Ahead, BatchTask};
pub use error::StreamError;
pub use exchange::Exchange;
pub use fit::FitTask;
pub use replay::Replayed;
pub use resolve::prepare::Prepared;

use crate::{
    budget::Budget, catalog::Catalog, cpu_pool::CpuPool, engine::Engine, metrics::StageTimes, plan::Limits,
    state::State,
};

/// Row groups that are fetched ahead of the one being decoded.
const FETCH_AHEAD: usize = 2;

/// Batches that wait between their making and the wire.
const BATCHES_AHEAD: usize = 2;

/// Bytes of a stream that may wait for its socket, beside the batch that is being written: room for some of the next one,
/// so that a stream does not stop in the midst of every batch. Counted in the memory that it reserves.
pub const SENDING_BYTES: usize = 4 << 20;

/// Everything that streams and fits are made from; shared by all of them.
#[derive(Debug)]
pub struct Streams {
    catalog: Catalog,
    engine: Engine,
    cpu: CpuPool,
    budget: Budget,
    state: State,
    limits: Limits,
    /// Passing rows of each row group, by snapshot and filter.
    counts: Mutex<HashMap<String, Arc<resolve::count::CountCell>>>,
    compiled: Arc<resolve::compiled::Recent<resolve::compiled::Key, resolve::compiled::Compiled>>,
    exchanges: resolve::compiled::Recent<exchange::ExchangeKey, Exchange>,
    device: Device,
    fits: Semaphore,
}

/// A batch on its way to the wire; the header's checksum and times are filled in where it is encoded.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What it is.
    pub header: v1::BatchHeader,
    /// Its columns.
    pub data: RecordBatch,
    /// Where the stream's time went since the batch before.
    pub times: StageTimes,
}

impl Streams {
    /// The room, over these.
    pub fn new(
        catalog: Catalog,
        engine: Engine,
        cpu: CpuPool,
        budget: Budget,
        state: State,
        limits: Limits,
        device: Device,
    ) -> Self {
        Self {
            catalog,
            engine,
            cpu,
            budget,
            state,
            limits,
            counts: Mutex::default(),
            compiled: Arc::default(),
            device,
            exchanges: resolve::compiled::Recent::default(),
            fits: Semaphore::new(fit::FITS_MAX),
        }
    }

    /// The datasets.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }
}

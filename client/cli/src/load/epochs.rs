//! Endpoints of each epoch, requested once and shared by all of its streams.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use forebay_client::{Client, Epoch, Result, StreamRequest};
use tokio::sync::OnceCell;

/// Consecutive epochs.
#[derive(Debug)]
pub(super) struct Epochs {
    client: Client,
    first: StreamRequest,
    known: Mutex<BTreeMap<u64, Cell>>,
}

/// An epoch whose endpoints are known or requested.
type Cell = Arc<OnceCell<Epoch>>;

impl Epochs {
    pub(super) fn new(client: Client, first: StreamRequest) -> Self {
        Self { client, first, known: Mutex::default() }
    }

    /// Returns an epoch's request. Only the first epoch begins at the start position.
    pub(super) fn request(&self, epoch: u64) -> StreamRequest {
        let is_first = epoch == self.first.epoch;
        let start_position = if is_first { self.first.start_position } else { 0 };
        StreamRequest { epoch, start_position, with_stage_seconds: true, ..self.first.clone() }
    }

    /// Returns the epoch, kept as long as the cell is held. Concurrent callers share one request.
    pub(super) async fn get(&self, epoch: u64) -> Result<Cell> {
        let cell = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            // Drop the tickets of epochs without a reader.
            known.retain(|&other, cell| other >= epoch || Arc::strong_count(cell) > 1);
            Arc::clone(known.entry(epoch).or_default())
        };
        cell.get_or_try_init(|| async { self.client.stream_info(&self.request(epoch)).await }).await?;
        Ok(cell)
    }
}

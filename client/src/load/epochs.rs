//! The endpoints of each epoch, asked for once and shared by all the streams that read it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_client::{Client, Epoch, Result, StreamRequest};
use tokio::sync::OnceCell;

/// The epochs from a first one on.
#[derive(Debug)]
pub(super) struct Epochs {
    client: Client,
    first: StreamRequest,
    known: Mutex<BTreeMap<u64, Cell>>,
}

/// An epoch that somebody has asked for, or is asking for.
type Cell = Arc<OnceCell<Epoch>>;

impl Epochs {
    pub(super) fn new(client: Client, first: StreamRequest) -> Self {
        Self { client, first, known: Mutex::default() }
    }

    /// The request of an epoch: the first one begins at the start position, all others at their start.
    pub(super) fn request(&self, epoch: u64) -> StreamRequest {
        let is_first = epoch == self.first.epoch;
        let start_position = if is_first { self.first.start_position } else { 0 };
        StreamRequest { epoch, start_position, with_stage_seconds: true, ..self.first.clone() }
    }

    /// The epoch, for as long as the cell is held. The first stream to come asks for it, the others wait for the answer.
    pub(super) async fn get(&self, epoch: u64) -> Result<Cell> {
        let cell = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            // Tickets of many ranks are not kept longer than somebody reads by them.
            known.retain(|&other, cell| other >= epoch || Arc::strong_count(cell) > 1);
            Arc::clone(known.entry(epoch).or_default())
        };
        cell.get_or_try_init(|| async { self.client.stream_info(&self.request(epoch)).await }).await?;
        Ok(cell)
    }
}

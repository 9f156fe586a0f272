//! What a dataset and a mixture have in common: an order of rows, in batches.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_kernels::Program;
use forebay_order::{Epoch, Share};
use forebay_plan::Request;
use forebay_proto::v1;

use super::compiled::Compiled;
use crate::error::StreamError;

/// An order of rows, in batches.
pub(crate) trait Ordered {
    fn request(&self) -> &Request;

    /// The epoch; for a mixture, of its positions instead of rows.
    fn epoch(&self) -> &Epoch;

    /// What is computed; for a mixture, by the source whose nullable outputs include those of every other source.
    fn compiled(&self) -> &Compiled;

    /// The digest of the snapshot, or of a mixture's snapshots.
    fn snapshot_digest(&self) -> &str;

    /// The plan's id, or the digest of a mixture's plans and weights.
    fn plan_id(&self) -> &str;

    /// Approximate bytes of a row; AS_STORED columns count with their uncompressed bytes in the files.
    fn wire_row_bytes(&self) -> u64;

    /// The compiled program.
    fn program(&self) -> Arc<Program> {
        Arc::clone(&self.compiled().program)
    }

    /// The output schema.
    fn schema(&self) -> SchemaRef {
        self.compiled().program.schema()
    }

    /// The rest of a rank's share, from the request's start position.
    fn share_from_start(&self, rank: u64) -> Result<Share, StreamError> {
        let Request { world_size, start_position, .. } = *self.request();
        if rank >= world_size {
            return Err(StreamError::Rank { rank, world_size });
        }
        // The position is a multiple of the step or of the lanes' rows, so every rank has sent the same number of rows.
        Ok(self.epoch().share_from(rank, start_position / world_size))
    }

    /// The error of fewer passing rows than were counted.
    fn miscounted(&self) -> StreamError {
        StreamError::Miscounted { counted: self.epoch().row_count(), dataset: self.request().dataset.clone() }
    }

    /// Approximate bytes of a full batch.
    fn batch_bytes(&self) -> u64 {
        let Request { remainder, batch_size, .. } = *self.request();
        let rows = match remainder {
            // Repeated rows fill the batch.
            v1::Remainder::Pad => batch_size,
            v1::Remainder::Keep | v1::Remainder::Drop => batch_size.min(self.epoch().row_count().max(1)),
        };
        rows.saturating_mul(self.wire_row_bytes())
    }
}

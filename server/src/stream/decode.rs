//! Decoding on the CPU pool: a panic of a decoder is reported as a damaged row group.

use arrow::datatypes::Schema;

use crate::{
    catalog::{RowGroup, Snapshot},
    cpu_pool::CpuPool,
    scan::{self, ScanError},
};

/// Runs a job that decodes these columns of a row group on the CPU pool.
///
/// A panic becomes [`ScanError::Corrupt`]: decoders panic on files whose parts contradict each other.
pub(super) async fn decode<T: Send + 'static>(
    cpu: &CpuPool,
    snapshot: &Snapshot,
    row_group: &RowGroup,
    columns: &Schema,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ScanError> {
    cpu.run(job).await.map_err(|panic| scan::panicked(snapshot, row_group, columns, &panic))
}

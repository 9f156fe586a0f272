//! The result of a job: streamed from the executors that computed its parts, one part after the other.

use std::{sync::Arc, time::Duration};

use ballista_core::{
    client::BallistaClient,
    extension::BallistaConfigGrpcEndpoint,
    serde::{
        protobuf::{PartitionLocation, get_job_status_result::FlightProxy},
        scheduler::PartitionId,
    },
};
use datafusion::{
    arrow::datatypes::SchemaRef, error::DataFusionError, execution::SendableRecordBatchStream,
    physical_plan::stream::RecordBatchStreamAdapter,
};
use futures::{StreamExt, TryStreamExt, stream};
use tonic::transport::Endpoint;

use super::messages::{ClusterError, root};
use crate::engine_flag::SchedulerAddress;

/// Time to connect to the scheduler, or to an executor.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Time between keepalive pings, and for their answers: a machine that is gone is noticed within both.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(20);

/// Bytes of a message to or from the cluster: the default limit of its programs.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Attempts to fetch a part of a result, and the pause between two.
const FETCH_RETRIES: u8 = 3;
const FETCH_PAUSE_MS: u64 = 1000;

/// The parts of a result in their order, and the host that serves them if it is not the executor of each.
pub(super) struct JobResult {
    pub parts: Vec<PartitionLocation>,
    pub proxy: Option<FlightProxy>,
}

// === impl JobResult ===

impl JobResult {
    /// The rows, fetched as they are read.
    pub(super) fn rows(self, schema: SchemaRef, scheduler: SchedulerAddress) -> SendableRecordBatchStream {
        let Self { parts, proxy } = self;
        let parts = parts.into_iter().map(move |part| fetch(part, proxy.clone(), scheduler.clone()));
        let rows = stream::iter(parts).then(|part| part).try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

/// Fetches one part of a result.
async fn fetch(
    part: PartitionLocation,
    proxy: Option<FlightProxy>,
    scheduler: SchedulerAddress,
) -> Result<SendableRecordBatchStream, DataFusionError> {
    let layout = part.layout();
    let (Some(executor), Some(id)) = (part.executor_meta, part.partition_id.map(Into::<PartitionId>::into)) else {
        return Err(ClusterError::Query("the scheduler named no executor of the result".to_owned()).in_plan());
    };
    let port = u16::try_from(executor.port).unwrap_or(0);
    let (host, host_port) = match proxy {
        Some(FlightProxy::Local(true)) => scheduler.host_and_port(),
        Some(FlightProxy::External(address)) => match address.rsplit_once(':') {
            Some((host, port)) => (host.to_owned(), port.parse().unwrap_or(0)),
            None => (address, 0),
        },
        Some(FlightProxy::Local(false)) | None => (executor.host.clone(), port),
    };
    let failed = {
        let executor = format!("{host}:{host_port}");
        move |reason: String| ClusterError::Fetch { executor: executor.clone(), reason }.in_plan()
    };
    let limits = BallistaConfigGrpcEndpoint::new(Arc::new(|endpoint: Endpoint| {
        let endpoint = endpoint.connect_timeout(CONNECT_MAX).tcp_nodelay(true);
        Ok(endpoint.http2_keep_alive_interval(KEEPALIVE).keep_alive_timeout(KEEPALIVE_ANSWER))
    }));
    let client = BallistaClient::try_new(
        &host,
        host_port,
        MESSAGE_BYTES_MAX,
        false,
        Some(Arc::new(limits)),
        FETCH_RETRIES,
        FETCH_PAUSE_MS,
        0,
        0,
    );
    let mut client = client.await.map_err(|error| failed(root(&error)))?;
    let rows = client.fetch_partition_proxied(&executor.id, &id, part.file_id, layout, &executor.host, port, true);
    let rows = rows.await.map_err(|error| failed(root(&error)))?;
    let schema = rows.schema();
    let rows = rows.map_err(move |error| failed(root(&error)));
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
}

//! One query on a cluster: submits the plan, waits for its end, and releases what the cluster holds of it. The rows are
//! fetched in `result`.

use std::{
    collections::HashMap,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ballista_core::{
    BALLISTA_VERSION,
    extension::{BallistaGrpcMetadataInterceptor, SessionConfigHelperExt},
    serde::protobuf::{
        CancelJobParams, CleanJobDataParams, ExecuteQueryParams, GetJobStatusParams, RemoveSessionParams,
        execute_query_params::Query, execute_query_result::Result as Submitted, job_status::Status as JobEnd,
        scheduler_grpc_client::SchedulerGrpcClient,
    },
    utils::{GrpcClientConfig, create_grpc_client_endpoint},
    version::{BALLISTA_VERSION_HEADER, check_compatibility, version_from_metadata},
};
use datafusion::{
    error::DataFusionError,
    execution::{SendableRecordBatchStream, context::SessionContext},
    physical_plan::ExecutionPlan,
};
use datafusion_proto::{physical_plan::AsExecutionPlan, protobuf::PhysicalPlanNode};
use tonic::{Code, Status, service::interceptor::InterceptedService, transport::Channel};

use super::{
    codec::Codec,
    messages::{ClusterError, root},
    result::{CONNECT_MAX, JobResult, KEEPALIVE, MESSAGE_BYTES_MAX},
};
use crate::{
    engine_flag::SchedulerAddress,
    error::{PrepareError, cause},
    inputs::Input,
};

/// Bytes of a plan, so that its message fits.
const PLAN_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (1 << 20);

/// Time between questions for the status of a job. Ballista does not send a job's id before its end otherwise, and
/// without the id, a job cannot be cancelled.
const STATUS_PAUSE: Duration = Duration::from_millis(100);

/// Time to cancel or remove a job: without the scheduler, the cluster's own limits remove it.
const RELEASE_MAX: Duration = Duration::from_secs(3);

/// The client of a cluster.
pub(crate) struct Cluster {
    address: SchedulerAddress,
    last: Mutex<Option<LastJob>>,
}

/// The job that was submitted last.
struct LastJob {
    id: String,
    session: String,
    is_running: bool,
}

type Scheduler = SchedulerGrpcClient<InterceptedService<Channel, BallistaGrpcMetadataInterceptor>>;

// === impl Cluster ===

impl Cluster {
    /// The cluster of a scheduler. Connects when a query runs.
    pub(crate) fn new(address: SchedulerAddress) -> Self {
        Self { address, last: Mutex::new(None) }
    }

    /// Runs a plan to its end, and returns its rows, which are fetched as they are read.
    pub(crate) async fn rows(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &SessionContext,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let schema = plan.schema();
        let result = self.run(plan, context).await.map_err(ClusterError::in_plan)?;
        Ok(result.rows(schema, self.address.clone()))
    }

    /// The error of a query as one of this program, if it is of the cluster. Local files are unchanged on this machine.
    pub(crate) fn error(&self, error: &DataFusionError, inputs: &[Input]) -> Option<PrepareError> {
        let found = cause::<ClusterError>(error)?;
        Some(match found {
            ClusterError::Query(reason) => PrepareError::Query(reason.clone()),
            ClusterError::Unread(file) if file.is_change && is_remote(&file.reason, inputs) => {
                PrepareError::Changed(file.reason.clone())
            }
            _ => PrepareError::Cluster { engine: self.address.to_string(), reason: found.to_string() },
        })
    }

    /// Cancels the last job if it still runs, and removes what the cluster holds of it.
    pub(crate) async fn release(&self) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(LastJob { id: job_id, session: session_id, is_running }) = last else { return };
        let released = async {
            let mut scheduler = self.connect().await?;
            if is_running {
                let _ = scheduler.cancel_job(CancelJobParams { job_id }).await;
            } else {
                let _ = scheduler.clean_job_data(CleanJobDataParams { job_id, ..CleanJobDataParams::default() }).await;
            }
            let _ = scheduler.remove_session(RemoveSessionParams { session_id }).await;
            Ok::<_, ClusterError>(())
        };
        // A cluster that does not answer removes the job when its time to live ends.
        let _ = tokio::time::timeout(RELEASE_MAX, released).await;
    }

    async fn connect(&self) -> Result<Scheduler, ClusterError> {
        let unreachable = |error: &dyn Error| ClusterError::Unreachable(root(error));
        let config = GrpcClientConfig {
            connect_timeout_seconds: CONNECT_MAX.as_secs(),
            http2_keepalive_interval_seconds: KEEPALIVE.as_secs(),
            ..GrpcClientConfig::default()
        };
        let endpoint = create_grpc_client_endpoint(self.address.http(), Some(&config));
        let channel = endpoint.map_err(|error| unreachable(&error))?.connect().await;
        let version = HashMap::from([(BALLISTA_VERSION_HEADER.to_owned(), BALLISTA_VERSION.to_owned())]);
        let version = BallistaGrpcMetadataInterceptor::new(version);
        let client = SchedulerGrpcClient::with_interceptor(channel.map_err(|error| unreachable(&error))?, version);
        Ok(client.max_encoding_message_size(MESSAGE_BYTES_MAX).max_decoding_message_size(MESSAGE_BYTES_MAX))
    }

    async fn run(&self, plan: Arc<dyn ExecutionPlan>, context: &SessionContext) -> Result<JobResult, ClusterError> {
        let query = query(plan, context)?;
        let session = query.session_id.clone();
        let mut scheduler = self.connect().await?;
        let response = scheduler.execute_query(query).await.map_err(|status| refused(&status))?;
        check_compatibility(Some(BALLISTA_VERSION), version_from_metadata(response.metadata()))
            .map_err(ClusterError::Rejected)?;
        let id = match response.into_inner().result {
            Some(Submitted::Success(job)) => job.job_id,
            Some(Submitted::Failure(failure)) => return Err(ClusterError::of_query(&format!("{:?}", failure.failure))),
            None => return Err(ClusterError::of_query("it named no job")),
        };
        self.keep(LastJob { id: id.clone(), session: session.clone(), is_running: true });
        loop {
            let request = GetJobStatusParams { job_id: id.clone() };
            let update = scheduler.get_job_status(request).await;
            let update = update.map_err(|status| ClusterError::Lost(root(&status)))?.into_inner();
            let ended = match update.status.and_then(|job| job.status) {
                Some(JobEnd::Failed(failed)) => Err(ClusterError::of_job(&failed.error)),
                Some(JobEnd::Successful(job)) => {
                    Ok(JobResult { parts: job.partition_location, proxy: update.flight_proxy })
                }
                _ => {
                    tokio::time::sleep(STATUS_PAUSE).await;
                    continue;
                }
            };
            self.keep(LastJob { id, session, is_running: false });
            return ended;
        }
    }

    fn keep(&self, job: LastJob) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(job);
    }
}

/// A request that the scheduler did not accept, or that did not reach it.
fn refused(status: &Status) -> ClusterError {
    match status.code() {
        Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable => ClusterError::Unreachable(root(status)),
        _ if status.source().is_some() => ClusterError::Unreachable(root(status)),
        _ => ClusterError::of_query(status.message()),
    }
}

/// Whether a message is about an input in a remote store, which is the same for every machine.
fn is_remote(message: &str, inputs: &[Input]) -> bool {
    let remote = inputs.iter().filter(|input| !input.snapshot.store().is_local());
    remote.flat_map(|input| input.snapshot.files()).any(|file| message.starts_with(file.display()))
}

/// The message of a plan.
fn query(plan: Arc<dyn ExecutionPlan>, context: &SessionContext) -> Result<ExecuteQueryParams, ClusterError> {
    let failed = |error: DataFusionError| {
        ClusterError::Query(format!("the plan cannot be sent to a cluster: {}", error.strip_backtrace()))
    };
    let node = PhysicalPlanNode::try_from_physical_plan(plan, &Codec::default());
    let mut bytes = Vec::new();
    node.and_then(|node| node.try_encode(&mut bytes)).map_err(failed)?;
    if bytes.len() > PLAN_BYTES_MAX {
        let reason = "it names every file: merge them into larger ones, or use the embedded engine";
        return Err(ClusterError::Query(format!(
            "the plan has {} bytes, and a cluster accepts at most {PLAN_BYTES_MAX}; {reason}",
            bytes.len()
        )));
    }
    let session_id = context.session_id();
    Ok(ExecuteQueryParams {
        operation_id: session_id.clone(),
        session_id,
        settings: context.copied_config().to_key_value_pairs(),
        query: Some(Query::PhysicalPlan(bytes)),
    })
}

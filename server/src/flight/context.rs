//! What a call works with: the server's resources, the caller's identity, the call's id.

use std::sync::Arc;

use bytes::Bytes;
use forebay_order::SOURCES_MAX;
use forebay_plan::RequestLimits;
use forebay_proto::{Encoding, v1};
use forebay_runtime::{cpu_pool::CpuPool, shutdown::ShutdownWatch};
use forebay_stream::{Prepared, PreparedGroups, PreparedTake, RawTable, StreamError, Streams};
use tonic::{Request, Status};

use super::{
    access::Access,
    call::Call,
    call_memory::{CallBudget, CallReservation, RequestMemory},
    limits,
    limits::MessageLimits,
    status,
};
use crate::auth::Caller;

/// The parts of the server that all calls share. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Resources {
    pub streams: Arc<Streams>,
    /// Memory of requests and answers.
    pub calls: CallBudget,
    pub cpu: CpuPool,
    pub shutdown: ShutdownWatch,
    /// URLs of every replica, listed in the endpoints; empty: this server alone.
    pub replicas: Arc<Vec<String>>,
    pub access: Access,
    pub limits: RequestLimits,
    pub message_limits: MessageLimits,
}

/// Texts of more bytes are read on the CPU pool.
const SHORT_BYTES: usize = 16 << 10;

/// One call by one caller. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct CallContext {
    pub resources: Resources,
    pub caller: Caller,
    pub call: Call,
    /// Memory of its request.
    pub memory: RequestMemory,
}

impl CallContext {
    /// The context of a call that the router has authenticated.
    pub(super) fn of<T>(resources: &Resources, request: &Request<T>) -> Result<Self, Status> {
        let caller = resources.access.authenticated(request)?;
        let call = request.extensions().get::<Call>().cloned().unwrap_or_else(|| Call::new("other", None));
        let memory = request.extensions().get::<RequestMemory>().cloned();
        let memory = memory.unwrap_or_else(|| resources.calls.request());
        Ok(Self { resources: resources.clone(), caller, call, memory })
    }

    pub(super) fn streams(&self) -> &Arc<Streams> {
        &self.resources.streams
    }

    pub(super) fn cpu(&self) -> &CpuPool {
        &self.resources.cpu
    }

    pub(super) fn access(&self) -> &Access {
        &self.resources.access
    }

    /// Decodes a message in either encoding. A long one may hold a vocabulary and is decoded on the CPU pool.
    pub(super) async fn decode<M: forebay_proto::Message + 'static>(
        &self,
        bytes: &Bytes,
    ) -> Result<(M, Encoding), Status> {
        self.check_decoded::<M>(bytes)?;
        let decoded = if bytes.len() <= SHORT_BYTES {
            forebay_proto::decode(bytes)
        } else {
            let bytes = bytes.clone();
            let decoded = self.cpu().run_short(move || forebay_proto::decode(&bytes)).await;
            decoded.map_err(|error| status::of(&error.into()))?
        };
        decoded.map_err(|error| status::of_bytes(&error))
    }

    /// Reserves the memory of an info that is being written, before its encoded form is reserved.
    pub(super) fn reserve_endpoints(&self, count: u64, ticket_bytes: u64) -> Result<CallReservation, Status> {
        /// A `FlightEndpoint`, its metadata, and the signature of its ticket.
        const ENDPOINT_BYTES: u64 = 512;
        let bytes = count.saturating_mul(ticket_bytes.saturating_add(ENDPOINT_BYTES));
        self.resources.calls.reserve(bytes)
    }

    /// Checks the length of an encoded message, and reserves the memory of its decoded form.
    pub(super) fn check_decoded<M: forebay_proto::Message>(&self, bytes: &[u8]) -> Result<(), Status> {
        limits::check_bytes(&self.resources.limits, bytes.len())?;
        self.memory.decoded(forebay_proto::decoded_bytes::<M>(bytes))
    }

    /// Checks that the caller may read the sources of a computation and that its plan is within the limits.
    pub(super) async fn authorize(&self, dataset: &str, plan: Option<&v1::Plan>, plan_id: &str) -> Result<(), Status> {
        self.authorize_source(dataset, plan, plan_id).await?;
        self.check_expressions(plan.into_iter(), "").await
    }

    async fn authorize_source(&self, dataset: &str, plan: Option<&v1::Plan>, plan_id: &str) -> Result<(), Status> {
        Access::sources(&self.caller, self.streams(), dataset, plan, plan_id).await?;
        plan.map_or(Ok(()), |plan| limits::check_plan(&self.resources.limits, plan))
    }

    /// Checks the cost of all expressions of a request. Long ones are read on the CPU pool.
    async fn check_expressions<'a>(
        &self,
        plans: impl Iterator<Item = &'a v1::Plan>,
        weight: &str,
    ) -> Result<(), Status> {
        let (limits, expressions) = (self.resources.limits, limits::expressions(plans, weight));
        if expressions.iter().map(|(_, text)| text.len()).sum::<usize>() <= SHORT_BYTES {
            return limits::check_expressions(&limits, &expressions);
        }
        let checked = self.cpu().run_short(move || limits::check_expressions(&limits, &expressions)).await;
        checked.map_err(|error| status::of(&error.into()))?
    }

    /// Checks the same for a request, or for every source of its mixture.
    pub(super) async fn authorize_request(&self, message: &v1::StreamRequest) -> Result<(), Status> {
        self.authorize_source(&message.dataset, message.plan.as_ref(), &message.plan_id).await?;
        // More are refused.
        let sources = || message.sources.iter().take(SOURCES_MAX);
        for source in sources() {
            self.authorize_source(&source.dataset, source.plan.as_ref(), &source.plan_id).await?;
        }
        let plans = sources().filter_map(|source| source.plan.as_ref()).chain(&message.plan);
        self.check_expressions(plans, &message.sample_weight).await
    }

    /// The epoch of a request, if the caller may read it.
    pub(super) async fn prepare(&self, message: &v1::StreamRequest) -> Result<Prepared, Status> {
        let prepared = self.streams().prepare(self.checked(message).await?).await;
        let prepared = prepared.map_err(|error: StreamError| status::of(&error))?;
        self.call.note(|facts| facts.set_plan_id(prepared.plan_id()));
        Ok(prepared)
    }

    /// The groups of a request, if the caller may read them.
    pub(super) async fn prepare_groups(&self, message: &v1::StreamRequest) -> Result<PreparedGroups, Status> {
        let groups = self.streams().prepare_groups(self.checked(message).await?).await;
        let groups = groups.map_err(|error| status::of(&error))?;
        self.call.note(|facts| facts.set_plan_id(groups.shared().plan_id()));
        Ok(groups)
    }

    async fn checked(&self, message: &v1::StreamRequest) -> Result<forebay_plan::Request, Status> {
        self.authorize_request(message).await?;
        forebay_plan::Request::check(message).map_err(|error| status::of(&error.into()))
    }

    /// Rows by their numbers, if the caller may read their dataset.
    pub(super) async fn take(&self, message: &v1::TakeRequest) -> Result<PreparedTake, Status> {
        self.call.note(|facts| {
            facts.set_dataset(&message.dataset);
            facts.set_plan_id(&message.plan_id);
        });
        self.authorize(&message.dataset, message.plan.as_ref(), &message.plan_id).await?;
        let taken = self.streams().prepare_take(message).await.map_err(|error| status::of(&error))?;
        self.call.note(|facts| facts.set_plan_id(taken.stream().plan_id()));
        Ok(taken)
    }

    /// Rows of a raw table, if the caller may read its dataset.
    pub(super) async fn table(&self, read: &v1::TableRead) -> Result<RawTable, Status> {
        Access::dataset(&self.caller, self.streams(), &read.dataset)?;
        self.streams().raw_table(read).await.map_err(|error| status::of(&error))
    }
}

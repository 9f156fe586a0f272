//! Access rules: who the caller is, which datasets it may read, how many streams it may open.
//!
//! A caller learns nothing of datasets it has no grant for: existing and missing ones give the same error.

use std::sync::Arc;

use arrow_flight::{FlightEndpoint, Ticket};
use bytes::Bytes;
use forebay_proto::v1::{self, Reason};
use forebay_runtime::error::near_names;
use forebay_stream::{PlanRecord, StreamError, Streams};
use hyper::{HeaderMap, header};
use prost_types::Timestamp;
use tonic::Status;

use super::status;
use crate::auth::{AccessError, Admission, Auth, Caller, Peer, StreamLimits, StreamPermit, TicketKey};

/// The access rules of a service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Access {
    auth: Auth,
    admission: Admission,
}

impl Default for Access {
    /// Any caller, and any number of streams.
    fn default() -> Self {
        let limits = StreamLimits { per_client: usize::MAX, total: usize::MAX };
        Self { auth: Auth::off(), admission: Admission::new(limits) }
    }
}

impl Access {
    /// The callers that `auth` knows, and as many streams as `admission` permits.
    pub fn new(auth: Auth, admission: Admission) -> Self {
        Self { auth, admission }
    }

    /// Whether calls need credentials.
    pub(super) fn requires_credentials(&self) -> bool {
        self.auth.is_on()
    }

    /// Authenticates a call by its headers and its connection.
    pub(super) fn caller(&self, headers: &HeaderMap, peer: &Peer) -> Result<Caller, AccessError> {
        let authorization = headers.get(header::AUTHORIZATION).map(header::HeaderValue::as_bytes);
        self.auth.caller(authorization, peer)
    }

    /// The caller as the router authenticated it.
    pub(super) fn authenticated<T>(&self, request: &tonic::Request<T>) -> Result<Caller, Status> {
        match request.extensions().get::<Caller>() {
            Some(caller) => Ok(caller.clone()),
            None if self.auth.is_on() => {
                Err(status::refusal(Reason::Unauthenticated, "the call was not authenticated"))
            }
            None => Ok(Caller::anyone()),
        }
    }

    /// A permit for a stream of the caller.
    pub(super) fn stream(&self, caller: &Caller) -> Result<StreamPermit, Status> {
        self.admission.stream(caller).map_err(|refused| status::of_refusal(&refused))
    }

    /// The ticket as it is sent to the caller: signed, if callers are authenticated.
    pub(super) fn sign(&self, ticket: Ticket, caller: &Caller) -> Ticket {
        match self.auth.ticket_key() {
            Some(key) => Ticket { ticket: key.sign(&ticket.ticket, caller.name()).0.into() },
            None => ticket,
        }
    }

    /// An endpoint with the ticket as it is sent to the caller, and the time at which that expires.
    pub(super) fn endpoint(&self, ticket: Ticket, caller: &Caller) -> FlightEndpoint {
        let Some(key) = self.auth.ticket_key() else { return FlightEndpoint::new().with_ticket(ticket) };
        let (signed, expiry) = key.sign(&ticket.ticket, caller.name());
        let endpoint = FlightEndpoint::new().with_ticket(Ticket { ticket: signed.into() });
        match i64::try_from(expiry) {
            Ok(seconds) => endpoint.with_expiration_time(Timestamp { seconds, nanos: 0 }),
            // Longer than any clock.
            Err(_) => endpoint,
        }
    }

    /// The ticket without its signature, if the signature is valid for the caller.
    pub(super) fn unsigned(&self, ticket: &Ticket, caller: &Caller) -> Result<Ticket, Status> {
        match self.auth.ticket_key() {
            Some(key) => {
                let opened = key.open(&ticket.ticket, caller.name());
                let opened = opened.map_err(|fault| status::refusal(Reason::PermissionDenied, &fault.to_string()))?;
                Ok(Ticket { ticket: Bytes::copy_from_slice(opened) })
            }
            None if TicketKey::is_signed(&ticket.ticket) => Err(status::refusal(
                Reason::InvalidRequest,
                "ticket: signed by a server with authentication, but this server has none: call GetFlightInfo here",
            )),
            None => Ok(ticket.clone()),
        }
    }

    /// Checks that the caller may read a dataset.
    pub(super) fn dataset(caller: &Caller, streams: &Streams, name: &str) -> Result<(), Status> {
        if !caller.may_read(name) {
            return Err(status::refusal(
                Reason::PermissionDenied,
                &format!(
                    "dataset \"{}\" is not granted to {}: the operator grants it (--principals)",
                    name.chars().take(128).collect::<String>().escape_default(),
                    caller.name()
                ),
            ));
        }
        if !caller.reads_everything() && streams.catalog().dataset(name).is_err() {
            let datasets = streams.catalog().datasets();
            let granted = datasets.iter().map(|dataset| dataset.name()).filter(|name| caller.may_read(name));
            return Err(status::refusal(
                Reason::UnknownDataset,
                &format!("no dataset of this name: {}", near_names(name, granted)),
            ));
        }
        Ok(())
    }

    /// What the caller may see of a stored plan: the datasets that it may read; none if it may read no dataset that the
    /// plan was stored for, or not all of the plan's lookup tables.
    pub(super) fn visible(caller: &Caller, record: PlanRecord) -> Option<v1::StoredPlan> {
        let PlanRecord { mut plan, tables, .. } = record;
        if caller.reads_everything() {
            return Some(plan);
        }
        plan.datasets.retain(|dataset| caller.may_read(&dataset.name));
        let is_granted = !plan.datasets.is_empty() && tables.iter().all(|table| caller.may_read(table));
        is_granted.then_some(plan)
    }

    /// Checks that the caller may remove a stored plan that it may see: it may read every dataset that the plan was
    /// stored for, as a fit on each requires.
    pub(super) fn removal(caller: &Caller, record: &PlanRecord) -> Result<(), Status> {
        let may_read_all = record.is_known && record.plan.datasets.iter().all(|dataset| caller.may_read(&dataset.name));
        if caller.reads_everything() || may_read_all {
            return Ok(());
        }
        let message = format!(
            "plan \"{}\" is also used with datasets that are not granted to {}: a principal with all of them may remove \
             it (--principals)",
            record.plan.plan_id,
            caller.name()
        );
        Err(status::refusal(Reason::PermissionDenied, &message))
    }

    /// Checks that the caller may read the sources of a stream: its dataset and the lookup tables of its plan.
    pub(super) async fn sources(
        caller: &Caller,
        streams: &Arc<Streams>,
        dataset: &str,
        plan: Option<&v1::Plan>,
        plan_id: &str,
    ) -> Result<(), Status> {
        if caller.reads_everything() {
            return Ok(());
        }
        if !dataset.is_empty() {
            Self::dataset(caller, streams, dataset)?;
        }
        if let Some(plan) = plan {
            forebay_plan::table_names(plan).try_for_each(|table| Self::dataset(caller, streams, table))?;
        }
        if plan_id.is_empty() {
            return Ok(());
        }
        match streams.show(plan_id.to_owned()).await {
            Ok(v1::FitResult { plan: Some(kept), .. }) => {
                forebay_plan::table_names(&kept).try_for_each(|table| Self::dataset(caller, streams, table))
            }
            // An id is permission to use the plan, so similar ids are not suggested.
            Ok(_) | Err(StreamError::UnknownPlan { .. }) => Err(status::refusal(
                Reason::UnknownPlan,
                "no fitted plan with this id (--state): fit it, or send the plan itself",
            )),
            Err(error) => Err(status::of(&error)),
        }
    }
}

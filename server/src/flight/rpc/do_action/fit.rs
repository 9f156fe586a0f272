//! `fit`: learns a plan's parameters, with progress.

use bytes::Bytes;
use forebay_plan::{PlanError, Sample};
use forebay_proto::{Encoding, v1};
use forebay_stream::FitSpec;
use tonic::Status;

use super::results::{ActionResults, check_sources, updates};
use crate::flight::{context::CallContext, status};

pub(super) async fn results(context: &CallContext, body: &Bytes) -> Result<ActionResults, Status> {
    let (request, encoding): (v1::FitRequest, Encoding) = context.decode(body).await?;
    context.call.note(|facts| facts.set_dataset(&request.dataset));
    let v1::FitRequest { dataset, plan, sample, sample_seed, refit } = request;
    let plan = plan.ok_or_else(|| status::of(&PlanError::field("plan", "missing: the plan to fit").into()))?;
    let sample = Sample::check(sample, sample_seed).map_err(|error| status::of(&error.into()))?;
    check_sources(context, &dataset, &plan).await?;
    Ok(updates(context.cpu(), context.streams().fit(FitSpec { dataset, plan, sample, refit }), encoding))
}

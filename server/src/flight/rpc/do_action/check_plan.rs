//! `check_plan`: what a plan gives on a dataset, without reading its rows.

use bytes::Bytes;
use forebay_plan::PlanError;
use forebay_proto::{Encoding, v1};
use tonic::Status;

use super::results::{ActionResults, check_sources, one};
use crate::flight::{context::CallContext, status};

pub(super) async fn results(context: &CallContext, body: &Bytes) -> Result<ActionResults, Status> {
    let (request, encoding): (v1::CheckPlanRequest, Encoding) = context.decode(body).await?;
    context.call.note(|facts| facts.set_dataset(&request.dataset));
    let Some(plan) = request.plan else {
        return Err(status::of(&PlanError::field("plan", "missing: the plan to check").into()));
    };
    check_sources(context, &request.dataset, &plan).await?;
    let checked = context.streams().check_plan(&request.dataset, plan).await.map_err(|error| status::of(&error))?;
    Ok(one(forebay_proto::encode(&checked, encoding)))
}

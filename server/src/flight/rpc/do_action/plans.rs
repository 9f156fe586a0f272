//! `plans` and `remove_plan`: the plans stored under `--state`.

use bytes::Bytes;
use forebay_plan::PlanError;
use forebay_proto::{
    Encoding,
    v1::{self, Reason},
};
use forebay_runtime::error::near_names;
use futures::{StreamExt, stream};
use tonic::Status;

use super::results::{ActionResults, one};
use crate::flight::{access::Access, context::CallContext, status};

/// Plans of a result.
const PLANS_A_RESULT: usize = 1000;

pub(super) async fn list(context: &CallContext, body: &Bytes) -> Result<ActionResults, Status> {
    let (_, encoding): (v1::PlansRequest, Encoding) = context.decode(body).await?;
    let plans = visible(context).await?;
    let parts: Vec<_> =
        if plans.is_empty() { vec![plans] } else { plans.chunks(PLANS_A_RESULT).map(<[_]>::to_vec).collect() };
    let encoded =
        move |plans| Ok(arrow_flight::Result { body: forebay_proto::encode(&v1::Plans { plans }, encoding).into() });
    Ok(stream::iter(parts).map(encoded).boxed())
}

pub(super) async fn remove(context: &CallContext, body: &Bytes) -> Result<ActionResults, Status> {
    let (request, encoding): (v1::RemovePlanRequest, Encoding) = context.decode(body).await?;
    context.call.note(|facts| facts.set_plan_id(&request.plan_id));
    if request.plan_id.is_empty() {
        return Err(status::of(&PlanError::field("plan_id", "missing: the id of a stored plan").into()));
    }
    let record = context.streams().plan(&request.plan_id).await.map_err(|error| status::of(&error))?;
    let Some(seen) = record.clone().and_then(|record| Access::visible(&context.caller, record)) else {
        return Err(unknown(context, &request.plan_id).await?);
    };
    if let Some(record) = &record {
        Access::removal(&context.caller, record)?;
    }
    if !context.streams().remove_plan(&request.plan_id).await.map_err(|error| status::of(&error))? {
        // Another call removed it first.
        return Err(unknown(context, &request.plan_id).await?);
    }
    tracing::info!(plan_id = request.plan_id, by = %context.caller.name(), "plan removed");
    Ok(one(forebay_proto::encode(&seen, encoding)))
}

/// The stored plans that the caller may see.
async fn visible(context: &CallContext) -> Result<Vec<v1::StoredPlan>, Status> {
    let records = context.streams().plans().await.map_err(|error| status::of(&error))?;
    Ok(records.into_iter().filter_map(|record| Access::visible(&context.caller, record)).collect())
}

/// The refusal of an id, which suggests only ids that the caller may see.
async fn unknown(context: &CallContext, plan_id: &str) -> Result<Status, Status> {
    let plans = visible(context).await?;
    let near = near_names(plan_id, plans.iter().map(|plan| plan.plan_id.as_str()));
    let shown: String = plan_id.chars().take(64).collect();
    let message = format!("no stored plan \"{}\": {near} (forebay plans ls)", shown.escape_default());
    Ok(status::refusal(Reason::UnknownPlan, &message))
}

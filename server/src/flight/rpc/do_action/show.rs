//! `show`: a fitted plan by its id.

use bytes::Bytes;
use forebay_plan::PlanError;
use forebay_proto::{Encoding, v1};
use tonic::Status;

use super::results::{ActionResults, one};
use crate::flight::{context::CallContext, status};

pub(super) async fn results(context: &CallContext, body: &Bytes) -> Result<ActionResults, Status> {
    let (request, encoding): (v1::ShowRequest, Encoding) = context.decode(body).await?;
    context.call.note(|facts| facts.set_plan_id(&request.plan_id));
    if request.plan_id.is_empty() {
        return Err(status::of(&PlanError::field("plan_id", "missing: the id of a fitted plan").into()));
    }
    context.authorize("", None, &request.plan_id).await?;
    let kept = context.streams().show(request.plan_id).await.map_err(|error| status::of(&error))?;
    // A vocabulary may have millions of values: encoding them is CPU work.
    let body = context.cpu().run(move || forebay_proto::encode(&kept, encoding)).await;
    Ok(one(body.map_err(|error| status::of(&error.into()))?))
}

//! `describe`: what the columns of a dataset hold, with progress.

use bytes::Bytes;
use forebay_proto::{Encoding, v1};
use futures::StreamExt;
use tonic::Status;

use super::results::ActionResults;
use crate::{
    flight::{context::CallContext, status},
    plan::PlanError,
};

pub(super) async fn results(context: &CallContext, body: &Bytes) -> Result<ActionResults, Status> {
    let (request, encoding): (v1::DescribeRequest, Encoding) = context.decode(body).await?;
    context.call.note(|facts| facts.set_dataset(&request.dataset));
    if request.dataset.is_empty() {
        return Err(status::of(&PlanError::field("dataset", "missing: the name of a dataset on this server").into()));
    }
    let plan = v1::Plan { filter: request.filter.clone(), ..v1::Plan::default() };
    context.authorize(&request.dataset, Some(&plan), "").await?;
    context.streams().catalog().dataset(&request.dataset).map_err(|error| status::of(&error.into()))?;
    let (cpu, updates) = (context.cpu().clone(), context.streams().describe(request));
    let results = updates.then(move |update| {
        let cpu = cpu.clone();
        async move {
            let update = update.map_err(|error| status::of(&error))?;
            let body = cpu.run(move || forebay_proto::encode(&update, encoding)).await;
            Ok(arrow_flight::Result { body: body.map_err(|error| status::of(&error.into()))?.into() })
        }
    });
    Ok(results.boxed())
}

//! `fit`: learns a plan's parameters, with progress.

use bytes::Bytes;
use forebay_proto::{Encoding, v1};
use futures::StreamExt;
use tonic::Status;

use super::results::ActionResults;
use crate::{
    flight::{context::CallContext, status},
    plan::{PlanError, Sample},
};

pub(super) async fn results(context: &CallContext, body: &Bytes) -> Result<ActionResults, Status> {
    let (request, encoding): (v1::FitRequest, Encoding) = context.decode(body).await?;
    context.call.note(|facts| facts.set_dataset(&request.dataset));
    let plan = request.plan.ok_or_else(|| status::of(&PlanError::field("plan", "missing: the plan to fit").into()))?;
    if request.dataset.is_empty() {
        return Err(status::of(&PlanError::field("dataset", "missing: the name of a dataset on this server").into()));
    }
    let sample = Sample::check(request.sample, request.sample_seed).map_err(|error| status::of(&error.into()))?;
    context.authorize(&request.dataset, Some(&plan), "").await?;
    context.streams().catalog().dataset(&request.dataset).map_err(|error| status::of(&error.into()))?;
    let (cpu, updates) = (context.cpu().clone(), context.streams().fit(request.dataset, plan, sample));
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

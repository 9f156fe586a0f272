//! `DoAction`: the verbs that are not reads.

use arrow_flight::{Action, ActionType};
use forebay_proto::{Encoding, v1};
use futures::{Stream, StreamExt};
use tonic::Status;

use super::{service::Service, status};
use crate::plan::PlanError;

/// The actions that this server knows.
pub(super) fn types() -> Vec<ActionType> {
    let fit = "Body: FitRequest {dataset, plan}. Results: FitUpdate, any number of {\"progress\": …}, then one {\"result\": \
               {\"plan_id\": …, \"plan\": …}}";
    vec![ActionType { r#type: "fit".to_owned(), description: fit.to_owned() }]
}

/// Runs an action.
pub(super) fn run(
    service: &Service,
    action: &Action,
) -> Result<impl Stream<Item = Result<arrow_flight::Result, Status>> + Send + use<>, Status> {
    match action.r#type.as_str() {
        "fit" => fit(service, &action.body),
        other => {
            let known: Vec<String> = types().into_iter().map(|known| known.r#type).collect();
            Err(Status::unimplemented(format!("no action \"{other}\" in this version; there is {}", known.join(", "))))
        }
    }
}

fn fit(
    service: &Service,
    body: &[u8],
) -> Result<impl Stream<Item = Result<arrow_flight::Result, Status>> + Send + use<>, Status> {
    let (request, encoding): (v1::FitRequest, Encoding) =
        forebay_proto::decode(body).map_err(|error| status::of_bytes(&error))?;
    let plan = request.plan.ok_or_else(|| status::of(&PlanError::field("plan", "missing: the plan to fit").into()))?;
    if request.dataset.is_empty() {
        return Err(status::of(&PlanError::field("dataset", "missing: the name of a dataset on this server").into()));
    }
    service.streams().catalog().dataset(&request.dataset).map_err(|error| status::of(&error.into()))?;
    let updates = service.streams().fit(request.dataset, plan);
    Ok(updates.map(move |update| match update {
        Ok(update) => Ok(arrow_flight::Result { body: forebay_proto::encode(&update, encoding).into() }),
        Err(error) => Err(status::of(&error)),
    }))
}

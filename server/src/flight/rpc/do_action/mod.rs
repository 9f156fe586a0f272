//! `DoAction`: the verbs that are not reads.

use std::sync::Arc;

use arrow_flight::{Action, ActionType};
use bytes::Bytes;
use forebay_proto::{Encoding, v1};
use futures::{StreamExt, stream::BoxStream};
use tonic::{Code, Status};

use crate::{
    auth::Caller,
    flight::{service::Service, status, ticket},
    plan::PlanError,
};

type Results = BoxStream<'static, Result<arrow_flight::Result, Status>>;

/// The actions that this server knows.
pub(crate) fn types() -> Vec<ActionType> {
    let fit = "Body: FitRequest {dataset, plan}. Results: FitUpdate, any number of {\"progress\": …}, then one {\"result\": \
               {\"plan_id\": …, \"plan\": …}}";
    let explain = "Body: StreamRequest. Result: Explain, what an epoch costs: steps, rows and bytes of each rank, read \
                   amplification, memory, mixing, and with \"assume\" the time it takes";
    let replay = "Body: ReplayRequest {stream, rank, step}. Results: Replay, file, row group and row of every row of that \
                  batch, and a ticket for the batch itself";
    let show = "Body: ShowRequest {plan_id}. Result: FitResult {version, plan_id, plan}, as the fit gave it";
    [("fit", fit), ("explain", explain), ("replay", replay), ("show", show)]
        .map(|(name, description)| ActionType { r#type: name.to_owned(), description: description.to_owned() })
        .into()
}

/// Runs an action.
pub(crate) async fn run(service: &Service, caller: &Caller, action: &Action) -> Result<Results, Status> {
    match action.r#type.as_str() {
        "fit" => fit(service, caller, &action.body).await,
        "explain" => explain(service, caller, &action.body).await,
        "replay" => replay(service, caller, &action.body).await,
        "show" => show(service, caller, &action.body).await,
        other => {
            let known: Vec<String> = types().into_iter().map(|known| known.r#type).collect();
            let message = format!("no action \"{other}\" in this version; there is {}", known.join(", "));
            Err(status::of_words(Code::Unimplemented, &message))
        }
    }
}

async fn explain(service: &Service, caller: &Caller, body: &Bytes) -> Result<Results, Status> {
    let (request, encoding): (v1::StreamRequest, Encoding) = service.decode(body).await?;
    // Without a dataset it is arithmetic alone.
    service.check(caller, &request.dataset, request.plan.as_ref(), &request.plan_id).await?;
    let explained = service.streams().explain(request).await.map_err(|error| status::of(&error))?;
    Ok(results([forebay_proto::encode(&explained, encoding)]))
}

async fn replay(service: &Service, caller: &Caller, body: &Bytes) -> Result<Results, Status> {
    let (request, encoding): (v1::ReplayRequest, Encoding) = service.decode(body).await?;
    let missing =
        || status::of(&PlanError::field("stream", "missing: the StreamRequest whose batch is replayed").into());
    let stream = request.stream.ok_or_else(missing)?;
    service.check(caller, &stream.dataset, stream.plan.as_ref(), &stream.plan_id).await?;
    let replayed = service.streams().replay(stream, request.rank, request.step).await;
    let replayed = replayed.map_err(|error| status::of(&error))?;
    let ticket_request = replayed.prepared.ticket_request(replayed.request.clone());
    let about = v1::Replay {
        header: Some(replayed.header),
        ticket: service
            .access()
            .sign(ticket::stream(&ticket_request, request.rank, 1, encoding), caller)
            .ticket
            .to_vec(),
        snapshot: replayed.prepared.snapshot_digest().to_owned(),
        plan_id: replayed.prepared.plan_id().to_owned(),
        rows: Vec::new(),
    };
    let (cpu, replayed) = (service.cpu().clone(), Arc::new(replayed));
    let parts = futures::stream::iter(0..replayed.part_count()).then(move |part| {
        let (cpu, replayed, about) = (cpu.clone(), Arc::clone(&replayed), about.clone());
        async move {
            let told =
                cpu.run(move || forebay_proto::encode(&v1::Replay { rows: replayed.part(part), ..about }, encoding));
            let body = told.await.map_err(|error| status::of(&error.into()))?;
            Ok(arrow_flight::Result { body: body.into() })
        }
    });
    Ok(parts.boxed())
}

async fn show(service: &Service, caller: &Caller, body: &Bytes) -> Result<Results, Status> {
    let (request, encoding): (v1::ShowRequest, Encoding) = service.decode(body).await?;
    if request.plan_id.is_empty() {
        return Err(status::of(&PlanError::field("plan_id", "missing: the id of a fitted plan").into()));
    }
    service.check(caller, "", None, &request.plan_id).await?;
    let kept = service.streams().show(request.plan_id).await.map_err(|error| status::of(&error))?;
    // A vocabulary may have millions of values: writing them is CPU work.
    let told = service.cpu().run(move || forebay_proto::encode(&kept, encoding)).await;
    Ok(results([told.map_err(|error| status::of(&error.into()))?]))
}

fn results(bodies: impl IntoIterator<Item = Vec<u8>>) -> Results {
    let results: Vec<_> = bodies.into_iter().map(|body| Ok(arrow_flight::Result { body: body.into() })).collect();
    futures::stream::iter(results).boxed()
}

async fn fit(service: &Service, caller: &Caller, body: &Bytes) -> Result<Results, Status> {
    let (request, encoding): (v1::FitRequest, Encoding) = service.decode(body).await?;
    let plan = request.plan.ok_or_else(|| status::of(&PlanError::field("plan", "missing: the plan to fit").into()))?;
    if request.dataset.is_empty() {
        return Err(status::of(&PlanError::field("dataset", "missing: the name of a dataset on this server").into()));
    }
    service.check(caller, &request.dataset, Some(&plan), "").await?;
    service.streams().catalog().dataset(&request.dataset).map_err(|error| status::of(&error.into()))?;
    let (cpu, updates) = (service.cpu().clone(), service.streams().fit(request.dataset, plan));
    let told = updates.then(move |update| {
        let cpu = cpu.clone();
        async move {
            let update = update.map_err(|error| status::of(&error))?;
            let body = cpu.run(move || forebay_proto::encode(&update, encoding)).await;
            Ok(arrow_flight::Result { body: body.map_err(|error| status::of(&error.into()))?.into() })
        }
    });
    Ok(told.boxed())
}

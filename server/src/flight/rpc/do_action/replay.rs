//! `replay`: the source rows of one batch, and a ticket for it.

use std::sync::Arc;

use bytes::Bytes;
use forebay_plan::PlanError;
use forebay_proto::{Encoding, v1};
use futures::{StreamExt, stream};
use tonic::Status;

use super::results::ActionResults;
use crate::flight::{context::CallContext, status, ticket};

pub(super) async fn results(context: &CallContext, body: &Bytes) -> Result<ActionResults, Status> {
    let (request, encoding): (v1::ReplayRequest, Encoding) = context.decode(body).await?;
    let missing =
        || status::of(&PlanError::field("stream", "missing: the StreamRequest whose batch is replayed").into());
    let message = request.stream.ok_or_else(missing)?;
    context.call.note(|facts| {
        facts.set_request(&message);
        facts.rank = Some(request.rank);
    });
    context.authorize_request(&message).await?;
    let replayed = context.streams().replay(message, request.rank, request.step).await;
    let replayed = replayed.map_err(|error| status::of(&error))?;
    let ticket_request = replayed.prepared.ticket_request(replayed.request.clone());
    let ticket = ticket::stream(&ticket_request, request.rank, 1, encoding);
    let about = v1::Replay {
        header: Some(replayed.header),
        ticket: context.access().sign(ticket, &context.caller).ticket.to_vec(),
        snapshot: replayed.prepared.snapshot_digest().to_owned(),
        plan_id: replayed.prepared.plan_id().to_owned(),
        rows: Vec::new(),
    };
    let (cpu, replayed) = (context.cpu().clone(), Arc::new(replayed));
    let parts = stream::iter(0..replayed.part_count()).then(move |part| {
        let (cpu, replayed, about) = (cpu.clone(), Arc::clone(&replayed), about.clone());
        async move {
            let encoded =
                cpu.run(move || forebay_proto::encode(&v1::Replay { rows: replayed.part(part), ..about }, encoding));
            let body = encoded.await.map_err(|error| status::of(&error.into()))?;
            Ok(arrow_flight::Result { body: body.into() })
        }
    });
    Ok(parts.boxed())
}

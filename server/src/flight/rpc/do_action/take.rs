//! `take`: rows by their numbers. Each result is a whole Arrow IPC stream of one batch, which any Arrow library reads.

use bytes::Bytes;
use forebay_proto::{Encoding, v1};
use futures::StreamExt;
use tonic::Status;

use super::results::ActionResults;
use crate::flight::{context::CallContext, status, wire};

pub(super) async fn results(context: &CallContext, body: &Bytes) -> Result<ActionResults, Status> {
    // Before any work, as for a stream.
    let permit = context.access().stream(&context.caller)?;
    let (request, _): (v1::TakeRequest, Encoding) = context.decode(body).await?;
    let taken = context.take(&request).await?;
    let schema = taken.schema();
    let batches = context.streams().take(taken).await.map_err(|error| status::of(&error))?;
    let (cpu, call) = (context.cpu().clone(), context.call.clone());
    let results = batches.then(move |batch| {
        // Held until the last result is sent.
        let _ = &permit;
        let (cpu, call, schema) = (cpu.clone(), call.clone(), schema.clone());
        async move {
            let batch = batch.map_err(|error| status::of(&error))?;
            call.note(|facts| facts.add_batch(batch.header.rows));
            let body = cpu.run(move || wire::ipc_stream(&schema, &batch.data)).await;
            let body = body.map_err(|error| status::of(&error.into()))?;
            Ok(arrow_flight::Result { body: body.map_err(|error| status::of(&error.into()))?.into() })
        }
    });
    Ok(results.boxed())
}

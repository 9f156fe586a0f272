//! `DoGet`: the messages of a ticket. tonic's service, the router's uncopied body and the ring all send this stream.
//!
//! A ticket is opened here; `encoded` makes the messages, `recorded` counts them, `resume` adds to errors
//! where the client can resume.

mod encoded;
mod recorded;
mod resume;

use std::future::ready;

use arrow::datatypes::SchemaRef;
use arrow_flight::Ticket;
use forebay_plan::PlanError;
use forebay_proto::{Encoding, v1};
use forebay_runtime::{metrics::StreamLabels, tenant::Tenant};
use forebay_stream::{BatchTask, PreparedTake, StreamError};
use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use tonic::Status;

use encoded::EncodedBatches;
use recorded::{Recorded, StreamRecord};
use resume::Resume;

use crate::{
    auth::StreamPermit,
    flight::{
        access::Access,
        context::CallContext,
        status, ticket,
        wire::{Encoder, Message},
    },
};

/// The messages of a stream, or the error that ends it.
pub(crate) type Messages = BoxStream<'static, Result<Message, Status>>;

/// A stream that a ticket opened.
struct OpenedStream {
    labels: StreamLabels,
    schema: SchemaRef,
    batches: BatchTask,
    headers: HeaderFormat,
    /// None for a raw table or a take, which cannot be resumed.
    resume: Option<Resume>,
}

/// How the headers of a stream are written.
#[derive(Clone, Copy, Debug)]
struct HeaderFormat {
    encoding: Encoding,
    /// Whether they hold the seconds spent in each stage.
    with_stage_seconds: bool,
}

/// The messages of a ticket: the schema, then the batches.
pub(crate) async fn messages(context: &CallContext, ticket: &Ticket) -> Result<Messages, Status> {
    // Before any work: rejecting a caller must cost next to nothing.
    let permit = context.access().stream(&context.caller)?;
    let ticket = context.access().unsigned(ticket, &context.caller)?;
    context.check_decoded::<v1::Ticket>(ticket::message(&ticket))?;
    let opened = match ticket::read(&ticket)? {
        v1::ticket::Read::Table(read) => {
            context.call.note(|facts| facts.set_dataset(&read.dataset));
            Access::dataset(&context.caller, context.streams(), &read.dataset)?;
            open_table(context, read).await
        }
        v1::ticket::Read::Stream(read) => {
            context.call.note(|facts| facts.rank = Some(read.rank));
            if let Some(request) = &read.request {
                context.call.note(|facts| facts.set_request(request));
                context.authorize_request(request).await?;
            }
            open_stream(context, read).await
        }
        v1::ticket::Read::Take(read) => {
            let request = read.request.unwrap_or_default();
            let taken = context.take(&request).await?;
            open_take(context, &request.dataset, taken, read.encoding).await
        }
    };
    opened.and_then(|opened| send(context, opened, permit)).map_err(|error| status::of(&error))
}

async fn open_table(context: &CallContext, read: v1::TableRead) -> Result<OpenedStream, StreamError> {
    let table = context.streams().raw_table(&read).await?;
    let labels = StreamLabels { stream: context.call.id.to_string(), dataset: read.dataset, ..StreamLabels::default() };
    let schema = table.schema();
    let batches = context.streams().table(table).await?;
    let headers = HeaderFormat { encoding: Encoding::Json, with_stage_seconds: false };
    Ok(OpenedStream { labels, schema, batches, headers, resume: None })
}

async fn open_stream(context: &CallContext, read: v1::StreamRead) -> Result<OpenedStream, StreamError> {
    let message = read.request.ok_or_else(|| PlanError::field("stream.request", "missing: a StreamRequest"))?;
    let prepared = context.streams().prepare(forebay_plan::Request::check(&message)?).await?;
    context.call.note(|facts| facts.set_plan_id(prepared.plan_id()));
    let request = prepared.request();
    let headers = HeaderFormat { encoding: encoding_of(read.encoding), with_stage_seconds: request.with_stage_seconds };
    let labels = StreamLabels {
        stream: context.call.id.to_string(),
        dataset: request.dataset.clone(),
        epoch: request.epoch.to_string(),
        rank: read.rank.to_string(),
    };
    let steps = Some(read.steps).filter(|steps| *steps > 0);
    let batches = context.streams().batches(&prepared, read.rank, steps).await?;
    let resume =
        Resume { position: request.start_position, step_rows: request.step_rows(), resumed_from: request.resumed_from };
    Ok(OpenedStream { labels, schema: prepared.schema(), batches, headers, resume: Some(resume) })
}

async fn open_take(
    context: &CallContext,
    dataset: &str,
    taken: PreparedTake,
    encoding: i32,
) -> Result<OpenedStream, StreamError> {
    let stream = context.call.id.to_string();
    let labels = StreamLabels { stream, dataset: dataset.to_owned(), ..StreamLabels::default() };
    let schema = taken.schema();
    let batches = context.streams().take(taken).await?;
    let headers = HeaderFormat { encoding: encoding_of(encoding), with_stage_seconds: false };
    Ok(OpenedStream { labels, schema, batches, headers, resume: None })
}

fn encoding_of(encoding: i32) -> Encoding {
    match v1::Encoding::try_from(encoding) {
        Ok(v1::Encoding::Protobuf) => Encoding::Protobuf,
        _ => Encoding::Json,
    }
}

fn send(context: &CallContext, opened: OpenedStream, permit: StreamPermit) -> Result<Messages, StreamError> {
    let OpenedStream { labels, schema, batches, headers, mut resume } = opened;
    let encoder = Encoder::new(&schema, headers.encoding)?;
    tracing::debug!(dataset = labels.dataset, position = resume.map(|resume| resume.position), "stream opened");
    let encoded = EncodedBatches {
        batches,
        encoder: Some(encoder),
        cpu: context.cpu().timed(),
        shutdown: context.resources.shutdown.clone(),
        with_stage_seconds: headers.with_stage_seconds,
        step_rows: resume.map(|resume| resume.step_rows),
        _permit: permit,
    };
    let recorded = Recorded::new(encoded.into_stream().boxed(), StreamRecord::open(&labels, context.call.clone()));
    let call = context.call.clone();
    let messages = recorded.map(move |batch| match batch {
        Ok(batch) => {
            if let Some(resume) = &mut resume {
                resume.position = batch.next_position;
            }
            Ok(stream::iter(batch.messages).map(Ok))
        }
        Err(interruption) => Err(call.error(&resume::status(&interruption, resume))),
    });
    let schema = stream::once(ready(Ok(Encoder::schema(&schema))));
    // Polled by the transport, outside of the call.
    Ok(Tenant::current().scope(schema.chain(messages.try_flatten())).boxed())
}

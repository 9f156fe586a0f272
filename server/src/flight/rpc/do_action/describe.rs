//! `describe`: what the columns of a dataset hold, with progress.

use bytes::Bytes;
use forebay_proto::{Encoding, v1};
use tonic::Status;

use super::results::{ActionResults, check_sources, updates};
use crate::flight::context::CallContext;

pub(super) async fn results(context: &CallContext, body: &Bytes) -> Result<ActionResults, Status> {
    let (request, encoding): (v1::DescribeRequest, Encoding) = context.decode(body).await?;
    context.call.note(|facts| facts.set_dataset(&request.dataset));
    let plan = v1::Plan { filter: request.filter.clone(), ..v1::Plan::default() };
    check_sources(context, &request.dataset, &plan).await?;
    Ok(updates(context.cpu(), context.streams().describe(request), encoding))
}

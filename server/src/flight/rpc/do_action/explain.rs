//! `explain`: the cost of an epoch.

use bytes::Bytes;
use forebay_proto::{Encoding, v1};
use tonic::Status;

use super::results::{ActionResults, one};
use crate::flight::{context::CallContext, status};

pub(super) async fn results(context: &CallContext, body: &Bytes) -> Result<ActionResults, Status> {
    let (request, encoding): (v1::StreamRequest, Encoding) = context.decode(body).await?;
    context.call.note(|facts| facts.set_request(&request));
    // Without a dataset no data is read.
    context.authorize_request(&request).await?;
    let explained = context.streams().explain(request).await.map_err(|error| status::of(&error))?;
    Ok(one(forebay_proto::encode(&explained, encoding)))
}

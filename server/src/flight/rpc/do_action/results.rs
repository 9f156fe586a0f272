//! The results of an action.

use futures::{StreamExt, stream, stream::BoxStream};
use tonic::Status;

pub(super) type ActionResults = BoxStream<'static, Result<arrow_flight::Result, Status>>;

/// A single result.
pub(super) fn one(body: Vec<u8>) -> ActionResults {
    stream::iter([Ok(arrow_flight::Result { body: body.into() })]).boxed()
}

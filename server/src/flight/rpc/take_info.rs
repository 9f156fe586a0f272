//! The info of a take: one endpoint, at every replica.

use arrow_flight::FlightInfo;
use forebay_proto::{Encoding, v1};
use forebay_stream::PreparedTake;
use tonic::Status;

use super::epoch_info::{endpoint, epoch_info};
use crate::flight::{context::CallContext, ticket};

pub(super) fn take_info(
    context: &CallContext,
    message: v1::TakeRequest,
    taken: &PreparedTake,
    encoding: Encoding,
) -> Result<FlightInfo, Status> {
    let about = v1::StreamInfo { rows: taken.row_count(), steps: taken.batch_count(), ..v1::StreamInfo::default() };
    let info = epoch_info(&taken.stream(), &about, encoding)?;
    let ticket = ticket::take(taken.ticket_request(message), encoding);
    Ok(info.with_endpoint(endpoint(context, ticket, Vec::new())).with_ordered(true))
}

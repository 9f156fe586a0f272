//! `GetFlightInfo`: a dataset's raw table, one epoch under a plan, the groups of one, or rows by their numbers.

use arrow_flight::{FlightDescriptor, FlightInfo};
use forebay_proto::{Encoding, v1};
use forebay_stream::Prepared;
use prost::Message as _;
use tonic::Status;

use super::{
    epoch_info::{endpoint, epoch_info},
    groups_info::groups_info,
    table_info::table_info,
    take_info::take_info,
};
use crate::flight::{context::CallContext, descriptor::FlightTarget, status, ticket};

/// The most bytes of a command that its info repeats.
const REPEATED_BYTES_MAX: usize = 64 << 10;

/// Limit of the bytes of all tickets of an info.
const TICKETS_BYTES_MAX: u64 = 64 << 20;

/// The info of what a descriptor names.
pub(crate) async fn info(context: &CallContext, mut descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
    let info = match FlightTarget::read(context, &descriptor).await? {
        FlightTarget::Table(read, encoding) => {
            let table = context.table(&read).await?;
            table_info(context, &table, encoding)?
        }
        FlightTarget::Stream(message, encoding) => {
            let prepared = context.prepare(&message).await?;
            stream_info(context, *message, &prepared, encoding)?
        }
        FlightTarget::Take(message, encoding) => {
            let taken = context.take(&message).await?;
            take_info(context, *message, &taken, encoding)?
        }
        FlightTarget::Groups(message, encoding) => {
            let groups = context.prepare_groups(&message).await?;
            groups_info(context, *message, groups, encoding).await?
        }
    };
    // A plan with vocabularies can have many megabytes. Clients require a descriptor, but not the command in it.
    if descriptor.cmd.len() > REPEATED_BYTES_MAX {
        descriptor.cmd.clear();
    }
    Ok(info.with_descriptor(descriptor))
}

/// An epoch under a plan: one endpoint a rank, in rank order.
fn stream_info(
    context: &CallContext,
    message: v1::StreamRequest,
    prepared: &Prepared,
    encoding: Encoding,
) -> Result<FlightInfo, Status> {
    let mut info = epoch_info(prepared, &prepared.stream_info(), encoding)?;
    let request = prepared.ticket_request(message);
    let (world_size, ticket_bytes) = (prepared.request().world_size, request.encoded_len() as u64);
    if ticket_bytes.saturating_mul(world_size) > TICKETS_BYTES_MAX {
        let message = format!(
            "world_size: the tickets of {world_size} ranks take {ticket_bytes} bytes each, and {TICKETS_BYTES_MAX} together \
             at most: use shorter plans, or the plan_ids of fitted ones"
        );
        return Err(status::refusal(v1::Reason::Limit, &message));
    }
    let _writing = context.reserve_endpoints(world_size, ticket_bytes)?;
    for rank in 0..world_size {
        let about = prepared.rank_info(rank);
        let ticket = ticket::stream(&request, rank, 0, encoding);
        info = info.with_endpoint(endpoint(context, ticket, forebay_proto::encode(&about, encoding)));
    }
    Ok(info)
}

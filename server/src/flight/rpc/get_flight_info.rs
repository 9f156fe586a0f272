//! `GetFlightInfo`: a dataset's raw table, or one epoch under a plan.

use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo};
use forebay_order::ORDER_VERSION;
use forebay_proto::{Encoding, v1};
use tonic::Status;

use super::table_info::{arrow_status, signed, table_info};
use crate::{
    flight::{context::CallContext, descriptor::FlightTarget, ticket},
    stream::Prepared,
};

/// The info of what a descriptor names.
pub(crate) async fn info(context: &CallContext, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
    match FlightTarget::read(context, &descriptor).await? {
        FlightTarget::Table(read, encoding) => {
            let table = context.table(&read).await?;
            Ok(table_info(context, &table, encoding)?.with_descriptor(descriptor))
        }
        FlightTarget::Stream(message, encoding) => {
            let prepared = context.prepare(&message).await?;
            Ok(stream_info(context, *message, &prepared, encoding)?.with_descriptor(descriptor))
        }
    }
}

/// An epoch under a plan: one endpoint a rank, in rank order.
fn stream_info(
    context: &CallContext,
    message: v1::StreamRequest,
    prepared: &Prepared,
    encoding: Encoding,
) -> Result<FlightInfo, Status> {
    let epoch = prepared.epoch();
    let rows = epoch.sent_row_count();
    let about = v1::StreamInfo {
        snapshot: prepared.snapshot_digest().to_owned(),
        plan_id: prepared.plan_id().to_owned(),
        rows,
        steps: epoch.step_count_max(),
        lanes: epoch.shuffle().map_or(0, |shuffle| shuffle.lanes),
        window_rows: epoch.shuffle().map_or(0, |shuffle| shuffle.window_rows),
        order_version: ORDER_VERSION,
    };
    let bytes = prepared.row_bytes().map_or(-1, |row_bytes| signed(rows.saturating_mul(row_bytes as u64)));
    let mut info = FlightInfo::new()
        .try_with_schema(&prepared.schema())
        .map_err(|error| arrow_status(&error))?
        .with_total_records(signed(rows))
        .with_total_bytes(bytes)
        .with_app_metadata(forebay_proto::encode(&about, encoding));
    let request = prepared.ticket_request(message);
    for rank in 0..prepared.request().world_size {
        let share = epoch.share(rank);
        let about = v1::RankInfo { rank, rows: share.row_count(), steps: share.step_count };
        let ticket = ticket::stream(&request, rank, 0, encoding);
        let endpoint = FlightEndpoint::new()
            .with_ticket(context.access().sign(ticket, &context.caller))
            .with_app_metadata(forebay_proto::encode(&about, encoding));
        let replicas = context.resources.replicas.iter();
        let endpoint = replicas.fold(endpoint, |endpoint, url| endpoint.with_location(url.as_str()));
        info = info.with_endpoint(endpoint);
    }
    Ok(info)
}

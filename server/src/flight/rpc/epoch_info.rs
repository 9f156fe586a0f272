//! The parts of the infos of streams and of groups.

use arrow_flight::{FlightEndpoint, FlightInfo, Ticket};
use forebay_proto::{Encoding, v1};
use forebay_stream::Prepared;
use tonic::Status;

use super::table_info::{arrow_status, signed};
use crate::flight::context::CallContext;

/// The info of an epoch without endpoints. `about` has its rows and steps; the rest is added here.
pub(super) fn epoch_info(
    prepared: &Prepared,
    about: &v1::StreamInfo,
    encoding: Encoding,
) -> Result<FlightInfo, Status> {
    let (shuffle, rows) = (prepared.epoch().shuffle(), about.rows);
    let about = v1::StreamInfo {
        snapshot: prepared.snapshot_digest().to_owned(),
        plan_id: prepared.plan_id().to_owned(),
        lanes: shuffle.map_or(0, |shuffle| shuffle.lanes),
        window_rows: shuffle.map_or(0, |shuffle| shuffle.window_rows),
        order_version: prepared.request().order_version.number(),
        sources: prepared.source_infos(),
        ..about.clone()
    };
    let bytes = prepared.row_bytes().map_or(-1, |row_bytes| signed(rows.saturating_mul(row_bytes as u64)));
    let info = FlightInfo::new().try_with_schema(&prepared.schema()).map_err(|error| arrow_status(&error))?;
    let info = info.with_total_records(signed(rows)).with_total_bytes(bytes);
    Ok(info.with_app_metadata(forebay_proto::encode(&about, encoding)))
}

/// An endpoint at every replica.
pub(super) fn endpoint(context: &CallContext, ticket: Ticket, about: Vec<u8>) -> FlightEndpoint {
    let endpoint = context.access().endpoint(ticket, &context.caller).with_app_metadata(about);
    let replicas = context.resources.replicas.iter();
    replicas.fold(endpoint, |endpoint, url| endpoint.with_location(url.as_str()))
}

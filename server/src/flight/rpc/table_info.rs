//! `FlightInfo` of raw tables, which `ListFlights` and `GetFlightInfo` return.

use arrow::{datatypes::Schema, error::ArrowError};
use arrow_flight::{FlightDescriptor, FlightInfo};
use forebay_catalog::{CatalogError, Dataset};
use forebay_proto::{
    Encoding,
    v1::{self, Reason},
};
use forebay_stream::RawTable;
use tonic::Status;

use crate::flight::{context::CallContext, status, ticket};

/// Rows of a raw table: one endpoint. The size of a part of the table is unknown.
pub(super) fn table_info(context: &CallContext, table: &RawTable, encoding: Encoding) -> Result<FlightInfo, Status> {
    let RawTable { snapshot, rows } = table;
    let about = v1::DatasetInfo {
        name: snapshot.dataset().to_owned(),
        snapshot: snapshot.digest().to_owned(),
        files: snapshot.files().len() as u64,
        row_groups: snapshot.row_groups().len() as u64,
        rows: snapshot.row_count(),
        bytes: snapshot.byte_count(),
        error: String::new(),
        table_version: snapshot.table_version().unwrap_or_default().to_owned(),
    };
    let bytes = if rows.is_part() { -1 } else { signed(snapshot.byte_count()) };
    let ticket = ticket::table(table.read());
    let endpoint = context.access().endpoint(ticket, &context.caller);
    let info = FlightInfo::new()
        .try_with_schema(&table.schema())
        .map_err(|error| arrow_status(&error))?
        .with_descriptor(FlightDescriptor::new_path(vec![snapshot.dataset().to_owned()]))
        .with_endpoint(endpoint)
        .with_total_records(signed(rows.row_count(snapshot.row_count())))
        .with_total_bytes(bytes)
        .with_ordered(true)
        .with_app_metadata(forebay_proto::encode(&about, encoding));
    Ok(info)
}

/// A dataset that cannot be read, with its error.
pub(super) fn unreadable_info(dataset: &Dataset, error: &CatalogError) -> Result<FlightInfo, Status> {
    let about =
        v1::DatasetInfo { name: dataset.name().to_owned(), error: error.to_string(), ..v1::DatasetInfo::default() };
    let info = FlightInfo::new()
        .try_with_schema(&Schema::empty())
        .map_err(|error| arrow_status(&error))?
        .with_descriptor(FlightDescriptor::new_path(vec![dataset.name().to_owned()]))
        .with_total_records(-1)
        .with_total_bytes(-1)
        .with_app_metadata(forebay_proto::to_json(&about));
    Ok(info)
}

pub(super) fn arrow_status(error: &ArrowError) -> Status {
    status::refusal(Reason::Internal, &format!("arrow: {error}"))
}

/// Flight's counts are signed.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

//! `ListFlights`: the raw table of every dataset that the caller may read.

use arrow_flight::FlightInfo;
use forebay_proto::Encoding;
use forebay_stream::RawTable;
use futures::{Stream, StreamExt};
use tonic::Status;

use super::table_info::{table_info, unreadable_info};
use crate::flight::context::CallContext;

/// One info a dataset. A dataset that cannot be read is listed with its error, and so is a view whose SQL has not run:
/// a list does not run it.
pub(crate) fn infos(context: CallContext) -> impl Stream<Item = Result<FlightInfo, Status>> + Send {
    let mut datasets = context.streams().catalog().datasets();
    datasets.retain(|dataset| context.caller.may_read(dataset.name()));
    futures::stream::iter(datasets).then(move |dataset| {
        let context = context.clone();
        async move {
            match dataset.known().await {
                Ok(snapshot) => table_info(&context, &RawTable::all(snapshot), Encoding::Json),
                Err(error) => unreadable_info(&dataset, &error),
            }
        }
    })
}

//! `ListFlights`: the raw table of every dataset that the caller may read.

use std::sync::Arc;

use arrow_flight::FlightInfo;
use futures::{Stream, StreamExt};
use tonic::Status;

use super::table_info::{table_info, unreadable_info};
use crate::{catalog::Dataset, flight::context::CallContext};

/// One info a dataset. A dataset that cannot be read is listed with its error.
pub(crate) fn infos(context: CallContext) -> impl Stream<Item = Result<FlightInfo, Status>> + Send {
    let granted = context.streams().catalog().datasets().filter(|dataset| context.caller.may_read(dataset.name()));
    let datasets: Vec<Arc<Dataset>> = granted.cloned().collect();
    futures::stream::iter(datasets).then(move |dataset| {
        let context = context.clone();
        async move {
            match dataset.present().await {
                Ok(snapshot) => table_info(&context, &snapshot),
                Err(error) => unreadable_info(&dataset, &error),
            }
        }
    })
}

//! Opening one rank's stream on one server.

use std::{sync::Arc, time::Duration};

use forebay_proto::v1::StreamRequest;
use tonic::Code;

use crate::{BatchStream, Client, Epoch, Error, Result, Retry, cursor::Cursor, transport::Link};

/// Servers that a stream can be read from.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    /// In order of preference, without duplicates.
    pub(crate) urls: Vec<Arc<str>>,
    pub(crate) retry: Retry,
    pub(crate) link: Link,
}

/// One rank's stream on one server.
pub(crate) struct Opened {
    pub(crate) url: Arc<str>,
    pub(crate) epoch: Epoch,
    pub(crate) batches: BatchStream,
}

/// Opens a rank's stream on one server after a pause, and checks the plan and order against the cursor.
pub(crate) async fn open_on(
    url: Arc<str>,
    request: &StreamRequest,
    rank: u64,
    cursor: Option<&Cursor>,
    pause: Duration,
    link: &Link,
) -> Result<Opened> {
    tokio::time::sleep(pause).await;
    let client = Client::connect_by(link, &url).await?;
    let epoch = match client.stream_info(request).await {
        Err(error) => return Err(explain_rejection(&client, request, cursor, error).await),
        Ok(epoch) => epoch,
    };
    if let Some(cursor) = cursor {
        cursor.check_info(&epoch.info)?;
    }
    let endpoint = usize::try_from(rank).ok().and_then(|rank| epoch.endpoints.get(rank));
    let endpoint = endpoint.ok_or(Error::Incomplete { call: "GetFlightInfo", missing: "endpoint for the rank" })?;
    let batches = client.read_from(endpoint, request).await?;
    Ok(Opened { url, epoch, batches })
}

/// Returns a mismatch of plans instead of the error about the position that it causes: the plan's filter determines the
/// number of rows in an epoch, so another plan's position can be past the end.
async fn explain_rejection(client: &Client, request: &StreamRequest, cursor: Option<&Cursor>, error: Error) -> Error {
    let Some(cursor) = cursor.filter(|_| error.code() == Some(Code::InvalidArgument) && request.start_position > 0)
    else {
        return error;
    };
    let beginning = StreamRequest { start_position: 0, resumed_from: 0, ..request.clone() };
    match client.stream_info(&beginning).await.map(|epoch| cursor.check_plan(&epoch.info.plan_id)) {
        Ok(Err(other_plan)) => other_plan.into(),
        _ => error,
    }
}

/// Adds a URL unless it is present.
pub(crate) fn add_url(urls: &mut Vec<Arc<str>>, url: &str) {
    if urls.iter().all(|known| **known != *url) {
        urls.push(url.into());
    }
}

//! The info of a grouped request: one endpoint a group, in the order of the keys.

use arrow_flight::FlightInfo;
use forebay_proto::{Encoding, v1};
use serde_json::Value;
use tonic::Status;

use super::epoch_info::{endpoint, epoch_info};
use crate::{
    flight::{context::CallContext, status, ticket},
    stream::PreparedGroups,
};

/// The info of all groups. There may be many, so they are written on the CPU pool.
pub(super) async fn groups_info(
    context: &CallContext,
    message: v1::StreamRequest,
    groups: PreparedGroups,
    encoding: Encoding,
) -> Result<FlightInfo, Status> {
    let (cpu, context) = (context.cpu().clone(), context.clone());
    let written = cpu.run(move || write(&context, message, &groups, encoding)).await;
    written.map_err(|error| status::of(&error.into()))?
}

fn write(
    context: &CallContext,
    message: v1::StreamRequest,
    groups: &PreparedGroups,
    encoding: Encoding,
) -> Result<FlightInfo, Status> {
    let mut request = groups.shared().ticket_request(message);
    let (mut rows, mut steps, mut endpoints) = (0_u64, 0, Vec::new());
    for (about, key) in groups.groups() {
        rows = rows.saturating_add(about.rows);
        steps = steps.max(about.steps);
        request.group.clone_from(&about.group);
        let ticket = ticket::stream(&request, 0, 0, encoding);
        endpoints.push(endpoint(context, ticket, metadata(&about, &key, encoding)));
    }
    let mut info = epoch_info(groups.shared(), rows, steps, encoding)?;
    info.endpoint = endpoints;
    Ok(info)
}

/// The description of a group; its JSON has the plain key too, for clients without the typed message.
fn metadata(about: &v1::GroupInfo, key: &Value, encoding: Encoding) -> Vec<u8> {
    let mut written = forebay_proto::encode(about, encoding);
    if encoding == Encoding::Json {
        // A field after the last one of a JSON object, which is never empty.
        written.pop();
        written.extend(format!(",\"key\":{key}}}").into_bytes());
    }
    written
}

//! The info of a grouped request: one endpoint a group, in the order of the keys.

use arrow_flight::FlightInfo;
use forebay_proto::{
    Encoding,
    v1::{self, group_key::Key},
};
use forebay_stream::PreparedGroups;
use prost::Message as _;
use serde_json::Value;
use tonic::Status;

use super::epoch_info::{endpoint, epoch_info};
use crate::flight::{context::CallContext, status, ticket};

/// 2^53, up to which a double holds every whole number.
const EXACT_MAX: u64 = 1 << 53;

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
    let _writing = context.reserve_endpoints(groups.groups().count() as u64, request.encoded_len() as u64)?;
    let (mut rows, mut steps, mut endpoints) = (0_u64, 0, Vec::new());
    for (about, key) in groups.groups() {
        rows = rows.saturating_add(about.rows);
        steps = steps.max(about.steps);
        request.group.clone_from(&about.group);
        let ticket = ticket::stream(&request, 0, 0, encoding);
        endpoints.push(endpoint(context, ticket, metadata(&about, &key, encoding)));
    }
    let about = v1::StreamInfo { rows, steps, ..v1::StreamInfo::default() };
    let mut info = epoch_info(groups.shared(), &about, encoding)?;
    info.endpoint = endpoints;
    Ok(info)
}

/// The description of a group; its JSON has the plain key too, for clients without the typed message.
fn metadata(about: &v1::GroupInfo, key: &Value, encoding: Encoding) -> Vec<u8> {
    let mut written = forebay_proto::encode(about, encoding);
    if encoding == Encoding::Json {
        if let Some((plain, text)) = large_key(about) {
            // The names before it are escaped, so nothing else of the message has this form.
            written = String::from_utf8_lossy(&written).replacen(&plain, &text, 1).into_bytes();
        }
        // A field after the last one of a JSON object, which is never empty.
        written.pop();
        written.extend(format!(",\"key\":{key}}}").into_bytes());
    }
    written
}

/// The JSON of a whole-number key that a double does not hold, as written and as text, which proto3 JSON reads as well. A
/// client of JavaScript sends the text back unchanged.
fn large_key(about: &v1::GroupInfo) -> Option<(String, String)> {
    let (field, digits, size) = match about.group.as_ref()?.key.as_ref()? {
        Key::Integer(value) => ("integer", value.to_string(), value.unsigned_abs()),
        Key::Unsigned(value) => ("unsigned", value.to_string(), *value),
        Key::Bucket(value) => ("bucket", value.to_string(), *value),
        Key::Null(_) | Key::Boolean(_) | Key::Text(_) | Key::Decimal(_) => return None,
    };
    (size > EXACT_MAX).then(|| (format!("\"{field}\":{digits}"), format!("\"{field}\":\"{digits}\"")))
}

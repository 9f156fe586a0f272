//! Plans that make some sense, and sometimes none: every op, over every kind of column, fitted where one has to learn.
//!
//! What is learned and sent must be the same whenever it is asked for: that is held here, too.

mod choices;

use arbitrary::Unstructured;
use arrow_flight::FlightInfo;
use forebay_proto::v1;
use tonic::Status;

use crate::server::{Server, with_tables};

/// The bytes are choices: what the plan's parts are, and how its epoch is read.
pub fn plan(data: &[u8]) {
    // Bytes that run out choose what comes first.
    let Ok(request) = choices::request(&mut Unstructured::new(data)) else { return };
    with_tables(|server| {
        if let Ok(info) = learned(server, request) {
            twice(server, &info);
        }
    });
}

/// The epoch of a request whose plan learns what it has to.
fn learned(server: &Server, mut request: v1::StreamRequest) -> Result<FlightInfo, Status> {
    let told = server.stream_info(&request);
    let Some(plan) = request.plan.clone().filter(|_| is_unfitted(&told)) else { return told };
    let fit = v1::FitRequest { dataset: request.dataset.clone(), plan: Some(plan) };
    let fitted = fitted(&server.act_on("fit", &fit)?);
    let again = self::fitted(&server.act_on("fit", &fit)?);
    assert_eq!(fitted.plan_id, again.plan_id, "two fits of one plan to one table");
    request.plan = fitted.plan;
    let inline = server.stream_info(&request)?;
    request.plan = None;
    request.plan_id.clone_from(&fitted.plan_id);
    let by_id = server.stream_info(&request)?;
    assert_eq!(inline.schema, by_id.schema, "a fitted plan and the plan of its id");
    Ok(by_id)
}

fn is_unfitted(told: &Result<FlightInfo, Status>) -> bool {
    told.as_ref().is_err_and(|status| status.message().contains("\"fit\""))
}

/// The result of a fit, behind all its progress.
fn fitted(updates: &[arrow_flight::Result]) -> v1::FitResult {
    let last = updates.last().and_then(|update| forebay_proto::decode::<v1::FitUpdate>(&update.body).ok());
    match last.and_then(|(update, _)| update.update) {
        Some(v1::fit_update::Update::Result(result)) => result,
        other => panic!("a fit ends with its result, not {other:?}"),
    }
}

/// Reads the first rank twice: the bytes are the same.
fn twice(server: &Server, info: &FlightInfo) {
    let Some(ticket) = info.endpoint.first().and_then(|endpoint| endpoint.ticket.clone()) else { return };
    match (server.get(ticket.clone()), server.get(ticket)) {
        (Ok(once), Ok(again)) => assert!(once == again, "two readings of one ticket differ"),
        (Err(once), Err(again)) => assert_eq!(once.code(), again.code(), "two readings of one ticket"),
        (once, again) => panic!("two readings of one ticket: {:?}, {:?}", once.err(), again.err()),
    }
}

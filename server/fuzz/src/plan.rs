//! Plans of any ops over columns of any kind, mostly valid, fitted where an op has parameters to learn.
//!
//! Repeating a fit or a read must give the same result, which this target checks too.

mod choices;
mod ops;
mod values;

use arbitrary::Unstructured;
use arrow_flight::FlightInfo;
use forebay_proto::v1::{self, Reason};
use tonic::Status;

use crate::server::{Server, with_tables};

/// The bytes choose the parts of a plan and how its epoch is read.
pub fn plan(data: &[u8]) {
    // Where the bytes end, `Unstructured` takes the first choice.
    let Ok(request) = choices::request(&mut Unstructured::new(data)) else { return };
    with_tables(|server| {
        if let Ok(info) = fitted_info(server, request) {
            read_twice(server, &info);
        }
    });
}

/// The info of a request's epoch, after a fit if its plan needs one.
fn fitted_info(server: &Server, mut request: v1::StreamRequest) -> Result<FlightInfo, Status> {
    let info = server.stream_info(&request);
    let Some(plan) = request.plan.clone().filter(|_| is_unfitted(&info)) else { return info };
    let fit = v1::FitRequest { dataset: request.dataset.clone(), plan: Some(plan), ..Default::default() };
    let fitted = fit_result(&server.act_on("fit", &fit)?);
    let again = fit_result(&server.act_on("fit", &fit)?);
    assert_eq!(fitted.plan_id, again.plan_id, "two fits of one plan to one table");
    request.plan = fitted.plan;
    let inline = server.stream_info(&request)?;
    request.plan = None;
    request.plan_id.clone_from(&fitted.plan_id);
    let by_id = server.stream_info(&request)?;
    assert_eq!(inline.schema, by_id.schema, "a fitted plan and the plan of its id");
    Ok(by_id)
}

fn is_unfitted(info: &Result<FlightInfo, Status>) -> bool {
    info.as_ref().is_err_and(|status| Reason::split(status.message()).0 == Reason::NotFitted)
}

/// The result of a fit: its last update.
fn fit_result(updates: &[arrow_flight::Result]) -> v1::FitResult {
    let last = updates.last().and_then(|update| forebay_proto::decode::<v1::FitUpdate>(&update.body).ok());
    match last.and_then(|(update, _)| update.update) {
        Some(v1::fit_update::Update::Result(result)) => result,
        other => panic!("a fit ends with {other:?} instead of its result"),
    }
}

/// Reads the first rank twice and compares the messages.
fn read_twice(server: &Server, info: &FlightInfo) {
    let Some(ticket) = info.endpoint.first().and_then(|endpoint| endpoint.ticket.clone()) else { return };
    match (server.get(&ticket), server.get(&ticket)) {
        (Ok(once), Ok(again)) => assert!(once == again, "two reads of one ticket differ"),
        (Err(once), Err(again)) => assert_eq!(once.code(), again.code(), "two reads of one ticket"),
        (once, again) => panic!("two reads of one ticket: {:?}, {:?}", once.err(), again.err()),
    }
}

//! The calls that this server does not implement, with what to use instead.

use forebay_proto::v1::Reason;
use tonic::Status;

use crate::flight::status;

pub(crate) fn poll_flight_info() -> Status {
    status::refusal(Reason::Unimplemented, "PollFlightInfo: flights are ready immediately; call GetFlightInfo")
}

pub(crate) fn handshake() -> Status {
    status::refusal(
        Reason::Unimplemented,
        "Handshake: not needed; send credentials with every call, as the header \"authorization: Bearer TOKEN\"",
    )
}

pub(crate) fn do_put() -> Status {
    status::refusal(
        Reason::Unimplemented,
        "DoPut: datasets are read from storage and never written: add Parquet files there",
    )
}

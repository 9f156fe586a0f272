//! The calls that this server does not implement, with what to use instead.

use tonic::Status;

pub(crate) fn poll_flight_info() -> Status {
    Status::unimplemented("PollFlightInfo: flights are ready immediately; call GetFlightInfo")
}

pub(crate) fn handshake() -> Status {
    Status::unimplemented(
        "Handshake: send credentials with every call, as the header \"authorization: Bearer TOKEN\"; no handshake is needed",
    )
}

pub(crate) fn do_put() -> Status {
    Status::unimplemented("DoPut: datasets are read from storage and never written: add Parquet files there")
}

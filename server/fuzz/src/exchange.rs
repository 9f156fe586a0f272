//! What a client sends to `DoExchange`: the bytes of the gRPC stream.

use arrow_flight::{FlightData, flight_service_server::FlightService as _};
use bytes::Bytes;
use http_body_util::Full;
use tonic::{Request, Streaming, codec::BufferSettings};
use tonic_prost::ProstDecoder;

use crate::{calls::taken, server::with_tables};

/// The largest message that is taken in; the server's own bound is 128 MiB.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The bytes are messages, each behind its flag and length, as gRPC has them.
pub fn exchange(data: &[u8]) {
    let body = Full::new(Bytes::copy_from_slice(data));
    let decoder = ProstDecoder::<FlightData>::new(BufferSettings::default());
    let messages = Streaming::new_request(decoder, body, None, Some(MESSAGE_BYTES_MAX));
    with_tables(|server| {
        let call = server.service().do_exchange(Request::new(messages));
        let _ = server.hold(async { taken(call.await?.into_inner()).await });
    });
}

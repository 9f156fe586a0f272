//! The first bytes of a client: a prefix and a `RingHello`.

use arrow_flight::Ticket;
use forebay_proto::{
    Encoding,
    v1::{self, Reason},
};
use hyper::{
    HeaderMap, Request,
    header::{HeaderName, HeaderValue},
};
use tonic::Status;

use crate::flight::{
    status,
    transport::router::{DO_GET, too_large},
};

/// The version of the protocol.
const VERSION: u32 = 1;

/// The first bytes of a connection.
const MAGIC: &[u8] = b"FBR1";

/// Bytes before the message: the magic and the length.
pub(super) const PREFIX_BYTES: usize = 8;

/// The most bytes of a hello, which is read before its caller is known: headers, and a ticket of 192 KiB in base64. The
/// client of a longer one reads it over Flight.
pub(super) const HELLO_BYTES_MAX: usize = 288 << 10;

/// The most headers of a call, and the most bytes of their names and values, as over HTTP/2.
const HEADERS_MAX: usize = 100;
const HEADER_BYTES_MAX: usize = 16 << 10;

/// A checked hello.
#[derive(Debug)]
pub(super) struct Hello {
    /// The call as a request without a body.
    pub request: Request<()>,
    pub ticket: Ticket,
    /// Slots that the client requests.
    pub slots: u32,
    /// Encoding of the hello and of the responses.
    pub encoding: Encoding,
}

/// The length of the message after a prefix.
pub(super) fn message_bytes(prefix: [u8; PREFIX_BYTES]) -> Result<usize, Status> {
    let [m0, m1, m2, m3, length @ ..] = prefix;
    if [m0, m1, m2, m3] != MAGIC {
        let text = "ring: the connection does not begin with FBR1: Flight clients connect to the path without .ring";
        return Err(status::refusal(Reason::InvalidRequest, text));
    }
    Ok(u32::from_le_bytes(length) as usize)
}

/// Checks the announced length of a message.
pub(super) fn check_bytes(length: usize, bytes_max: usize) -> Result<(), Status> {
    if length > bytes_max {
        return Err(too_large(bytes_max));
    }
    if length > HELLO_BYTES_MAX {
        let text = format!(
            "ring: a hello of {length} bytes, the limit is {HELLO_BYTES_MAX}: use Flight, or the plan_id of a fitted plan"
        );
        return Err(status::refusal(Reason::Limit, &text));
    }
    Ok(())
}

/// Reads and checks a hello.
pub(super) fn read(bytes: &[u8]) -> Result<Hello, Status> {
    let (hello, encoding) = forebay_proto::decode::<v1::RingHello>(bytes).map_err(|error| status::of_bytes(&error))?;
    if hello.version != VERSION {
        let text = format!("ring: version {} of the protocol, this server has {VERSION}: use Flight", hello.version);
        return Err(status::refusal(Reason::Unimplemented, &text));
    }
    let mut request = Request::new(());
    *request.uri_mut() = hyper::Uri::from_static(DO_GET);
    *request.headers_mut() = headers(&hello.headers)?;
    Ok(Hello { request, ticket: Ticket { ticket: hello.ticket.into() }, slots: hello.slots, encoding })
}

fn headers<'a>(
    given: impl IntoIterator<Item = (&'a String, &'a String), IntoIter: ExactSizeIterator>,
) -> Result<HeaderMap, Status> {
    let given = given.into_iter();
    let (count, mut bytes) = (given.len(), 0);
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        bytes += name.len() + value.len();
        if count > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
            let text = format!("ring: headers: the limits are {HEADERS_MAX} headers and {HEADER_BYTES_MAX} bytes");
            return Err(status::refusal(Reason::Limit, &text));
        }
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) else {
            let text = "ring: headers: a name or value has characters that headers cannot have";
            return Err(status::refusal(Reason::InvalidRequest, text));
        };
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic::Code;

    use super::*;

    fn hello(version: u32, headers: &[(&str, &str)]) -> v1::RingHello {
        let headers: HashMap<_, _> = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        v1::RingHello { version, slots: 5, headers, ticket: b"FBT1".to_vec() }
    }

    fn code(hello: &v1::RingHello) -> Option<Code> {
        read(&forebay_proto::encode(hello, Encoding::Json)).err().map(|status| status.code())
    }

    #[test]
    fn reads_a_hello_in_both_encodings() {
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let read = read(&forebay_proto::encode(&hello(1, &[("X-Request-Id", "job-7")]), encoding)).unwrap();
            assert_eq!((read.slots, &read.ticket.ticket[..], read.encoding), (5, &b"FBT1"[..], encoding));
            assert_eq!(read.request.headers()["x-request-id"], "job-7");
            assert_eq!(read.request.uri().path(), DO_GET);
        }
    }

    #[test]
    fn refuses_other_versions_headers_and_bytes() {
        assert_eq!(code(&hello(1, &[])), None);
        assert_eq!(code(&hello(2, &[])), Some(Code::Unimplemented));
        assert_eq!(code(&hello(1, &[("a b", "")])), Some(Code::InvalidArgument));
        assert_eq!(code(&hello(1, &[("a", "\n")])), Some(Code::InvalidArgument));
        assert_eq!(code(&hello(1, &[("a", &"x".repeat(HEADER_BYTES_MAX))])), Some(Code::ResourceExhausted));
        assert!(read(b"\xff\xff").is_err());
        assert!(check_bytes(HELLO_BYTES_MAX, usize::MAX).is_ok());
        let limit = check_bytes(HELLO_BYTES_MAX + 1, usize::MAX).unwrap_err();
        assert_eq!(limit.code(), Code::ResourceExhausted);
        assert_eq!(message_bytes(*b"FBR1\x01\x02\0\0").ok(), Some(513));
        assert!(message_bytes(*b"PRI * HT").is_err());
    }
}

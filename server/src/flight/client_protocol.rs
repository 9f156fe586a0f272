//! The protocol that a client uses: refuses one that this server does not support, and announces the server's own.

use std::fmt::Display;

use forebay_proto::{
    protocol::{PROTOCOL, PROTOCOL_HEADER, PROTOCOL_OLDEST, VERSION, VERSION_HEADER, shown_version},
    v1::Reason,
};
use hyper::{
    HeaderMap, Response,
    header::{HeaderName, HeaderValue},
};
use tonic::Status;

use super::status;

/// Refuses a client whose protocol this server does not support. A client that sends none may be any client of Arrow
/// Flight.
pub(super) fn check(headers: &HeaderMap) -> Result<(), Status> {
    let Some(sent) = headers.get(PROTOCOL_HEADER) else { return Ok(()) };
    let Some(protocol) = sent.to_str().ok().and_then(|text| text.parse::<u32>().ok()) else {
        let message = format!("header {PROTOCOL_HEADER}: expected a decimal integer, such as {PROTOCOL}");
        return Err(status::refusal(Reason::InvalidRequest, &message));
    };
    if (PROTOCOL_OLDEST..=PROTOCOL).contains(&protocol) {
        return Ok(());
    }
    let client = shown_version(headers.get(VERSION_HEADER).and_then(|version| version.to_str().ok()));
    let advice = if protocol > PROTOCOL {
        format!("upgrade the server, or use version {VERSION} of the client")
    } else {
        format!("upgrade the client to version {VERSION}")
    };
    let message = format!(
        "this client, forebay {client}, uses protocol {protocol}, and this server, forebay-server {VERSION}, \
         supports {}: {advice}",
        supported()
    );
    Err(status::refusal(Reason::IncompatibleVersion, &message))
}

/// Adds the version and the protocol of this server to a response.
pub(super) fn announce<B>(response: &mut Response<B>) {
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static(VERSION_HEADER), HeaderValue::from_static(VERSION));
    headers.insert(HeaderName::from_static(PROTOCOL_HEADER), HeaderValue::from(PROTOCOL));
}

fn supported() -> impl Display {
    if PROTOCOL_OLDEST == PROTOCOL {
        format!("protocol {PROTOCOL}")
    } else {
        format!("protocols {PROTOCOL_OLDEST} to {PROTOCOL}")
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn refused(protocol: &str, version: &str) -> Option<Status> {
        let mut headers = HeaderMap::new();
        headers.insert(PROTOCOL_HEADER, protocol.parse().unwrap());
        headers.insert(VERSION_HEADER, version.parse().unwrap());
        check(&headers).err()
    }

    #[test]
    fn speaks_its_protocols_and_any_client_of_flight() {
        assert!(check(&HeaderMap::new()).is_ok());
        for protocol in PROTOCOL_OLDEST..=PROTOCOL {
            assert!(refused(&protocol.to_string(), "0.1.0").is_none());
        }
    }

    #[test]
    fn a_refusal_names_both_versions_and_what_to_upgrade() {
        let newer = refused(&(PROTOCOL + 1).to_string(), "99.0.0").unwrap();
        assert_eq!(newer.code(), Code::FailedPrecondition);
        assert!(newer.message().starts_with("INCOMPATIBLE_VERSION: this client, forebay 99.0.0, uses protocol 2"));
        assert!(
            newer.message().contains(&format!("forebay-server {VERSION}, supports protocol 1: upgrade the server"))
        );
        let older = refused("0", "0.0.1").unwrap();
        assert!(older.message().contains("upgrade the client to version"), "{}", older.message());
    }

    #[test]
    fn another_value_is_an_invalid_request() {
        for value in ["", "one", "-1", "1.0", "99999999999"] {
            let status = refused(value, "1").unwrap();
            assert!(status.message().starts_with("INVALID_REQUEST: header forebay-protocol"), "{value}");
        }
    }
}

//! The version of a server, which it sends with every response, and the check of its protocol.

use forebay_proto::protocol::{PROTOCOL_HEADER, PROTOCOL_OLDEST, VERSION_HEADER, shown_version};
use tonic::metadata::MetadataMap;

use crate::{Error, Result};

/// What a server says about itself with a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerVersion {
    /// Its version; none for a server before versions, and for another one than forebay-server.
    pub version: Option<String>,
    /// The newest protocol that it supports.
    pub protocol: Option<u32>,
    /// The time of the response as an HTTP date, such as `Tue, 24 Nov 2026 12:00:00 GMT`.
    pub date: Option<String>,
}

impl ServerVersion {
    pub(crate) fn of(headers: &MetadataMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            version: text(VERSION_HEADER).map(|version| shown_version(Some(version)).to_owned()),
            protocol: text(PROTOCOL_HEADER).and_then(|protocol| protocol.parse().ok()),
            date: text("date").map(str::to_owned),
        }
    }
}

/// Fails if the server supports only older protocols than this client. One that does not say its protocol is tried.
pub(crate) fn check(headers: &MetadataMap, url: &str) -> Result<()> {
    let server = ServerVersion::of(headers);
    match server.protocol {
        Some(protocol) if protocol < PROTOCOL_OLDEST => Err(Error::IncompatibleVersion {
            url: url.to_owned(),
            server: server.version.unwrap_or_else(|| shown_version(None).to_owned()),
            protocol,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::v1::Reason;

    use super::*;

    fn headers(version: &'static str, protocol: &'static str) -> MetadataMap {
        let mut headers = MetadataMap::new();
        headers.insert(VERSION_HEADER, version.parse().unwrap());
        headers.insert(PROTOCOL_HEADER, protocol.parse().unwrap());
        headers
    }

    #[test]
    fn an_older_protocol_is_an_error_that_names_both_versions() {
        let error = check(&headers("0.0.1", "0"), "grpc://a:1").unwrap_err();
        assert_eq!(error.reason(), Reason::IncompatibleVersion);
        let text = error.to_string();
        assert!(text.starts_with("grpc://a:1 is forebay-server 0.0.1, which supports protocol 0"), "{text}");
        assert!(text.contains(&format!("forebay {}, needs protocol 1", env!("CARGO_PKG_VERSION"))), "{text}");
    }

    #[test]
    fn other_servers_are_tried() {
        assert!(check(&headers("9.0.0", "7"), "grpc://a:1").is_ok(), "a newer one refuses what it does not support");
        assert!(check(&headers("1", "x"), "grpc://a:1").is_ok());
        assert!(check(&MetadataMap::new(), "grpc://a:1").is_ok());
        assert_eq!(ServerVersion::of(&MetadataMap::new()), ServerVersion::default());
    }
}

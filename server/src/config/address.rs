//! Addresses that the server listens on, and URLs that it advertises.

use std::{net::SocketAddr, path::PathBuf};

use super::error::{ConfigError, wrong};

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Requirements of a `--listen` address that other machines can reach.
const LISTEN_PUBLIC: &str = "TLS (--tls-cert and --tls-key) and credentials (--principals or --tls-client-ca); listen on 127.0.0.1, or \
                             set --insecure-public to let any client that reaches it read every dataset";
/// Requirements of a `--metrics-listen` address that other machines can reach.
pub(super) const METRICS_PUBLIC: &str = "--metrics-public or --insecure-public, because any client that reaches it can read names of datasets and how much they are used";

pub(super) fn listen(value: &str, is_allowed: bool) -> Result<Listen, ConfigError> {
    match value.strip_prefix("unix:") {
        Some("") => Err(wrong("listen", value, "expected a path after unix:")),
        Some(path) => {
            let path = path.strip_prefix("//").unwrap_or(path);
            let absolute = std::path::absolute(path).map_err(|source| wrong("listen", value, source.to_string()))?;
            Ok(Listen::Unix(absolute))
        }
        None => tcp("listen", value, is_allowed, LISTEN_PUBLIC).map(Listen::Tcp),
    }
}

pub(super) fn replica(value: String) -> Result<String, ConfigError> {
    let schemes = ["grpc", "grpc+tcp", "grpc+tls", "grpc+unix"];
    match value.split_once("://") {
        Some((scheme, place)) if schemes.contains(&scheme) && !place.is_empty() => Ok(value),
        _ => Err(wrong("advertise", &value, "expected a URL for clients, such as grpc://replica-1:8815")),
    }
}

pub(super) fn tcp(flag: &'static str, value: &str, is_allowed: bool, needed: &str) -> Result<SocketAddr, ConfigError> {
    let text = value.strip_prefix("localhost:").map_or_else(|| value.to_owned(), |port| format!("127.0.0.1:{port}"));
    let allowed = "expected an address and a port, such as 127.0.0.1:8815, [::1]:8815 or unix:PATH";
    let address: SocketAddr = text.parse().map_err(|_| wrong(flag, value, allowed))?;
    if !address.ip().to_canonical().is_loopback() && !is_allowed {
        return Err(wrong(flag, value, format!("other machines can reach this address, which requires {needed}")));
    }
    Ok(address)
}

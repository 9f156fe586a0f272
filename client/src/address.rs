//! gRPC endpoints from server URLs, tuned for few, large streams.

use std::{net::IpAddr, time::Duration};

use tonic::transport::{Endpoint, Uri};

use crate::{Credentials, Error, Result};

/// Time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Idle time before a keepalive ping, and time limit of its response. Their sum is how long a replica that vanished
/// without closing its connection goes unnoticed.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Flow control window of a stream: two batches of 1024 rows of 4 KiB, so that the server writes one while the client
/// consumes the other. HTTP/2's default of 64 KiB costs a round trip every 64 KiB.
const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 4096;

/// Flow control window of a connection: HTTP/2's maximum, so that only the streams' windows apply. With a window of two
/// streams, two unread streams would block all others.
const CONNECTION_WINDOW_BYTES: u32 = i32::MAX as u32;

/// Maximum size of an HTTP/2 frame. With HTTP/2's default of 16 KiB a batch of a megabyte arrives in about 80 frames,
/// each with a header, a wake-up and a queue entry. Receiving a gigabyte costs 0.81 s of CPU with 16 KiB, 0.58 s with
/// 64 KiB, 0.49 s with 256 KiB and 0.47 s with 1 MiB. Larger frames interleave the streams of a connection less often.
/// Stream windows of 1 and 16 MiB were no better than the one above
/// (benches/runs/2026-11-21-x86-64-2-cores/receive.txt).
const FRAME_BYTES_MAX: u32 = 256 << 10;

const ALLOWED: &str = "allowed: grpc://HOST:PORT, grpc+tls://HOST:PORT, grpc+unix://PATH, unix:PATH";

/// Returns the endpoint of a server's URL. Makes no connection.
pub(crate) fn endpoint(url: &str, credentials: &Credentials) -> Result<Endpoint> {
    let refused = |reason: String| Error::Url { url: url.to_owned(), reason };
    let target = target(url).map_err(refused)?;
    let is_tls = target.starts_with("https://");
    if credentials.has_token() && !is_tls && !is_local(&target) {
        let reason =
            "a token is not sent over an unencrypted connection to another host; use grpc+tls://, or omit the token";
        return Err(refused(reason.to_owned()));
    }
    let endpoint = Endpoint::from_shared(target).map_err(|source| refused(format!("{source}; {ALLOWED}")))?;
    let endpoint = if is_tls {
        let endpoint = endpoint.tls_config(credentials.tls());
        endpoint.map_err(|source| refused(format!("cannot use the certificates: {}", chain(&source))))?
    } else {
        endpoint
    };
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        // hyper considers a connection with one stream idle once its opener is dropped or the server drains. Keepalive
        // matters most then.
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX))
}

/// Whether a URL is for TCP without TLS.
pub(crate) fn is_plain_tcp(url: &str) -> bool {
    target(url).is_ok_and(|target| target.starts_with("http://"))
}

/// Returns an error's message with those of its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

/// Whether an unencrypted connection stays on this machine.
fn is_local(target: &str) -> bool {
    let Some(authority) = target.strip_prefix("http://") else { return true };
    let host = authority.trim_end_matches('/').rsplit_once(':').map_or(authority, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The path of a Unix socket's URL.
pub(crate) fn unix_path(url: &str) -> Option<&str> {
    ["grpc+unix://", "grpc+unix:", "unix://", "unix:"].iter().find_map(|scheme| url.strip_prefix(scheme))
}

/// Converts a URL to tonic's form: `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`.
fn target(url: &str) -> std::result::Result<String, String> {
    if let Some(path) = unix_path(url) {
        return if path.is_empty() { Err(format!("missing path; {ALLOWED}")) } else { Ok(format!("unix:{path}")) };
    }
    let schemes = [("grpc://", "http"), ("grpc+tcp://", "http"), ("http://", "http"), ("grpc+tls://", "https")];
    let mut schemes = schemes.into_iter().chain([("grpcs://", "https"), ("https://", "https")]);
    let host = schemes.find_map(|(scheme, tonic_scheme)| Some((url.strip_prefix(scheme)?, tonic_scheme)));
    let (host, tonic_scheme) = host.ok_or_else(|| ALLOWED.to_owned())?;
    let target = format!("{tonic_scheme}://{host}");
    let uri: Uri = target.parse().map_err(|source| format!("{source}; {ALLOWED}"))?;
    if uri.port().is_none() {
        return Err(format!("missing port (forebay-server's default is 8815); {ALLOWED}"));
    }
    if !matches!(uri.path(), "" | "/") {
        return Err(format!("unexpected path; {ALLOWED}"));
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_urls_of_pyarrow_and_of_the_server() {
        let cases = [
            ("grpc://127.0.0.1:8815", "http://127.0.0.1:8815"),
            ("grpc+tcp://[::1]:8815", "http://[::1]:8815"),
            ("http://a.b:1", "http://a.b:1"),
            ("grpc+tls://a.b:1", "https://a.b:1"),
            ("grpc+unix:///run/forebay.sock", "unix:/run/forebay.sock"),
            ("unix:/run/forebay.sock", "unix:/run/forebay.sock"),
            ("unix:forebay.sock", "unix:forebay.sock"),
        ];
        for (url, expected) in cases {
            assert_eq!(target(url).as_deref(), Ok(expected), "{url}");
            endpoint(url, &Credentials::default()).unwrap();
        }
    }

    #[test]
    fn sends_a_token_only_over_tls_or_locally() {
        let known = Credentials::default().with_token("open sesame").unwrap();
        for (url, is_sent) in [
            ("grpc://127.0.0.1:1", true),
            ("grpc://localhost:1", true),
            ("grpc://[::1]:1", true),
            ("unix:/run/forebay.sock", true),
            ("grpc+tls://a.b:1", true),
            ("grpc://a.b:1", false),
            ("grpc://127.0.0.1.example:1", false),
            ("grpc://localhost.example:1", false),
            ("grpc://10.0.0.1:1", false),
        ] {
            assert_eq!(endpoint(url, &known).is_ok(), is_sent, "{url}");
        }
    }

    #[test]
    fn rejects_other_urls_and_lists_the_allowed_forms() {
        let urls =
            ["", "127.0.0.1:8815", "grpc://127.0.0.1", "grpc://", "grpc://a b:1", "unix:", "https://a", "grpc://a:1/b"];
        for url in urls {
            let message = endpoint(url, &Credentials::default()).unwrap_err().to_string();
            assert!(message.contains("grpc://HOST:PORT"), "{url}: {message}");
        }
    }
}

//! A server's URL → a gRPC endpoint tuned for few, large streams.

use std::net::IpAddr;
use std::time::Duration;

use tonic::transport::{Endpoint, Uri};

use crate::{Credentials, Error, Result};

/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Silence after which the server is asked whether it still lives, and how long it may take to answer. A replica that
/// vanished without closing its connection is noticed in their sum.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a stream that may be under way before the client has taken them: two batches of 1024 rows of 4 KiB, so
/// that the server writes one while the other is consumed (HTTP/2's own 64 KiB would wait a round trip every 64 KiB).
const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 4096;

/// Bytes of all the streams of a connection: as many as HTTP/2 can name, so that the streams' own windows are what
/// bounds them. With room for two full streams, two that nobody reads for a while would stop all others.
const CONNECTION_WINDOW_BYTES: u32 = i32::MAX as u32;

/// Bytes of an HTTP/2 frame at most. With HTTP/2's own 16 KiB a batch of a megabyte comes in some 80 frames, each with
/// its own header, wake-up and place in a queue: a gigabyte then costs 0.81 s of CPU, with 64 KiB 0.58 s, with 256 KiB
/// 0.49 s and with 1 MiB 0.47 s. Smaller frames let the streams of a connection take turns more often, hence no larger
/// ones. Stream windows of 1 and 16 MiB were no better than the one above (benches/runs/2026-11-21-x86-64-2-cores/receive.txt).
const FRAME_BYTES_MAX: u32 = 256 << 10;

const ALLOWED: &str = "allowed: grpc://HOST:PORT, grpc+tls://HOST:PORT, grpc+unix://PATH, unix:PATH";

/// Reads a server's URL. Nothing is connected yet.
pub(crate) fn endpoint(url: &str, credentials: &Credentials) -> Result<Endpoint> {
    let refused = |reason: String| Error::Url { url: url.to_owned(), reason };
    let target = target(url).map_err(refused)?;
    let is_tls = target.starts_with("https://");
    if credentials.has_token() && !is_tls && !stays_here(&target) {
        let reason =
            "a token is not sent over a connection that others can read; say grpc+tls://, or leave the token out";
        return Err(refused(reason.to_owned()));
    }
    let endpoint = Endpoint::from_shared(target).map_err(|source| refused(format!("{source}; {ALLOWED}")))?;
    let endpoint = if is_tls {
        let endpoint = endpoint.tls_config(credentials.tls());
        endpoint.map_err(|source| refused(format!("the certificates cannot be used: {}", chain(&source))))?
    } else {
        endpoint
    };
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        // hyper calls a connection idle that carries one stream, once whoever opened it is gone or the server has said
        // that it drains. Then is when a stream of ours is most in need of being asked after.
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX))
}

/// An error and its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

/// Whether a plain connection does not leave this machine.
fn stays_here(target: &str) -> bool {
    let Some(place) = target.strip_prefix("http://") else { return true };
    let host = place.trim_end_matches('/').rsplit_once(':').map_or(place, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The URL in the form that tonic reads: `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`.
fn target(url: &str) -> std::result::Result<String, String> {
    let path = ["grpc+unix://", "grpc+unix:", "unix://", "unix:"].iter().find_map(|scheme| url.strip_prefix(scheme));
    if let Some(path) = path {
        return if path.is_empty() { Err(format!("it has no path; {ALLOWED}")) } else { Ok(format!("unix:{path}")) };
    }
    let schemes = [("grpc://", "http"), ("grpc+tcp://", "http"), ("http://", "http"), ("grpc+tls://", "https")];
    let mut schemes = schemes.into_iter().chain([("grpcs://", "https"), ("https://", "https")]);
    let host = schemes.find_map(|(scheme, spoken)| Some((url.strip_prefix(scheme)?, spoken)));
    let (host, spoken) = host.ok_or_else(|| ALLOWED.to_owned())?;
    let target = format!("{spoken}://{host}");
    let uri: Uri = target.parse().map_err(|source| format!("{source}; {ALLOWED}"))?;
    if uri.port().is_none() {
        return Err(format!("it has no port (forebay-server's own is 8815); {ALLOWED}"));
    }
    if !matches!(uri.path(), "" | "/") {
        return Err(format!("it has a path; {ALLOWED}"));
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_pyarrow_and_of_the_server_are_read() {
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
    fn a_token_goes_where_nobody_else_reads_it() {
        let known = Credentials::default().with_token("open sesame").unwrap();
        for (url, goes) in [
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
            assert_eq!(endpoint(url, &known).is_ok(), goes, "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused_with_what_is_allowed() {
        let urls =
            ["", "127.0.0.1:8815", "grpc://127.0.0.1", "grpc://", "grpc://a b:1", "unix:", "https://a", "grpc://a:1/b"];
        for url in urls {
            let message = endpoint(url, &Credentials::default()).unwrap_err().to_string();
            assert!(message.contains("grpc://HOST:PORT"), "{url}: {message}");
        }
    }
}

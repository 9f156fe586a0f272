//! Checks of a server: whether it answers, its version, TLS, and its clock.

use std::time::Duration;

use chrono::{DateTime, Utc};
use forebay_client::{Client, Credentials, Error, ServerVersion};
use tokio::time::timeout;

use super::finding::Finding;

/// Time limit of the connection and the call.
const PATIENCE: Duration = Duration::from_secs(15);

/// Differences of the clocks, in seconds. Dates have no fractions; certificates and signed tickets depend on the clock.
const SKEW_NOTED: i64 = 2;
const SKEW_WRONG: i64 = 60;

/// Checks a server. Returns whether it was reached.
pub(super) async fn check(url: &str, credentials: &Credentials) -> (bool, Vec<Finding>) {
    match timeout(PATIENCE, ask(url, credentials)).await {
        Err(_) => {
            let found = format!("{url} does not answer within {} s", PATIENCE.as_secs());
            (false, vec![Finding::wrong("server", found, "is a firewall or proxy between here and there?")])
        }
        Ok(Err(error)) => failed(url, &error),
        Ok(Ok(version)) => (true, answered(url, &version, Utc::now())),
    }
}

async fn ask(url: &str, credentials: &Credentials) -> Result<ServerVersion, Error> {
    Client::connect_with(url, credentials).await?.server_version().await
}

fn failed(url: &str, error: &Error) -> (bool, Vec<Finding>) {
    let finding = match error {
        Error::Handshake { mismatch, .. } => Finding::wrong("TLS", url, mismatch.to_string()),
        Error::Unreachable { .. } => {
            let advice = "start one with `forebay serve DIR`, or name it with --server URL";
            Finding::wrong("server", format!("none answers at {url}"), advice)
        }
        Error::IncompatibleVersion { .. } => Finding::wrong("server", error.to_string(), ""),
        other => Finding::wrong("server", url, other.to_string()),
    };
    (!matches!(error, Error::Unreachable { .. } | Error::Url { .. }), vec![finding])
}

fn answered(url: &str, server: &ServerVersion, now: DateTime<Utc>) -> Vec<Finding> {
    vec![version(url, server), tls(url), clock(server.date.as_deref(), now)]
}

fn version(url: &str, server: &ServerVersion) -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    match &server.version {
        Some(version) if version == own => Finding::ok("server", format!("forebay-server {version} at {url}")),
        Some(version) => Finding::note(
            "server",
            format!("forebay-server {version} at {url}, and this is forebay {own}"),
            "they share a protocol; what only the newer one has does not work",
        ),
        None => {
            Finding::note("server", format!("{url} does not say its version"), "it is older, or not forebay-server")
        }
    }
}

fn tls(url: &str) -> Finding {
    let is_local = ["grpc+unix:", "unix:", "grpc://127.", "grpc://localhost:", "grpc://[::1]:"];
    if url.starts_with("grpc+tls://") {
        Finding::ok("TLS", "the server's certificate is valid")
    } else if is_local.iter().any(|start| url.starts_with(start)) {
        Finding::ok("TLS", "not needed: the connection stays on this machine")
    } else {
        let advice = "anyone on the way can read it; set --tls-cert and --tls-key, and use grpc+tls://";
        Finding::note("TLS", "the connection is not encrypted", advice)
    }
}

fn clock(date: Option<&str>, now: DateTime<Utc>) -> Finding {
    let Some(theirs) = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok()) else {
        return Finding::note("clock", "the server does not say its time", "compare the clocks by hand");
    };
    let seconds = (now - theirs.with_timezone(&Utc)).num_seconds();
    let found = match seconds {
        0 => "that of the server is the same".to_owned(),
        _ if seconds > 0 => format!("this machine is {seconds} s faster than the server"),
        _ => format!("this machine is {} s slower than the server", -seconds),
    };
    let advice = "certificates and signed tickets depend on it; synchronize both with NTP";
    match seconds.abs() {
        0..=SKEW_NOTED => Finding::ok("clock", found),
        ..=SKEW_WRONG => Finding::note("clock", found, advice),
        _ => Finding::wrong("clock", found, advice),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Health, *};

    #[test]
    fn clocks_are_compared() {
        let now = DateTime::parse_from_rfc2822("Tue, 24 Nov 2026 12:00:30 GMT").unwrap().with_timezone(&Utc);
        let cases = [
            ("Tue, 24 Nov 2026 12:00:30 GMT", Health::Ok, "the same"),
            ("Tue, 24 Nov 2026 12:00:25 GMT", Health::Note, "5 s faster"),
            ("Tue, 24 Nov 2026 12:05:30 GMT", Health::Wrong, "300 s slower"),
            ("yesterday", Health::Note, "does not say"),
        ];
        for (date, status, words) in cases {
            let finding = clock(Some(date), now);
            assert!(finding.status == status && finding.found.contains(words), "{finding:?}");
        }
        assert_eq!(clock(None, now).status, Health::Note);
    }

    #[test]
    fn versions_and_encryption_are_named() {
        let of =
            |version: Option<&str>| ServerVersion { version: version.map(str::to_owned), ..ServerVersion::default() };
        assert_eq!(version("grpc://a:1", &of(Some(env!("CARGO_PKG_VERSION")))).status, Health::Ok);
        assert!(version("grpc://a:1", &of(Some("99.0"))).found.contains("forebay-server 99.0 at grpc://a:1"));
        assert_eq!(version("grpc://a:1", &of(None)).status, Health::Note);
        let statuses =
            ["grpc+tls://a:1", "grpc+unix:///a", "grpc://127.0.0.1:1", "grpc://a:1"].map(|url| tls(url).status);
        assert_eq!(statuses, [Health::Ok, Health::Ok, Health::Ok, Health::Note]);
    }
}

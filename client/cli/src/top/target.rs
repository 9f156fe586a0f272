//! Address of a metrics page: `http://HOST:PORT/metrics`, or `HOST:PORT` for short.

use std::{fmt, str::FromStr};

use hyper::Uri;

/// Default port of `forebay-server`'s metrics.
const PORT: u16 = 9815;

/// Default port of a URL.
const HTTP_PORT: u16 = 80;

const PAGE: &str = "/metrics";

/// Address of a metrics page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Name or address, without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    /// `HOST:PORT`, the request's Host header.
    pub(super) authority: String,
    /// Path and query.
    pub(super) page: String,
}

/// Why a text is not the address of a page.
#[derive(Debug, thiserror::Error)]
#[error("{reason}; expected http://HOST:PORT/metrics or HOST:PORT, as set by --metrics-listen of forebay-server")]
pub(crate) struct TargetError {
    reason: &'static str,
}

// === impl Target ===

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let error = |reason| TargetError { reason };
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let port = match scheme {
            "" => PORT,
            "http" => HTTP_PORT,
            "https" => return Err(error("metrics are served over plain HTTP, without TLS")),
            "grpc" | "grpc+tcp" | "grpc+unix" => return Err(error("this is the address of the Flight service")),
            _ => return Err(error("not an http:// URL")),
        };
        if rest.contains('@') {
            return Err(error("metrics pages use no user and no password"));
        }
        let uri: Uri = format!("http://{rest}").parse().map_err(|_| error("not a URL"))?;
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let written = uri.authority().map_or("", |authority| authority.as_str());
        // A port above 65535 parses as none.
        let has_port = written.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        if host.is_empty() || has_port && uri.port_u16().is_none_or(|port| port == 0) {
            return Err(error("missing host or invalid port"));
        }
        let port = uri.port_u16().unwrap_or(port);
        let authority = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let page = match uri.path_and_query().map_or("/", |page| page.as_str()) {
            "/" => PAGE.to_owned(),
            page => page.to_owned(),
        };
        Ok(Self { host, port, authority, page })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}{}", self.authority, self.page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completes_a_host_and_port() {
        let cases = [
            ("http://127.0.0.1:9815/metrics", "http://127.0.0.1:9815/metrics"),
            ("10.0.0.7:9815", "http://10.0.0.7:9815/metrics"),
            ("gpu-7", "http://gpu-7:9815/metrics"),
            ("http://gpu-7", "http://gpu-7:80/metrics"),
            ("http://gpu-7/", "http://gpu-7:80/metrics"),
            ("http://gpu-7:1/a/metrics?x=1", "http://gpu-7:1/a/metrics?x=1"),
            ("[::1]:9815", "http://[::1]:9815/metrics"),
            ("http://[::1]", "http://[::1]:80/metrics"),
            (" gpu-7:1 ", "http://gpu-7:1/metrics"),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), expected, "{text}");
        }
        assert_eq!("[::1]:9815".parse::<Target>().unwrap().host, "::1");
    }

    #[test]
    fn rejects_other_text_with_the_expected_form() {
        let cases = [
            ("grpc://127.0.0.1:8815", "address of the Flight service"),
            ("https://gpu-7/metrics", "TLS"),
            ("ftp://gpu-7", "not an http:// URL"),
            ("http://user:secret@gpu-7", "no password"),
            ("http://", "not a URL"),
            ("", "not a URL"),
            ("gpu-7:0", "invalid port"),
            ("gpu-7:99999", "expected"),
            ("gpu 7", "not a URL"),
            ("gpu-7:\u{1b}[31m", "not a URL"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("--metrics-listen"), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}

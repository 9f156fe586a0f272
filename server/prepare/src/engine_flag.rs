//! The value of `--engine`: embedded, or the address of a cluster's scheduler.

use std::{fmt, str::FromStr};

use url::Url;

/// The name of the engine in this process.
const EMBEDDED: &str = "embedded";

/// The scheme of a cluster's URL.
const BALLISTA: &str = "ballista";

/// The value of `--engine`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EngineFlag {
    /// DataFusion in this process.
    Embedded,
    /// A cluster.
    Ballista(SchedulerAddress),
}

/// The address of a cluster's scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchedulerAddress {
    host: String,
    port: u16,
}

// === impl EngineFlag ===

impl FromStr for EngineFlag {
    type Err = String;

    fn from_str(value: &str) -> Result<Self, String> {
        if value == EMBEDDED {
            return Ok(Self::Embedded);
        }
        let wrong = || format!("expected {EMBEDDED} or {BALLISTA}://HOST:PORT");
        let url = Url::parse(value).map_err(|_| wrong())?;
        let is_bare = matches!(url.path(), "" | "/")
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        match (url.host_str(), url.port()) {
            (Some(host), Some(port)) if url.scheme() == BALLISTA && is_bare && !host.is_empty() && port > 0 => {
                Ok(Self::Ballista(SchedulerAddress { host: host.to_owned(), port }))
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for EngineFlag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => formatter.write_str(EMBEDDED),
            Self::Ballista(address) => address.fmt(formatter),
        }
    }
}

// === impl SchedulerAddress ===

impl SchedulerAddress {
    /// The URL of its gRPC service.
    #[cfg(feature = "ballista")]
    pub(crate) fn http(&self) -> String {
        format!("http://{}:{}", self.host, self.port)
    }

    /// Its parts.
    #[cfg(feature = "ballista")]
    pub(crate) fn host_and_port(&self) -> (String, u16) {
        (self.host.clone(), self.port)
    }
}

impl fmt::Display for SchedulerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{BALLISTA}://{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_embedded_or_a_host_and_port() {
        for value in ["embedded", "ballista://scheduler:50050", "ballista://10.0.0.1:1", "ballista://[::1]:50050"] {
            assert_eq!(value.parse::<EngineFlag>().unwrap().to_string(), value);
        }
        let wrong = [
            "",
            "ballista",
            "ballista://",
            "ballista://host",
            "ballista://host:0",
            "ballista://host:70000",
            "ballista://:50050",
            "ballista://host:1/path",
            "ballista://user@host:1",
            "ballista://host:1?a=b",
            "http://host:1",
            "Embedded",
        ];
        for value in wrong {
            assert!(value.parse::<EngineFlag>().is_err(), "{value}");
        }
    }
}

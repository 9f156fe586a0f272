//! Checks of the ports that a server on this machine takes by default.

use std::{io, net::TcpListener};

use super::finding::Finding;

/// The server's default ports: Flight, and the metrics page.
const PORTS: [(&str, u16, &str); 2] =
    [("port 8815", 8815, "--port"), ("port 9815", 9815, "-- --metrics-listen 127.0.0.1:PORT")];

/// Checks whether a server could listen.
pub(super) fn check() -> Vec<Finding> {
    PORTS
        .into_iter()
        .map(|(name, port, flag)| of(name, TcpListener::bind(("127.0.0.1", port)).map(drop), flag))
        .collect()
}

fn of(name: &'static str, outcome: io::Result<()>, flag: &str) -> Finding {
    match outcome {
        Ok(()) => Finding::ok(name, "free for a server on this machine"),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Finding::note(name, "another program listens there", format!("pass `forebay serve DIR {flag}`"))
        }
        Err(error) => {
            Finding::note(name, format!("cannot listen there: {error}"), format!("pass `forebay serve DIR {flag}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Health, *};

    #[test]
    fn a_port_in_use_has_a_remedy() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let finding = of("port", TcpListener::bind(taken.local_addr().unwrap()).map(drop), "--port");
        assert_eq!((finding.status, finding.found.as_str()), (Health::Note, "another program listens there"));
        assert!(finding.advice.contains("--port"));
        assert_eq!(of("port", Ok(()), "").status, Health::Ok);
    }
}

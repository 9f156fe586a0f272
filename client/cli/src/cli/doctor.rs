//! `forebay doctor`: what this machine and a server have that training needs, and what to do about the rest.

mod finding;
mod machine;
mod ports;
mod server;

use std::process::ExitCode;

use clap::Args;
use forebay_client::Credentials;

use self::finding::{Finding, Health};
use super::{
    failure::Failure,
    output::{self, Align},
};

/// Check what training needs: versions, ports, TLS, clocks, limits, the GPU's driver, shared memory. Exit code 1 if
/// something is wrong
#[derive(Debug, Args)]
pub(crate) struct Doctor {}

impl Doctor {
    pub(crate) async fn run(self, url: &str, credentials: &Credentials, json: bool) -> Result<ExitCode, Failure> {
        let (is_reached, mut findings) = server::check(url, credentials).await;
        findings.insert(0, machine::programs());
        if !is_reached {
            findings.extend(ports::check());
        }
        findings.extend([machine::descriptors(), machine::driver()]);
        findings.extend(machine::shared_memory(url));
        output::write(&if json { lines(&findings)? } else { text(&findings) })?;
        let is_wrong = findings.iter().any(|finding| finding.status == Health::Wrong);
        Ok(if is_wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn lines(findings: &[Finding]) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(findings).map_err(Failure::Json)?;
    Ok(text + "\n")
}

fn text(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let status = match finding.status {
            Health::Ok => "ok",
            Health::Note => "note",
            Health::Wrong => "WRONG",
        };
        let what = if finding.advice.is_empty() {
            finding.found.clone()
        } else {
            format!("{}: {}", finding.found, finding.advice)
        };
        vec![status.to_owned(), finding.check.to_owned(), what]
    };
    let rows: Vec<Vec<String>> = findings.iter().map(row).collect();
    output::columns(&[Align::Left, Align::Left, Align::Left], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_was_found_and_what_to_do() {
        let findings = [
            Finding::ok("clock", "within a second"),
            Finding::note("driver", "none", "features are computed on the CPU"),
            Finding::wrong("server", "no answer", "start it"),
        ];
        assert_eq!(
            text(&findings),
            "ok     clock   within a second\n\
             note   driver  none: features are computed on the CPU\n\
             WRONG  server  no answer: start it\n"
        );
        let parsed: serde_json::Value = serde_json::from_str(&lines(&findings).unwrap()).unwrap();
        assert_eq!((&parsed[0]["status"], &parsed[2]["advice"]), (&"ok".into(), &"start it".into()));
    }
}

//! `forebay doctor` with and without a server.

use std::process::Output;

use serde_json::Value;

use crate::server::{Server, binary, forebay};

fn findings(output: &Output) -> Vec<Value> {
    serde_json::from_slice::<Value>(&output.stdout).unwrap().as_array().unwrap().clone()
}

fn finding<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    findings.iter().find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("{check}: {findings:#?}"))
}

#[test]
fn a_server_is_found_with_its_version_and_clock() {
    let server = Server::start();
    let output = server.forebay(&["doctor", "--json"]).env("FOREBAY_SERVER_BIN", binary()).output().unwrap();
    let found = findings(&output);
    for check in ["programs", "server", "TLS", "clock"] {
        assert_eq!(finding(&found, check)["status"], "ok", "{found:#?}");
    }
    assert!(finding(&found, "server")["found"].as_str().unwrap().contains(env!("CARGO_PKG_VERSION")));
    for check in ["descriptors", "driver", "ring"] {
        assert!(finding(&found, check)["found"].as_str().is_some_and(|text| !text.is_empty()));
    }
    let is_wrong = found.iter().any(|finding| finding["status"] == "wrong");
    assert_eq!(output.status.code(), Some(i32::from(is_wrong)), "{found:#?}");
    let text = server.forebay(&["doctor"]).output().unwrap();
    assert_eq!(String::from_utf8(text.stdout).unwrap().lines().count(), found.len());
}

#[test]
fn a_missing_server_is_wrong_and_its_ports_are_checked() {
    // Port 1 is reserved and nothing listens on it.
    let output = forebay(&["--server", "grpc://127.0.0.1:1", "doctor", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let found = findings(&output);
    let server = finding(&found, "server");
    assert_eq!(server["status"], "wrong");
    assert!(server["advice"].as_str().unwrap().contains("forebay serve DIR"), "{server}");
    assert!(["ok", "note"].map(Value::from).contains(&finding(&found, "port 8815")["status"]));
    finding(&found, "port 9815");
}

#[test]
fn a_program_of_another_machine_is_wrong() {
    let output = forebay(&["--server", "grpc://127.0.0.1:1", "doctor", "--json"])
        .env("FOREBAY_SERVER_BIN", "/bin/false")
        .output()
        .unwrap();
    let found = findings(&output);
    assert_eq!(finding(&found, "programs")["status"], "wrong");
    let output = forebay(&["--server", "http//a", "doctor"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

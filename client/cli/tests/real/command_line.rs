//! `forebay` as used by people and scripts.

use std::{
    fs::{self, File},
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::{
    data::{self, PLAN},
    server::{Server, forebay},
};

pub(crate) fn stdout(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let messages = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}: {messages}");
    String::from_utf8(stdout).unwrap()
}

/// Returns the exit code and stderr of a command that fails without output on stdout.
pub(crate) fn failure(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&stdout), "", "{command:?}");
    (status.code(), String::from_utf8(stderr).unwrap())
}

pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn ls_shows_every_dataset() {
    let server = Server::start();
    let text = stdout(&mut server.forebay(&["ls"]));
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).map(str::to_owned).unwrap();
    assert!(line("broken").contains("error: "), "{text}");
    let cells: Vec<String> = line("numbers").split_whitespace().map(str::to_owned).collect();
    // Name, rows, size and its unit, files, row groups, snapshot.
    assert_eq!((cells[1].as_str(), cells[4].as_str(), cells[5].as_str()), ("100", "2", "4"), "{text}");
    let list: Value = serde_json::from_str(&stdout(&mut server.forebay(&["ls", "--json"]))).unwrap();
    let numbers = list.as_array().unwrap().iter().find(|dataset| dataset["name"] == "numbers").unwrap();
    assert_eq!((&numbers["rows"], &numbers["error"]), (&json!(data::ROWS), &json!("")));
}

#[test]
fn schema_shows_the_stored_columns() {
    let server = Server::start();
    let text = stdout(&mut server.forebay(&["schema", "numbers"]));
    assert!(text.lines().any(|line| line.split_whitespace().eq(["id", "Int64", "no"])), "{text}");
    let columns: Value = serde_json::from_str(&stdout(&mut server.forebay(&["--json", "schema", "numbers"]))).unwrap();
    assert_eq!(columns[1], json!({"name": "delay", "type": "Float64", "nullable": true}));
}

#[test]
fn head_shows_raw_rows() {
    let server = Server::start();
    let rows = json_lines(&stdout(&mut server.forebay(&["head", "numbers", "--rows", "60", "--json"])));
    assert_eq!(rows.len(), 60, "more than a row group and a file have");
    assert_eq!(rows[0], json!({"id": 0, "delay": null, "carrier": "AA"}));
    assert_eq!(rows[59], json!({"id": 59, "delay": 9.0, "carrier": "UA"}));
    let table = stdout(&mut server.forebay(&["head", "numbers"]));
    assert_eq!(table.lines().filter(|line| line.contains("| ") && !line.contains("carrier")).count(), 10, "{table}");
    fs::write(server.folder.path().join("forebay.toml"), "[head]\nrows = 3").unwrap();
    let rows = stdout(&mut server.forebay(&["--config", "forebay.toml", "--json", "head", "numbers"]));
    assert_eq!(json_lines(&rows).len(), 3);
    let rows = stdout(server.forebay(&["head", "numbers"]).env("FOREBAY_JSON", "yes").env("FOREBAY_ROWS", ""));
    assert_eq!(json_lines(&rows).len(), 10, "an empty variable is unset");
}

#[test]
fn a_fitted_plan_is_saved_shown_and_reused() {
    let server = Server::start();
    let folder = server.folder.path();
    fs::write(folder.join("plan.json"), PLAN).unwrap();
    let fitted = stdout(&mut server.forebay(&["fit", "numbers", "--plan", "plan.json", "--json"]));
    fs::write(folder.join("fitted.json"), &fitted).unwrap();
    let again = stdout(&mut server.forebay(&["fit", "numbers", "--plan", "fitted.json", "--json"]));
    assert_eq!(again, fitted, "equal fits have equal bytes");
    assert!(fitted.starts_with("{\n  \"plan_id\": \"") && fitted.contains("\n  \"version\": 1,\n"), "{fitted}");
    assert!(fitted.lines().any(|line| line.trim() == "\"AA\","), "a value a line: {fitted}");
    let value: Value = serde_json::from_str(&fitted).unwrap();
    let plan_id = value["plan_id"].as_str().unwrap();

    let kept = server.forebay(&["fit", "numbers", "--plan", "plan.json", "--json"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&kept.stdout), fitted, "a kept fit has the bytes of the first one");
    assert!(String::from_utf8_lossy(&kept.stderr).contains("--refit learns again"), "{kept:?}");
    for flag in ["--refit", "--no-cache"] {
        let learned = server.forebay(&["fit", "numbers", "--plan", "plan.json", "--json", flag]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&learned.stdout), fitted);
        assert!(learned.stderr.is_empty(), "{learned:?}");
    }

    let shown = stdout(&mut server.forebay(&["show", plan_id, "--json"]));
    assert_eq!(shown, fitted, "the stored plan is the fitted one");
    let table = stdout(&mut server.forebay(&["show", plan_id]));
    assert!(table.contains(plan_id) && table.contains("strings: \"AA\", "), "{table}");

    let mut from_stdin = server.forebay(&["fit", "numbers", "--plan", "-"]);
    let summary = stdout(from_stdin.stdin(File::open(folder.join("plan.json")).unwrap()));
    assert!(summary.contains(plan_id) && summary.contains("vocab "), "{summary}");

    let by_file = stdout(&mut server.forebay(&["head", "numbers", "--plan", "fitted.json", "--json"]));
    let by_id = stdout(&mut server.forebay(&["head", "numbers", "--plan-id", plan_id, "--json"]));
    assert_eq!(by_file, by_id);
    let rows = json_lines(&by_id);
    assert_eq!((rows.len(), &rows[9]["id"]), (10, &json!(9)));
    // "AA" is the most frequent carrier, having 34 of the 100 rows.
    assert_eq!((&rows[0]["cats"], &rows[1]["cats"]), (&json!(1), &json!(2)));
    assert!(rows[0]["dense"].as_f64().unwrap().abs() < 1e-6, "a null became the mean: {}", rows[0]);
}

#[test]
fn stored_plans_are_listed_and_removed_by_a_prefix() {
    let server = Server::start();
    fs::write(server.folder.path().join("plan.json"), PLAN).unwrap();
    assert_eq!(stdout(&mut server.forebay(&["plans", "ls", "--json"])), "[]\n");
    let fitted = stdout(&mut server.forebay(&["fit", "numbers", "--plan", "plan.json", "--json"]));
    let plan_id = fitted.split('"').nth(3).unwrap();
    let plans: Value = serde_json::from_str(&stdout(&mut server.forebay(&["plans", "ls", "--json"]))).unwrap();
    assert_eq!((plans.as_array().unwrap().len(), &plans[0]["plan_id"]), (1, &json!(plan_id)));
    let dataset = &plans[0]["datasets"][0];
    assert_eq!(
        (&dataset["name"], &dataset["rows"], &dataset["fitted"]),
        (&json!("numbers"), &json!(100), &json!(true))
    );
    let table = stdout(&mut server.forebay(&["plans", "ls"]));
    let row = table.lines().nth(1).unwrap();
    assert!(row.starts_with(plan_id) && row.contains("  numbers ") && row.contains(" 100 "), "{table}");

    let (code, messages) = failure(&mut server.forebay(&["plans", "rm", "0000"]));
    assert!(code == Some(1) && messages.contains("NOT_FOUND") && messages.contains(plan_id), "{messages}");
    let (code, _) = failure(&mut server.forebay(&["plans", "rm"]));
    assert_eq!(code, Some(2));
    assert_eq!(stdout(&mut server.forebay(&["plans", "rm", &plan_id[..6]])), format!("removed {plan_id}\n"));
    assert_eq!(stdout(&mut server.forebay(&["plans", "ls", "--json"])), "[]\n");
    let (code, messages) = failure(&mut server.forebay(&["show", plan_id]));
    assert!(code == Some(1) && messages.contains("NOT_FOUND"), "{messages}");
}

#[test]
fn failures_exit_with_1_and_the_servers_message() {
    let server = Server::start();
    fs::write(server.folder.path().join("plan.json"), PLAN).unwrap();
    fs::write(server.folder.path().join("no-plan.json"), "{\"outptus\": []}").unwrap();
    let fitted = stdout(&mut server.forebay(&["fit", "numbers", "--plan", "plan.json", "--json"]));
    let plan_id = fitted.split('"').nth(3).unwrap();
    let near = plan_id.replace(&plan_id[8..9], if &plan_id[8..9] == "0" { "1" } else { "0" });
    fs::write(server.folder.path().join("edited.json"), fitted.replace("\"AA\"", "\"ZZ\"")).unwrap();
    fs::write(server.folder.path().join("newer.json"), fitted.replace("\"version\": 1", "\"version\": 7")).unwrap();
    let cases: [(&[&str], &str); 11] = [
        (&["show", "0000"], "NOT_FOUND"),
        (&["show", &near], plan_id),
        (&["show", "../plans"], "NOT_FOUND"),
        (&["head", "numbers", "--plan", "edited.json"], "it was edited"),
        (&["head", "numbers", "--plan", "newer.json"], "has version 7"),
        (&["schema", "nubmers"], "NOT_FOUND"),
        (&["head", "broken"], "broken"),
        (&["head", "numbers", "--plan", "plan.json"], "FAILED_PRECONDITION"),
        (&["head", "numbers", "--plan-id", "0000"], "NOT_FOUND"),
        (&["fit", "numbers", "--plan", "no-plan.json"], "outptus"),
        (&["fit", "numbers", "--plan", "none.json"], "none.json"),
    ];
    for (arguments, expected) in cases {
        let (code, messages) = failure(&mut server.forebay(arguments));
        assert!(code == Some(1) && messages.contains(expected), "{arguments:?}: {code:?}: {messages}");
    }
}

#[test]
fn an_unreachable_server_is_named_with_a_hint_to_start_it() {
    // Port 1 is reserved and nothing listens on it.
    let (code, messages) = failure(&mut forebay(&["--server", "grpc://127.0.0.1:1", "ls"]));
    assert_eq!(code, Some(1));
    assert!(messages.contains("grpc://127.0.0.1:1") && messages.contains("start it with"), "{messages}");
}

#[test]
fn invalid_usage_and_configuration_exit_with_2() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("typo.toml"), "sever = 'grpc://a:1'").unwrap();
    let cases: [(&[&str], &str); 12] = [
        (&["explain"], "DATASET"),
        (&["explain", "--rows", "10"], "DATASET"),
        (&["explain", "a", "--wire-bytes-per-second", "2G"], "write GB for powers of 1000"),
        (&["explain", "a", "--plan", "b", "--plan-id", "c"], "cannot be used with"),
        (&["replay", "a", "--plan", "b"], "--step"),
        (&["replay", "a", "--step", "1", "--remainder", "most"], "keep, drop, pad"),
        (&["list"], "unrecognized subcommand"),
        (&["head"], "required"),
        (&["head", "a", "--rows", "0"], "--rows"),
        (&["head", "a", "--plan", "b", "--plan-id", "c"], "cannot be used with"),
        (&["--server", "http//a", "ls"], "grpc://HOST:PORT"),
        (&["--config", "typo.toml", "ls"], "unknown key `sever`; did you mean `serve`, `server`?"),
    ];
    for (arguments, expected) in cases {
        let (code, messages) = failure(forebay(arguments).current_dir(folder.path()));
        assert!(code == Some(2) && messages.contains(expected), "{arguments:?}: {code:?}: {messages}");
    }
    for flag in ["--help", "--version"] {
        assert!(stdout(&mut forebay(&[flag])).contains("forebay"));
    }
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let server = Server::start();
    let mut child =
        server.forebay(&["head", "numbers", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    assert_eq!((status.code(), String::from_utf8_lossy(&stderr).as_ref()), (Some(0), ""));
}

//! `forebay plan check` and `forebay plan init` against a real server.

use std::fs;

use serde_json::{Value, json};

use crate::{
    command_line::{failure, json_lines, stdout},
    data::PLAN,
    server::Server,
};

#[test]
fn a_check_shows_types_nulls_and_what_a_fit_learns() {
    let server = Server::start();
    let folder = server.folder.path();
    fs::write(folder.join("plan.json"), PLAN).unwrap();
    let text = stdout(&mut server.forebay(&["plan", "check", "plan.json", "--dataset", "numbers"]));
    let row =
        |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row("dense"), ["dense", "float", "1", "none"], "{text}");
    assert_eq!(row("cats"), ["cats", "int32", "1", "none"], "{text}");
    assert_eq!(row("id"), ["id", "int64", "1", "none"], "{text}");
    assert!(text.contains("a fit learns in 2 passes over the rows"), "{text}");
    let json = stdout(&mut server.forebay(&["plan", "check", "plan.json", "--dataset", "numbers", "--json"]));
    let checked: Value = serde_json::from_str(&json).unwrap();
    let learned: Vec<(&Value, &Value, &Value)> =
        checked["learns"].as_array().unwrap().iter().map(|one| (&one["column"], &one["op"], &one["pass"])).collect();
    assert_eq!(
        learned,
        [
            (&json!("delay"), &json!("fill_null"), &json!(1)),
            (&json!("carrier"), &json!("vocab"), &json!(1)),
            (&json!("delay"), &json!("standardize"), &json!(2))
        ]
    );
    assert_eq!(checked["columns"], json!(["id", "delay", "carrier"]));
    // Nothing was fitted.
    assert_eq!(stdout(&mut server.forebay(&["plans", "ls", "--json"])), "[]\n");
}

#[test]
fn nulls_that_end_a_stream_are_found_unless_they_cannot_occur() {
    let server = Server::start();
    let cases = [
        (r#"{"outputs": [{"name": "x", "parts": [{"columns": ["id", "delay"]}]}]}"#, json!(["delay"]), false),
        (
            r#"{"outputs": [{"name": "x", "parts": [{"columns": ["delay"], "ops": [{"fill_null": {"value": 0}}]}]}]}"#,
            json!([]),
            false,
        ),
        (
            r#"{"filter": "delay IS NOT NULL", "outputs": [{"name": "x", "parts": [{"columns": ["delay"]}]}]}"#,
            json!([]),
            false,
        ),
        (
            r#"{"filter": "delay > 3 AND id >= 0", "outputs": [{"name": "x", "parts": [{"columns": ["delay"]}]}]}"#,
            json!([]),
            false,
        ),
        (
            r#"{"filter": "delay > 3 OR id < 9", "outputs": [{"name": "x", "parts": [{"columns": ["delay"]}]}]}"#,
            json!(["delay"]),
            false,
        ),
        (
            r#"{"derive": {"d": "delay + 1"}, "outputs": [{"name": "x", "parts": [{"columns": ["d"]}]}]}"#,
            json!(["d"]),
            false,
        ),
        (
            r#"{"filter": "delay > 3", "derive": {"d": "delay + 1"},
                "outputs": [{"name": "x", "parts": [{"columns": ["d"]}]}]}"#,
            json!([]),
            false,
        ),
        (r#"{"outputs": [{"name": "x", "dtype": "AS_STORED", "parts": [{"columns": ["delay"]}]}]}"#, json!([]), true),
    ];
    for (plan, null_columns, nullable) in cases {
        fs::write(server.folder.path().join("plan.json"), plan).unwrap();
        let json = stdout(&mut server.forebay(&["plan", "check", "plan.json", "--dataset", "numbers", "--json"]));
        let checked: Value = serde_json::from_str(&json).unwrap();
        let output = &checked["outputs"][0];
        assert_eq!((&output["null_columns"], &output["nullable"]), (&null_columns, &json!(nullable)), "{plan}");
        let streamed = server.forebay(&["head", "numbers", "--plan", "plan.json", "--rows", "100"]).output().unwrap();
        // What the check says is what a stream does.
        assert_eq!(streamed.status.success(), null_columns == json!([]), "{plan}: {streamed:?}");
    }
}

#[test]
fn a_width_that_a_fit_determines_is_open() {
    let server = Server::start();
    let plan = r#"{"outputs": [
        {"name": "hot", "parts": [{"columns": ["carrier"], "ops": [{"vocab": {}}, {"one_hot": {}}]}]},
        {"name": "wide", "parts": [
            {"columns": ["carrier"], "ops": [{"vocab": {}}, {"one_hot": {"size": 7}}]}, {"columns": ["id"]}]}]}"#;
    fs::write(server.folder.path().join("plan.json"), plan).unwrap();
    let json = stdout(&mut server.forebay(&["plan", "check", "plan.json", "--dataset", "numbers", "--json"]));
    let checked: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(checked["outputs"][0]["width"], Value::Null);
    assert_eq!(checked["outputs"][1]["width"], json!(8));
}

#[test]
fn mistakes_are_named_with_their_place() {
    let server = Server::start();
    let plan = "outputs:\n  - name: x\n    parts:\n      - columns: [carier]\n";
    fs::write(server.folder.path().join("plan.yaml"), plan).unwrap();
    let (code, messages) = failure(&mut server.forebay(&["plan", "check", "plan.yaml", "--dataset", "numbers"]));
    assert_eq!(code, Some(1));
    assert!(messages.contains("plan.yaml: line 4, column") && messages.contains("carrier"), "{messages}");
    fs::write(server.folder.path().join("plan.json"), PLAN).unwrap();
    let (code, messages) = failure(&mut server.forebay(&["plan", "check", "plan.json", "--dataset", "nubmers"]));
    assert!(code == Some(1) && messages.contains("NOT_FOUND") && messages.contains("numbers"), "{messages}");
    assert_eq!(failure(&mut server.forebay(&["plan", "check", "plan.json"])).0, Some(2));
    assert_eq!(failure(&mut server.forebay(&["plan"])).0, Some(2));
}

#[test]
fn a_guessed_plan_passes_the_check_is_fitted_and_streams() {
    let server = Server::start();
    for (file, arguments) in [("plan.yaml", &[][..]), ("plan.json", &["--label", "delay"][..])] {
        let written = server.forebay(&[&["plan", "init", "numbers", "-o", file], arguments].concat()).output().unwrap();
        assert!(written.status.success() && written.stdout.is_empty(), "{written:?}");
        let checked = stdout(&mut server.forebay(&["plan", "check", file, "--dataset", "numbers", "--json"]));
        let checked: Value = serde_json::from_str(&checked).unwrap();
        for output in checked["outputs"].as_array().unwrap() {
            assert_eq!(output["null_columns"], json!([]), "{file}");
        }
        let fitted = stdout(&mut server.forebay(&["fit", "numbers", "--plan", file, "--json"]));
        fs::write(server.folder.path().join("fitted.json"), fitted).unwrap();
        let rows =
            stdout(&mut server.forebay(&["head", "numbers", "--plan", "fitted.json", "--rows", "100", "--json"]));
        let rows = json_lines(&rows);
        assert_eq!(rows.len(), if file == "plan.json" { 90 } else { 100 });
        assert_eq!(rows[0].get("label").is_some(), file == "plan.json");
    }
    let printed = stdout(&mut server.forebay(&["plan", "init", "numbers"]));
    assert_eq!(printed, fs::read_to_string(server.folder.path().join("plan.yaml")).unwrap());
    assert!(printed.contains("# id is left out: nearly every value"), "{printed}");
    let plan: Value =
        serde_json::from_str(&stdout(&mut server.forebay(&["plan", "init", "numbers", "--json"]))).unwrap();
    assert!(plan["outputs"].is_array());
    // A file that was edited is kept.
    let (code, messages) = failure(&mut server.forebay(&["plan", "init", "numbers", "-o", "plan.yaml"]));
    assert!(code == Some(1) && messages.contains("exists"), "{messages}");
    for arguments in [["-o", "plan.txt"], ["--label", "none"]] {
        let (code, _) = failure(&mut server.forebay(&[&["plan", "init", "numbers"], &arguments[..]].concat()));
        assert_eq!(code, Some(2), "{arguments:?}");
    }
}

#[test]
fn a_sample_is_measured() {
    let server = Server::start();
    let printed = stdout(&mut server.forebay(&["plan", "init", "numbers", "--sample-rows", "40", "--json"]));
    let plan: Value = serde_json::from_str(&printed).unwrap();
    let ops = |column: &str| {
        let outputs = plan["outputs"].as_array().unwrap().iter();
        let mut parts = outputs.flat_map(|output| output["parts"].as_array().unwrap());
        parts.find(|part| part["columns"].as_array().unwrap().contains(&json!(column))).map(|part| part["ops"].clone())
    };
    // The carrier's vocabulary takes nulls, and the delay may have some outside of the sample.
    assert_eq!(ops("carrier"), Some(json!([{"vocab": {}}])), "{printed}");
    assert!(
        ops("delay").is_some_and(|ops| ops[0].get("fill_null").is_some() || ops[0].get("vocab").is_some()),
        "{printed}"
    );
}

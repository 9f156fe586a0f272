//! `forebay serve` on real folders, with a real server program.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::{
    command_line::{failure, stdout},
    data,
    server::{binary, forebay},
};

/// Generous time limit.
const PATIENCE: Duration = Duration::from_mins(2);

/// A running `forebay serve`.
struct Serving {
    process: Child,
    line: Value,
}

impl Serving {
    /// Serves a folder on a free port with --json, and waits until it listens.
    fn start(folder: &Path, more: &[&str]) -> Self {
        let arguments = [&["--json", "serve", "data", "--port", "0", "--"], more].concat();
        let mut command = forebay(&arguments);
        command.env("FOREBAY_SERVER_BIN", binary()).env("FOREBAY_STATE", "state").env("FOREBAY_TEST", "1");
        let mut process = command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = process.stderr.take().unwrap();
        let log = thread::spawn(move || {
            let mut text = String::new();
            BufReader::new(stderr).read_to_string(&mut text).unwrap();
            text
        });
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let line = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}: {}", log.join().unwrap()));
        Self { process, line }
    }

    fn url(&self) -> &str {
        self.line["url"].as_str().unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process.id().cast_signed()).unwrap(), signal).unwrap();
    }

    fn code(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "still running");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The ids of its child processes.
    fn children(&self) -> Vec<Pid> {
        let id = self.process.id();
        let text = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        text.split_whitespace().map(|id| Pid::from_raw(id.parse().unwrap()).unwrap()).collect()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn folder(datasets: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in datasets {
        data::write(&folder.path().join("data").join(name));
    }
    folder
}

#[test]
fn serves_a_folder_of_datasets_and_ends_with_the_servers_code() {
    let folder = folder(&["numbers", "others"]);
    fs::create_dir(folder.path().join("data/empty")).unwrap();
    let mut serving = Serving::start(folder.path(), &["--drain-seconds", "0"]);
    let names: Vec<&Value> = serving.line["datasets"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["numbers", "others"]);
    assert_eq!(serving.line["datasets"][0]["rows"], data::ROWS);
    assert!(serving.line["metrics"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    let list: Value =
        serde_json::from_str(&stdout(&mut forebay(&["--server", serving.url(), "--json", "ls"]))).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 2);
    serving.signal(Signal::TERM);
    assert_eq!(serving.code(), Some(0));
}

#[test]
fn a_folder_of_files_is_one_dataset_and_an_interrupt_ends_it() {
    let folder = folder(&[""]);
    let mut serving = Serving::start(folder.path(), &["--drain-seconds", "0"]);
    assert_eq!(serving.line["datasets"][0]["name"], "data");
    serving.signal(Signal::INT);
    assert_eq!(serving.code(), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn the_server_ends_when_serve_is_killed() {
    let folder = folder(&["numbers"]);
    let mut serving = Serving::start(folder.path(), &["--drain-seconds", "0"]);
    let [server] = serving.children()[..] else { panic!("one child") };
    serving.signal(Signal::KILL);
    assert_eq!(serving.code(), None);
    let start = Instant::now();
    while test_kill_process(server).is_ok() {
        assert!(start.elapsed() < PATIENCE, "the server is still running");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn prints_three_lines_of_python() {
    let folder = folder(&["numbers"]);
    let mut command = forebay(&["serve", "data", "--port", "0", "--", "--drain-seconds", "0"]);
    command.env("FOREBAY_SERVER_BIN", binary()).env("FOREBAY_STATE", "state");
    let mut process = command.current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    let shown: Vec<String> = lines.take(7).collect();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(shown[0], "serving numbers: 100 rows");
    let snippet: Vec<&str> = shown[4..].iter().map(|line| line.trim()).collect();
    assert_eq!(
        snippet[..2],
        ["import forebay as fb", "plan = fb.Plan(outputs={\"x\": fb.cols.numeric().fill_null(0)})"]
    );
    assert!(snippet[2].starts_with("for batch in fb.connect(\"grpc://127.0.0.1:"), "{shown:#?}");
    assert!(snippet[2].contains(".stream(\"numbers\", plan, batch_size=1024, shuffle=True)"), "{shown:#?}");
}

#[test]
fn wrong_folders_and_options_are_named() {
    let folder = folder(&["numbers"]);
    fs::create_dir(folder.path().join("empty")).unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&["serve"], "DIR"),
        (&["serve", "none"], "none: No such file"),
        (&["serve", "empty"], "has no Parquet or Arrow files"),
        (&["serve", "data", "--port", "0", "--", "--no-such-option"], "--no-such-option"),
    ];
    for (arguments, expected) in cases {
        let mut command = forebay(arguments);
        command.env("FOREBAY_SERVER_BIN", binary()).env("FOREBAY_STATE", "state").current_dir(folder.path());
        let (code, messages) = failure(&mut command);
        assert!(code == Some(2) && messages.contains(expected), "{arguments:?}: {code:?}: {messages}");
    }
    let mut command = forebay(&["serve", "data"]);
    command.env("FOREBAY_SERVER_BIN", "/nonexistent/program").current_dir(folder.path());
    let (code, messages) = failure(&mut command);
    assert!(code == Some(1) && messages.contains("cannot run /nonexistent/program"), "{messages}");
}

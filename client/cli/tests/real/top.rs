//! `forebay top` against real servers and against malformed pages.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    command_line::{failure, stdout},
    data::{self, WIDE_PLAN},
    server::{Server, forebay},
    terminal::Terminal,
};

/// Generous time limit.
const PATIENCE: Duration = Duration::from_mins(2);

/// Server with two open streams, ranks 0 and 1, which read consecutive epochs until it is dropped.
struct Busy {
    server: Server,
    load: Child,
}

impl Busy {
    fn start() -> Self {
        let [server] = Server::replicas("wide", data::write_wide);
        std::fs::write(server.folder.path().join("plan.json"), WIDE_PLAN).unwrap();
        let options = "load wide --plan plan.json --batch-size 8 --world-size 2 --streams 2 --rate 20 --duration 3600";
        let mut command = server.forebay(&options.split_whitespace().collect::<Vec<_>>());
        let load = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { server, load }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.load.kill();
        let _ = self.load.wait();
    }
}

/// Serves these pages, one per connection; further connections receive the last one.
fn pages(pages: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (index, connection) in listener.incoming().enumerate() {
            let page = &pages[index.min(pages.len() - 1)];
            let _ = answer(connection.unwrap(), page);
        }
    });
    address.to_string()
}

fn answer(mut connection: TcpStream, page: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte)?;
        head.extend(byte);
    }
    connection.write_all(page.as_bytes())
}

fn found(page: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len())
}

/// Returns the page of a server that has sent `rows` rows, with an open stream of the dataset.
fn page(rows: u64, dataset: &str) -> String {
    format!(
        "forebay_build_info{{version=\"0.1.0\"}} 1\nforebay_streams_active 1\nforebay_rows_sent_total {rows}\n\
         forebay_sent_bytes_total {rows}\nforebay_stage_seconds_total{{stage=\"fetch\"}} 0\n\
         forebay_stream_rows_total{{stream=\"s\",dataset=\"{dataset}\",epoch=\"0\",rank=\"0\"}} {rows}\n"
    )
}

/// Returns the output of `top --once --json` for these servers.
fn once(servers: &[&str]) -> Value {
    let arguments = [&["top", "--once", "--json", "--interval", "0.3"], servers].concat();
    serde_json::from_str(&stdout(&mut forebay(&arguments))).unwrap()
}

#[test]
fn shows_open_streams_with_rank_and_rate() {
    let busy = Busy::start();
    let start = Instant::now();
    loop {
        let seen = once(&[&busy.server.metrics]);
        let is_read = |rank: u64| {
            let mut streams = seen["streams"].as_array().unwrap().iter();
            streams.any(|stream| {
                assert_eq!(
                    (&stream["dataset"], &stream["server"]),
                    (&"wide".into(), &busy.server.metrics.clone().into())
                );
                stream["rank"] == rank && stream["rows_per_second"].as_f64().is_some_and(|rate| rate > 0.0)
            })
        };
        if is_read(0) && is_read(1) {
            let server = &seen["servers"][0];
            assert_eq!((&server["up"], &server["ready"], &server["error"]), (&true.into(), &true.into(), &Value::Null));
            assert!(server["rows_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{server}");
            // All figures are known after two polls.
            for (name, value) in server.as_object().unwrap() {
                assert!(!value.is_null() || name == "error" || name == "bound_by", "{name}: {server}");
            }
            assert!(server["stages"].as_object().unwrap().values().all(Value::is_number), "{server}");
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{seen}");
    }
    let table = stdout(&mut forebay(&["top", "--once", "--interval", "0.3", &busy.server.metrics]));
    assert!(table.starts_with("SERVER") && table.contains(" up "), "{table}");
}

#[test]
fn stalled_and_unreachable_servers_do_not_delay_others() {
    let server = Server::start();
    // Accepts connections and never responds.
    let stalled = TcpListener::bind("127.0.0.1:0").unwrap();
    let stalled_url = stalled.local_addr().unwrap().to_string();
    let seen = once(&["127.0.0.1:1", &server.metrics, &stalled_url]);
    let [down, up, stalling] = seen["servers"].as_array().unwrap().as_slice() else { panic!("{seen}") };
    assert!(down["error"].as_str().unwrap().contains("cannot connect") && down["up"] == false, "{down}");
    assert!(up["up"] == true && up["rows_per_second"] == 0.0, "{up}");
    assert!(stalling["error"].as_str().unwrap().contains("within 3 s"), "{stalling}");
    assert!(down["rows_per_second"].is_null() && down["memory_limit_bytes"].is_null(), "{down}");
    // The same through the environment.
    let mut command = forebay(&["top", "--once", "--json"]);
    command.env("FOREBAY_METRICS", format!("127.0.0.1:1,{}", server.metrics)).env("FOREBAY_INTERVAL", "0.2");
    let seen: Value = serde_json::from_str(&stdout(&mut command)).unwrap();
    assert_eq!((&seen["servers"][0]["up"], &seen["servers"][1]["up"]), (&false.into(), &true.into()));
}

#[test]
fn exits_with_1_if_no_server_responds() {
    let html = "<html>It works!</html>";
    let server = Server::start();
    let cases = [
        ("127.0.0.1:1".to_owned(), "cannot connect"),
        (pages(vec![found(html)]), "line 1 is not Prometheus text"),
        (pages(vec![found("node_load1 0.5\n")]), "the page has no forebay_build_info; is this --metrics-listen"),
        (pages(vec!["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned()]), "HTTP 404"),
        (pages(vec!["HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_owned()]), "more than 64 MiB"),
        (pages(vec!["HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nforebay".to_owned()]), "is truncated"),
        (pages(vec!["SSH-2.0-OpenSSH_9.9\r\n".to_owned()]), "is not HTTP/1"),
        (server.url.replace("grpc://", ""), "is this --metrics-listen of a forebay-server?"),
    ];
    for (url, expected) in cases {
        let output = forebay(&["top", "--once", "--interval", "0.1", &url]).output().unwrap();
        let Output { status, stdout, stderr } = output;
        let (table, messages) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert_eq!((status.code(), messages.as_str()), (Some(1), "error: no server responded\n"), "{table}");
        assert!(table.contains("down") && table.contains(expected), "{expected}: {table}");
    }
}

#[test]
fn decreasing_counters_have_no_rate() {
    let url = pages([300, 100].map(|rows| found(&page(rows, "d"))).into());
    let seen = once(&[&url]);
    assert_eq!((&seen["servers"][0]["up"], &seen["servers"][0]["rows_per_second"]), (&true.into(), &Value::Null));
    assert_eq!((&seen["streams"][0]["dataset"], &seen["streams"][0]["rows_per_second"]), (&"d".into(), &Value::Null));
}

#[test]
fn hostile_names_are_escaped() {
    let url = pages(vec![found(&page(1, "a\u{1b}[2J\u{9b}m\\n\\\"b"))]);
    for arguments in
        [&["top", "--once", "--interval", "0.1", &url][..], &["top", "--once", "--json", "--interval", "0.1", &url]]
    {
        let text = stdout(&mut forebay(arguments));
        assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'), "{text:?}");
    }
    assert_eq!(once(&[&url])["streams"][0]["dataset"], "a\u{1b}[2J\u{9b}m\n\"b");
}

#[test]
fn prints_json_lines_until_interrupted() {
    let server = Server::start();
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = forebay(&["top", "--json", "--interval", "0.1", &server.metrics]);
        let mut top = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(top.stdout.take().unwrap()).lines().map_while(Result::ok);
        // Without a page in the first interval, the first lines have no rate.
        let has_rate = |line: String| {
            let seen: Value = serde_json::from_str(&line).unwrap();
            seen["servers"][0]["rows_per_second"] == 0.0
        };
        assert!(lines.by_ref().any(has_rate), "{signal:?}");
        assert!(lines.by_ref().any(has_rate), "{signal:?}");
        kill_process(Pid::from_child(&top), signal).unwrap();
        lines.for_each(drop);
        assert_eq!(top.wait().unwrap().code(), Some(0), "{signal:?}");
    }
}

#[test]
fn rejects_invalid_options_and_views_without_a_terminal() {
    let cases: [(&[&str], &str); 6] = [
        (&["top"], "--once"),
        (&["top", "--interval", "0", "--once"], "0.1"),
        (&["top", "--once", "grpc://127.0.0.1:8815"], "address of the Flight service"),
        (&["top", "--once", "https://a/metrics"], "TLS"),
        (&["top", "--once", "http://"], "http://HOST:PORT/metrics"),
        (&["top", "--twice"], "unexpected argument '--twice'"),
    ];
    for (arguments, expected) in cases {
        let (code, messages) = failure(&mut forebay(arguments));
        assert!(code == Some(2) && messages.contains(expected), "{arguments:?}: {code:?}: {messages}");
    }
}

/// Sequences that leave the alternate screen and show the cursor.
const RESTORED: [&str; 2] = ["\u{1b}[?1049l", "\u{1b}[?25h"];

/// Action that ends a view.
type End = fn(&mut Terminal);

#[test]
fn the_live_view_shows_streams_and_restores_the_terminal() {
    let busy = Busy::start();
    let ends: [(&str, End); 3] = [
        ("q", |terminal| terminal.press("q")),
        ("Ctrl-C", |terminal| terminal.press("\u{3}")),
        ("SIGTERM", |terminal| kill_process(Pid::from_child(&terminal.program), Signal::TERM).unwrap()),
    ];
    for (name, end) in ends {
        let mut terminal = Terminal::run(forebay(&["top", "--interval", "0.2", &busy.server.metrics]));
        terminal.wait_for("DATASET");
        terminal.wait_for("wide");
        assert!(terminal.is_raw(), "{name}");
        terminal.press("?");
        terminal.wait_for("PageDown");
        terminal.press("x");
        terminal.press("p");
        terminal.wait_for("PAUSED");
        end(&mut terminal);
        assert_eq!(terminal.end(), Some(0), "{name}: {:?}", terminal.written());
        assert!(!terminal.is_raw(), "{name}");
        for sequence in RESTORED {
            terminal.wait_for(sequence);
        }
    }
}

/// Whether a text sets a color: parameters 30 to 49 and 90 to 107 of the sequence for graphic rendition.
fn has_color(written: &str) -> bool {
    let sequences = written.split("\x1b[").skip(1).filter_map(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != ';')?;
        rest[end..].starts_with('m').then(|| &rest[..end])
    });
    let mut parameters = sequences.flat_map(|sequence| sequence.split(';')).filter_map(|text| text.parse::<u8>().ok());
    parameters.any(|parameter| matches!(parameter, 30..=38 | 40..=48 | 90..=97 | 100..=107))
}

#[test]
fn no_color_disables_colors() {
    assert!(has_color("\x1b[1;31mred") && has_color("\x1b[38;5;9mred") && !has_color("\x1b[1m\x1b[39;49m\x1b[2J"));
    for (value, is_colored) in [(None, true), (Some("1"), false)] {
        let server = pages((0..100).map(|number| found(&page(number * 1000, "numbers"))).collect());
        let mut command = forebay(&["top", "--interval", "0.1", &server]);
        command.env_remove("NO_COLOR").envs(value.map(|value| ("NO_COLOR", value)));
        let mut terminal = Terminal::run(command);
        terminal.wait_for("numbers");
        terminal.press("q");
        assert_eq!(terminal.end(), Some(0));
        assert_eq!(has_color(&terminal.written()), is_colored, "{:?}", terminal.written());
    }
}

//! `forebay load` against a real server: its measurements, detection of corruption, and output.

use std::{
    collections::BTreeSet,
    fs,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use quick_xml::{Reader, events::Event};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    command_line::stdout,
    data::{self, PLAN, ROWS, WIDE_PLAN, WIDE_ROWS},
    proxy::{Fault, Proxy},
    server::{Server, forebay},
};

/// Starts a server of the small table, with the fitted plan in fitted.json.
fn numbers() -> Server {
    let server = Server::start();
    fs::write(server.folder.path().join("plan.json"), PLAN).unwrap();
    let fitted = stdout(&mut server.forebay(&["fit", "numbers", "--plan", "plan.json", "--json"]));
    fs::write(server.folder.path().join("fitted.json"), fitted).unwrap();
    server
}

/// Starts a server of the wide table, with the plan in plan.json.
fn wide() -> Server {
    let [server] = Server::replicas("wide", data::write_wide);
    fs::write(server.folder.path().join("plan.json"), WIDE_PLAN).unwrap();
    server
}

fn load(server: &Server, options: &str) -> Command {
    server.forebay(&options.split_whitespace().collect::<Vec<_>>())
}

/// Returns the report of a successful run.
fn report(command: &mut Command) -> Value {
    serde_json::from_str(&stdout(command.arg("--json"))).unwrap()
}

/// Returns the exit code, report and messages of a run.
fn outcome(output: Output) -> (Option<i32>, Value, String) {
    let Output { status, stdout, stderr } = output;
    (status.code(), serde_json::from_slice(&stdout).unwrap_or_default(), String::from_utf8(stderr).unwrap())
}

fn sum(report: &Value, name: &str) -> u64 {
    report["streams"].as_array().unwrap().iter().map(|stream| stream[name].as_u64().unwrap()).sum()
}

/// Returns faults that spare the first connection of a run, which only checks the server.
fn on_the_second_connection(fault: Fault) -> Vec<Fault> {
    vec![Fault::CutAfter(usize::MAX), fault]
}

#[test]
fn streams_of_an_epoch_count_every_row_once() {
    let server = numbers();
    let options = "load numbers --plan fitted.json --batch-size 4 --world-size 4 --clients 2 --streams 2 --shuffle";
    let found = report(&mut load(&server, options));
    assert_eq!((found["rows"].as_i64(), found["epochs"].as_u64()), (Some(ROWS), Some(4)), "{found}");
    let streams = found["streams"].as_array().unwrap();
    let places: Vec<_> = streams.iter().map(|stream| [&stream["stream"], &stream["client"], &stream["rank"]]).collect();
    assert_eq!(places, [[0, 0, 0], [1, 0, 1], [2, 1, 2], [3, 1, 3]]);
    assert!(streams.iter().all(|stream| stream["rows"] == 25 && stream["batches"] == 7), "{found}");
    // Further streams repeat the ranks, and each epoch is read separately.
    let options = "load numbers --plan fitted.json --world-size 2 --streams 3 --epochs 2 --epoch 5";
    let found = report(&mut load(&server, options));
    assert_eq!((found["rows"].as_i64(), found["epochs"].as_u64()), (Some(3 * ROWS), Some(6)), "{found}");
    for remainder in ["drop", "pad"] {
        let options = format!(
            "load numbers --plan fitted.json --batch-size 7 --world-size 3 --streams 3 --remainder {remainder}"
        );
        let found = report(&mut load(&server, &options));
        let batches: BTreeSet<u64> =
            found["streams"].as_array().unwrap().iter().map(|stream| stream["batches"].as_u64().unwrap()).collect();
        assert_eq!(batches, [if remainder == "drop" { 4 } else { 5 }].into(), "{found}");
    }
}

#[test]
fn the_report_is_consistent() {
    let server = wide();
    let options = "load wide --plan plan.json --batch-size 16 --world-size 2 --streams 2";
    let found = report(&mut load(&server, options));
    for name in ["rows", "batches", "bytes", "epochs"] {
        assert_eq!(found[name].as_u64().unwrap(), sum(&found, name), "{name}");
    }
    assert_eq!(found["rows"].as_i64(), Some(WIDE_ROWS));
    let number = |name: &str| found[name].as_f64().unwrap();
    assert!(number("bytes") > (WIDE_ROWS as usize * data::WIDE_BYTES) as f64);
    for what in ["rows", "batches", "bytes"] {
        let rate = number(&format!("{what}_per_second"));
        assert!((rate * number("wall_seconds") / number(what) - 1.0).abs() < 1e-6, "{what}");
    }
    // Latencies cover all but the first batch of each stream, and so does the distribution.
    let latency = &found["batch_latency"];
    assert_eq!(
        (latency["count"].as_u64(), &found["first_batch"]["count"]),
        (Some(sum(&found, "batches") - 2), &2.into())
    );
    let bins = found["batch_latency_distribution"].as_array().unwrap();
    assert_eq!(
        bins.iter().map(|bin| bin["batches"].as_u64().unwrap()).sum::<u64>(),
        latency["count"].as_u64().unwrap()
    );
    let quantiles =
        ["min", "p50", "p90", "p99", "p99_9", "max"].map(|name| latency[format!("{name}_seconds")].as_f64().unwrap());
    assert!(quantiles.is_sorted() && quantiles[0] > 0.0, "{latency}");
    let over_time: f64 = found["throughput"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rate| {
            rate["bytes_per_second"].as_f64().unwrap()
                * (rate["to_seconds"].as_f64().unwrap() - rate["from_seconds"].as_f64().unwrap())
        })
        .sum();
    assert!((over_time / number("bytes") - 1.0).abs() < 1e-6);
    let fairness = number("slowest_stream_rows_per_second") / number("fastest_stream_rows_per_second");
    assert!((number("fairness_ratio") - fairness).abs() < 1e-9 && fairness <= 1.0);
    assert!(number("cpu_seconds") > 0.0 && number("cpu_seconds_per_gigabyte") > 0.0);
    assert_eq!((&found["retries"], &found["errors"]), (&0.into(), &serde_json::json!({})));
}

#[test]
fn an_open_loop_keeps_its_schedule_and_measures_every_batch() {
    let server = numbers();
    let options = "load numbers --plan fitted.json --batch-size 4 --rate 100";
    let found = report(&mut load(&server, options));
    assert_eq!(
        (&found["loop"], &found["batches"], &found["batch_latency"]["count"]),
        (&"open".into(), &25.into(), &25.into())
    );
    // The last of 25 batches is scheduled 240 ms after the first, regardless of the server.
    assert!(found["wall_seconds"].as_f64().unwrap() >= 0.24, "{found}");
    assert_eq!(found["overdue_batches"], 0);
}

#[test]
fn a_timed_run_reads_consecutive_epochs_after_its_warm_up() {
    let server = numbers();
    let options = "load numbers --plan fitted.json --streams 2 --warm-up 0.2 --duration 0.5";
    let found = report(&mut load(&server, options));
    assert!(found["wall_seconds"].as_f64().unwrap() >= 0.5, "{found}");
    assert!(found["epochs"].as_u64().unwrap() > 2 && found["rows"].as_u64().unwrap() > 0, "{found}");
    // An epoch of 100 rows ends within a warm-up of an hour, so nothing is measured.
    let output = load(&server, "load numbers --plan fitted.json --warm-up 3600").output().unwrap();
    let (code, _, messages) = outcome(output);
    assert!(code == Some(1) && messages.contains("nothing was measured"), "{messages}");
}

#[test]
fn detects_a_byte_corrupted_in_transit() {
    let server = wide();
    let corrupting = || Proxy::start(&server.url, on_the_second_connection(Fault::FlipAt(1_300_000)));
    let options = "load wide --plan plan.json --batch-size 16 --json";
    let proxy = corrupting();
    let (code, found, messages) = outcome(load(&server, options).env("FOREBAY_SERVER", &proxy.url).output().unwrap());
    assert_eq!(code, Some(1), "{messages}");
    assert!(
        messages.contains("error: 1 of 1 streams failed: stream 0 (rank 0), epoch 0, step 2: the checksum"),
        "{messages}"
    );
    assert_eq!(
        (&found["errors"]["DATA_LOSS"], &found["batches"], &found["failed_streams"]),
        (&1.into(), &2.into(), &1.into())
    );
    // Nearly all bytes sent are text, so without verification the corrupt byte goes unnoticed.
    let proxy = corrupting();
    let (code, found, messages) =
        outcome(load(&server, options).arg("--verify=false").env("FOREBAY_SERVER", &proxy.url).output().unwrap());
    assert_eq!(
        (code, &found["rows"], &found["is_verified"]),
        (Some(0), &WIDE_ROWS.into(), &false.into()),
        "{messages}"
    );
}

#[test]
fn a_broken_connection_costs_a_retry_but_no_row() {
    let server = wide();
    let proxy = Proxy::start(&server.url, on_the_second_connection(Fault::CutAfter(3 << 20)));
    let options = "load wide --plan plan.json --batch-size 16 --world-size 2 --streams 2";
    let found = report(load(&server, options).env("FOREBAY_SERVER", &proxy.url));
    assert_eq!(found["rows"].as_i64(), Some(WIDE_ROWS), "{found}");
    assert!(found["errors"]["UNAVAILABLE"].as_u64().unwrap() >= 1, "{found}");
    assert!(found["retries"].as_u64().unwrap() >= 1, "{found}");
    // The batch after the break includes the pause of at least 50 ms.
    assert!(found["batch_latency"]["max_seconds"].as_f64().unwrap() >= 0.05, "{found}");
}

#[test]
fn reports_the_servers_errors() {
    let server = numbers();
    for (options, expected) in [
        ("load none --plan fitted.json", "NOT_FOUND"),
        ("load numbers --plan plan.json", "FAILED_PRECONDITION"),
        ("load numbers --plan fitted.json --start-position 3", "INVALID_ARGUMENT"),
    ] {
        let (code, _, messages) = outcome(load(&server, options).output().unwrap());
        assert!(code == Some(1) && messages.contains(expected), "{options}: {messages}");
    }
}

#[test]
fn an_interrupt_ends_the_run_with_a_report() {
    let server = wide();
    let proxy = Proxy::start(&server.url, Vec::new());
    let options = "load wide --plan plan.json --batch-size 16 --duration 3600 --json";
    let mut command = load(&server, options);
    let child =
        command.env("FOREBAY_SERVER", &proxy.url).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while proxy.bytes() < 4 << 20 {
        assert!(began.elapsed() < Duration::from_mins(1), "no bytes arrive");
        std::thread::yield_now();
    }
    interrupt(&child);
    let (code, found, messages) = outcome(child.wait_with_output().unwrap());
    assert_eq!((code, &found["was_interrupted"]), (Some(0), &true.into()), "{messages}");
    assert!(found["batches"].as_u64().unwrap() > 0 && found["wall_seconds"].as_f64().unwrap() < 3600.0, "{found}");
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

#[test]
fn the_plot_is_valid_xml_with_both_charts() {
    let server = wide();
    for options in [
        "load wide --plan plan.json --batch-size 16 --plot load.svg",
        "load wide --plan plan.json --batch-size 16 --rate 500 --plot load.svg",
        // A single batch: only the first batch's latency.
        "load wide --plan plan.json --batch-size 1000 --plot load.svg",
    ] {
        let table = stdout(&mut load(&server, options));
        assert!(table.contains("wide: 1 client × 1 stream") && table.contains("batch p99.9"), "{table}");
        let texts = texts(&fs::read_to_string(server.folder.path().join("load.svg")).unwrap());
        let expected = [
            "Throughput over time",
            "time since the warm-up, s",
            "Distribution of the batch latencies",
            "share of the batches, %",
        ];
        for text in expected {
            assert!(texts.iter().any(|found| found == text), "{text}: {texts:?}");
        }
        assert!(texts.iter().any(|text| text.starts_with("forebay load, wide: 1 client × 1 stream")), "{texts:?}");
        assert!(options.contains("1000") || texts.iter().any(|text| text.starts_with("p99.9 ")), "{texts:?}");
    }
}

/// Returns the texts of an SVG; panics if it is not well-formed XML.
fn texts(svg: &str) -> Vec<String> {
    let mut reader = Reader::from_str(svg);
    reader.config_mut().trim_text(true);
    let (mut texts, mut depth, mut root) = (Vec::new(), 0, None);
    loop {
        match reader.read_event().unwrap() {
            Event::Start(element) => {
                root.get_or_insert_with(|| element.name().as_ref().to_vec());
                depth += 1;
            }
            Event::End(_) => depth -= 1,
            Event::Text(text) => texts.push(text.decode().unwrap().trim().to_owned()),
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!((depth, root.as_deref()), (0, Some(b"svg".as_slice())));
    texts
}

#[test]
fn rejects_invalid_options_before_connecting() {
    // Nothing listens on port 1.
    let cases = [
        ("", "--plan FILE or --plan-id ID"),
        ("--plan-id a --clients 0", "--clients 0"),
        ("--plan-id a --streams 0", "--streams 0"),
        ("--plan-id a --clients 101 --streams 100", "at most 10000"),
        ("--plan-id a --clients 18446744073709551615 --streams 2", "at most 10000"),
        ("--plan-id a --epochs 0", "--epochs"),
        ("--plan-id a --epochs 2 --duration 3", "cannot be used with"),
        ("--plan-id a --duration 0", "above 0"),
        ("--plan-id a --duration inf", "above 0"),
        ("--plan-id a --warm-up -1", "--warm-up"),
        ("--plan-id a --rate 0", "above 0"),
        ("--plan-id a --rate -5", "--rate"),
        ("--plan-id a --rate NaN", "above 0"),
        ("--plan-id a --plot load.png", ".svg"),
        ("--plan-id a --verify=maybe", "true"),
    ];
    for (options, expected) in cases {
        let arguments: Vec<&str> =
            ["--server", "grpc://127.0.0.1:1", "load", "a"].into_iter().chain(options.split_whitespace()).collect();
        let (code, _, messages) = outcome(forebay(&arguments).output().unwrap());
        assert!(code == Some(2) && messages.contains(expected), "{options}: {code:?}: {messages}");
    }
}

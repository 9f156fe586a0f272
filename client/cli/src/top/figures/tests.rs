use std::time::Duration;

use super::{super::reading::tests::page, *};

/// Two readings two seconds apart.
fn readings(earlier: &str, later: &str) -> (Reading, Reading) {
    let earlier = Reading::new(earlier).unwrap();
    let mut later = Reading::new(later).unwrap();
    later.at = earlier.at + Duration::from_secs(2);
    (earlier, later)
}

/// A page of one server with these totals.
fn counters(rows: u64, batches: u64, stages: [f64; STAGES.len()], more: &str) -> String {
    let stage =
        |index: usize| format!("forebay_stage_seconds_total{{stage=\"{}\"}} {}\n", STAGES[index], stages[index]);
    let stages = (0..STAGES.len()).map(stage).collect::<String>();
    format!(
        "forebay_build_info{{version=\"0.1.0\"}} 1\nforebay_streams_active 2\nforebay_rows_sent_total {rows}\n\
         forebay_sent_bytes_total {}\nforebay_batches_sent_total {batches}\n{stages}{more}",
        rows * 8
    )
}

fn server(earlier: &str, later: &str) -> ServerFigures {
    let (earlier, later) = readings(earlier, later);
    ServerFigures::new("u".to_owned(), Some(&earlier), &later)
}

#[test]
fn rates_are_per_second() {
    let more = |busy: f64, failed: u64| {
        format!(
            "forebay_cpu_threads 4\nforebay_cpu_busy_seconds_total {busy}\nforebay_ready 1\n\
             forebay_requests_total{{call=\"DoGet\",code=\"INTERNAL\"}} {failed}\n"
        )
    };
    let found = server(
        &counters(100, 10, [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], &more(10.0, 0)),
        &counters(300, 14, [2.0, 0.5, 4.0, 0.0, 0.0, 0.0, 0.0], &more(12.0, 4)),
    );
    assert_eq!((found.rows_per_second, found.bytes_per_second), (Some(100.0), Some(800.0)));
    assert_eq!((found.batches_per_second, found.stages.decode), (Some(2.0), Some(1.5)));
    assert_eq!((found.cpu_busy_share, found.failed_requests_per_second), (Some(0.25), Some(2.0)));
    assert_eq!((found.up, found.ready, found.streams_active), (true, Some(true), Some(2)));
    // Absent from the page.
    assert_eq!((found.open_fds, found.storage_errors_per_second, found.uptime_seconds), (None, None, None));
}

#[test]
fn a_first_page_has_no_rates() {
    let later = Reading::new(&page("")).unwrap();
    let found = ServerFigures::new("u".to_owned(), None, &later);
    assert_eq!((found.rows_per_second, found.stages, found.bound_by), (None, Stages::default(), None));
    assert_eq!(found.streams_active, Some(2));
}

#[test]
fn a_restarted_server_has_no_rates() {
    let start = |seconds: f64| format!("forebay_process_start_time_seconds {seconds}\n");
    let none = [0.0; STAGES.len()];
    let fell = server(&counters(300, 3, none, ""), &counters(100, 1, none, ""));
    assert_eq!((fell.rows_per_second, fell.batches_per_second, fell.stages), (None, None, Stages::default()));
    // It has already sent more than the process before it.
    let other = server(&counters(100, 1, none, &start(50.0)), &counters(300, 3, none, &start(90.0)));
    assert_eq!(other.rows_per_second, None);
    let same = server(&counters(100, 1, none, &start(50.0)), &counters(300, 3, none, &start(51.0)));
    assert_eq!(same.rows_per_second, Some(100.0));
    // A single decreasing counter has no rate.
    let one = |retries: u64| format!("forebay_storage_retries_total {retries}\n");
    let found = server(&counters(100, 1, none, &one(5)), &counters(300, 3, none, &one(4)));
    assert_eq!((found.rows_per_second, found.storage_retries_per_second), (Some(100.0), None));
}

#[test]
fn names_the_bottleneck() {
    // Two streams over two seconds.
    let bound = |batches: u64, stages: [f64; STAGES.len()]| {
        server(&counters(0, 0, [0.0; STAGES.len()], ""), &counters(1, batches, stages, "")).bound_by
    };
    assert_eq!(bound(1, [0.5, 0.0, 3.0, 0.1, 0.0, 0.1, 0.1]), Some(Limit::Cpu));
    assert_eq!(bound(1, [3.0, 0.0, 0.5, 0.1, 0.0, 0.1, 0.1]), Some(Limit::Storage));
    // Many concurrent lanes.
    assert_eq!(bound(1, [30.0, 0.0, 4.5, 0.1, 0.0, 0.1, 0.1]), Some(Limit::Cpu));
    assert_eq!(bound(1, [1.0, 0.0, 0.5, 0.1, 0.0, 0.1, 3.0]), Some(Limit::TrainerOrWire));
    assert_eq!(bound(1, [0.1, 0.1, 0.1, 0.1, 0.0, 0.1, 0.1]), Some(Limit::TrainerOrWire));
    // Streams that wait for CPU threads, in many lanes.
    assert_eq!(bound(1, [0.1, 4.0, 0.1, 0.1, 0.0, 0.1, 0.1]), Some(Limit::Cpu));
    assert_eq!(bound(1, [2.0, 30.0, 0.1, 0.1, 0.0, 0.1, 0.1]), Some(Limit::Cpu));
    // Nothing was sent, so stage times are not recorded yet.
    assert_eq!(bound(0, [0.0; STAGES.len()]), None);
}

#[test]
fn each_stream_has_rates() {
    let stream = |id: &str, rank: &str, rows: u64, open: f64| {
        let labels = format!("stream=\"{id}\",dataset=\"d\",epoch=\"3\",rank=\"{rank}\"");
        format!("forebay_stream_rows_total{{{labels}}} {rows}\nforebay_stream_open_seconds{{{labels}}} {open}\n")
    };
    let (earlier, later) = readings(
        &page(&[stream("a", "0", 10, 5.0), stream("b", "1", 10, 5.0)].concat()),
        &page(
            &[
                stream("a", "0", 30, 7.0),
                stream("b", "1", 5, 7.0),
                stream("c", "2", 8, 1.0),
                stream("d", "3", 8, 60.0),
                stream("e", "", 8, 60.0),
            ]
            .concat(),
        ),
    );
    let found = streams("u", Some(&earlier), &later);
    let rates: Vec<_> = found.iter().map(|stream| (stream.id.as_str(), stream.rank, stream.rows_per_second)).collect();
    assert_eq!(
        rates,
        [
            ("a", Some(0), Some(10.0)),
            // Decreased.
            ("b", Some(1), None),
            // Opened between the readings.
            ("c", Some(2), Some(4.0)),
            // Older, but not on the first page.
            ("d", Some(3), None),
            ("e", None, None),
        ]
    );
    assert_eq!((found[0].epoch, found[0].open_seconds, found[0].position), (Some(3), Some(7.0), None));
    assert!(streams("u", None, &later).iter().all(|stream| stream.rows_per_second.is_none()));
}

#[test]
fn unknown_values_are_null() {
    let down = serde_json::to_value(ServerFigures::down("u".to_owned(), "cannot connect".to_owned())).unwrap();
    assert_eq!((&down["up"], &down["error"]), (&false.into(), &"cannot connect".into()));
    for (name, value) in down.as_object().unwrap() {
        let is_known = ["url", "up", "error", "stages"].contains(&name.as_str());
        assert!(is_known || value.is_null(), "{name}: {value}");
    }
    assert!(down["stages"].as_object().unwrap().values().all(serde_json::Value::is_null));
}

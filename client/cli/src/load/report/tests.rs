use std::time::Duration;

use forebay_client::{BatchHeader, StreamInfo, StreamRequest};

use super::{
    super::{measures::Measures, stream::Tally},
    *,
};

fn settings(end: RunEnd) -> Settings {
    Settings {
        clients: 2,
        streams: 2,
        request: StreamRequest { dataset: "a".into(), ..Default::default() },
        end,
        warm_up: Duration::ZERO,
        pace: Pace::Closed,
        verify: true,
    }
}

/// Streams by rows, epochs and seconds.
fn outcome(streams: &[(u64, u64, u64)], latencies_ms: impl IntoIterator<Item = u64>) -> Outcome {
    let begin = std::time::Instant::now();
    let measures = Measures::new(begin).unwrap();
    for latency in latencies_ms {
        let (header, wait) = (BatchHeader { rows: 10, ..BatchHeader::default() }, Duration::from_millis(latency));
        measures.batch(begin, &header, 1000, wait, Some(wait));
    }
    let stream = |(number, &(rows, epochs, seconds)): (usize, &(u64, u64, u64))| StreamOutcome {
        number,
        rank: number,
        tally: Tally { rows, epochs, ..Default::default() },
        time: Duration::from_secs(seconds),
        overdue: 1,
    };
    Outcome {
        info: StreamInfo::default(),
        world_size: streams.len(),
        wall: Duration::from_secs(2),
        cpu: Duration::from_millis(500),
        was_interrupted: false,
        counted: measures.snapshot(),
        rates: Vec::new(),
        streams: streams.iter().enumerate().map(stream).collect(),
        failures: Vec::new(),
    }
}

#[test]
fn percentiles_match_the_sorted_latencies() {
    let report = Report::new(&settings(RunEnd::Epochs(1)), &outcome(&[], 1..=1000));
    let times = report.batch_latency;
    let near = |found: Option<f64>, expected: f64| (found.unwrap() / expected - 1.0).abs() < 0.001;
    assert!(near(times.p50_seconds, 0.5) && near(times.p90_seconds, 0.9) && near(times.p99_seconds, 0.99), "{times:?}");
    assert!(near(times.p99_9_seconds, 0.999) && near(times.max_seconds, 1.0) && near(times.mean_seconds, 0.5005));
    assert!(near(times.min_seconds, 0.001));
    assert_eq!(times.count, 1000);
    assert_eq!((report.batches_per_second, report.rows_per_second), (Some(500.0), Some(5000.0)));
    assert_eq!((report.bytes_per_second, report.cpu_seconds_per_gigabyte), (Some(500_000.0), Some(500.0)));
}

#[test]
fn bins_adjoin_and_hold_every_batch() {
    let report = Report::new(&settings(RunEnd::Epochs(1)), &outcome(&[], (1..=1000).chain([7, 7])));
    let bins = &report.batch_latency_distribution;
    assert_eq!(bins.iter().map(|bin| bin.batches).sum::<u64>(), 1002);
    assert!(bins.windows(2).all(|pair| pair[0].to_seconds.to_bits() == pair[1].from_seconds.to_bits()));
    assert!(bins[0].from_seconds <= 0.001_001 && bins[bins.len() - 1].to_seconds >= 1.0, "{bins:?}");
    assert!(bins.len() <= 62, "three decades: {}", bins.len());
}

#[test]
fn fairness_is_the_slowest_rate_over_the_fastest() {
    let check = |end, streams: &[_], expected| {
        assert_eq!(Report::new(&settings(end), &outcome(streams, [])).fairness_ratio, expected, "{streams:?}");
    };
    let duration = RunEnd::Duration(Duration::from_secs(2));
    check(duration, &[(100, 0, 2), (50, 0, 2), (80, 0, 2)], Some(0.5));
    // A stream that ends sooner is faster.
    check(RunEnd::Epochs(1), &[(100, 1, 2), (100, 1, 4)], Some(0.5));
    // A starved stream is unfair; a rank without rows does not count.
    check(duration, &[(100, 0, 2), (0, 0, 2)], Some(0.0));
    check(RunEnd::Epochs(1), &[(100, 1, 2), (0, 1, 1)], Some(1.0));
    check(RunEnd::Epochs(2), &[(100, 2, 2), (0, 1, 1)], Some(0.0));
    check(duration, &[(0, 0, 2)], None);
    check(duration, &[], None);
}

#[test]
fn a_run_without_batches_reports_nulls() {
    let nothing = Outcome { wall: Duration::ZERO, ..outcome(&[(0, 0, 0)], []) };
    let report = Report::new(&settings(RunEnd::Epochs(1)), &nothing);
    assert_eq!((report.rows_per_second, report.fairness_ratio, report.cpu_seconds_per_gigabyte), (None, None, None));
    assert_eq!((report.batch_latency.p50_seconds, report.batch_latency.max_seconds), (None, None));
    assert_eq!((report.batch_latency_distribution.len(), report.overdue_batches), (0, 1));
    assert!(serde_json::to_value(&report).unwrap()["rows_per_second"].is_null());
}

//! Report of a load run as text.

use super::output::{self, Align, count, decimal_bytes, duration, latency};
use crate::load::{Report, RunEnd, Settings, Times};

/// Formats the report in three columns: name, value, details.
pub(crate) fn table(settings: &Settings, report: &Report) -> String {
    let mut lines = totals(settings, report);
    lines.extend(times(report));
    lines.extend(costs(report));
    lines.extend(bound(report));
    format!("{}\n\n{}", report.title(), output::columns(&[Align::Left, Align::Right, Align::Left], &lines))
}

fn totals(settings: &Settings, report: &Report) -> Vec<Vec<String>> {
    let per_second = |rate: Option<f64>| rate.map_or(String::new(), |rate| format!("{}/s", rounded(rate)));
    let bandwidth = report
        .bytes_per_second
        .map_or(String::new(), |rate| format!("{}/s, Arrow bodies", decimal_bytes(rate.round() as u64)));
    vec![
        line("measured", duration(report.wall_seconds), span(settings, report)),
        line("rows", count(report.rows), per_second(report.rows_per_second)),
        line("batches", count(report.batches), per_second(report.batches_per_second)),
        line("bytes", decimal_bytes(report.bytes), bandwidth),
        line("streams", count(report.streams.len() as u64), fairness(report)),
    ]
}

fn times(report: &Report) -> Vec<Vec<String>> {
    let is_open = report.rate_batches_per_second.is_some();
    let time = |seconds: Option<f64>| seconds.map_or_else(|| "–".to_owned(), latency);
    let quantile = |name: &str, seconds| line(name, time(seconds), String::new());
    let (first, batch) = (&report.first_batch, &report.batch_latency);
    let since = if is_open { "since it was scheduled" } else { "since its request" };
    let mut lines = vec![
        line("first batch", time(first.p50_seconds), spread(first)),
        line("batch p50", time(batch.p50_seconds), format!("{since}; {} batches", count(batch.count))),
        quantile("batch p90", batch.p90_seconds),
        quantile("batch p99", batch.p99_seconds),
        quantile("batch p99.9", batch.p99_9_seconds),
        quantile("batch max", batch.max_seconds),
    ];
    if is_open {
        lines.push(line("overdue", count(report.overdue_batches), "due but not received at the end".to_owned()));
    }
    lines
}

fn costs(report: &Report) -> Vec<Vec<String>> {
    let cost = report.cpu_seconds_per_gigabyte.map_or(String::new(), |cost| format!("{} per GB", duration(cost)));
    let errors: Vec<String> = report.errors.iter().map(|(code, errors)| format!("{} {code}", count(*errors))).collect();
    vec![
        line("client CPU", duration(report.cpu_seconds), cost),
        line("errors", count(report.errors.values().sum()), errors.join(", ")),
        line("retries", count(report.retries), String::new()),
    ]
}

/// Formats the bottleneck and the stage times that determine it.
fn bound(report: &Report) -> Option<Vec<String>> {
    let bound = report.bound_by?;
    let figures = [
        ("fetch", report.fetch_seconds),
        ("queue", report.queue_seconds),
        ("decode", report.decode_seconds),
        ("transform", report.transform_seconds),
        ("udf", report.udf_seconds),
        ("assemble", report.assemble_seconds),
        ("send wait", report.send_wait_seconds),
    ];
    let figures = figures.map(|(stage, seconds)| format!("{stage} {}", duration(seconds))).join(", ");
    Some(line("bound by", bound.name().to_owned(), format!("server, all streams: {figures}")))
}

fn line(name: &str, figure: String, remark: String) -> Vec<String> {
    vec![name.to_owned(), figure, remark]
}

fn span(settings: &Settings, report: &Report) -> String {
    let what = match settings.end {
        RunEnd::Epochs(_) => format!("{} complete", plural(report.epochs, "epoch")),
        RunEnd::Duration(time) => format!("of {}", duration(time.as_secs_f64())),
    };
    let warm_up = format!("after {} of warm-up", duration(report.warm_up_seconds));
    let parts = [
        (true, what.as_str()),
        (!settings.warm_up.is_zero(), &warm_up),
        (report.was_interrupted, "interrupted"),
        (!report.is_verified, "checksums not verified"),
    ];
    parts.into_iter().filter_map(|(is_shown, part)| is_shown.then_some(part)).collect::<Vec<_>>().join(", ")
}

fn fairness(report: &Report) -> String {
    let rates = report.slowest_stream_rows_per_second.zip(report.fastest_stream_rows_per_second);
    let Some((slowest, fastest)) = rates else { return String::new() };
    let ratio = report.fairness_ratio.map_or(String::new(), |ratio| format!(", ratio {ratio:.3}"));
    format!("slowest {}, fastest {} rows/s{ratio}", rounded(slowest), rounded(fastest))
}

fn spread(times: &Times) -> String {
    let Some((min, max)) = times.min_seconds.zip(times.max_seconds) else { return String::new() };
    format!("median; min {}, max {}; {} opened", latency(min), latency(max), plural(times.count, "epoch"))
}

fn rounded(rate: f64) -> String {
    count(rate.round() as u64)
}

fn plural(number: u64, name: &str) -> String {
    format!("{} {name}{}", count(number), if number == 1 { "" } else { "s" })
}

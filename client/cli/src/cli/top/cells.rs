//! Columns of servers and streams and the text of each figure, for the live view and the table.

use std::borrow::Cow;

use ratatui::text::{Line, Span};

use super::{bar, grid::Column};
use crate::{
    cli::output::{self, Align, count, decimal_bytes, duration},
    top::{ServerFigures, StreamFigures},
};

/// Text of an unknown figure.
const UNKNOWN: &str = "–";

/// In order; columns of the highest rank are dropped first if space is short.
const SERVERS: &[Column<ServerFigures>] = &[
    column("SERVER", 0, Align::Left, |server| name(short(&server.url))),
    column("STATE", 0, Align::Left, |server| state(server).into()),
    column("STREAMS", 0, Align::Right, |server| number(server.streams_active)),
    column("ROWS/S", 0, Align::Right, |server| rate(server.rows_per_second)),
    column("BYTES/S", 1, Align::Right, |server| bytes_rate(server.bytes_per_second)),
    column("BATCHES/S", 6, Align::Right, |server| rate(server.batches_per_second)),
    column("STAGES", 1, Align::Left, |server| bar::stages(&server.stages)),
    column("BOUND BY", 2, Align::Left, |server| known(server.bound_by.map(|limit| limit.name().to_owned()))),
    column("MEMORY", 2, Align::Left, memory),
    column("CPU", 3, Align::Right, |server| {
        known(server.cpu_busy_share.zip(server.cpu_threads).map(|(share, of)| format!("{} of {of}", percent(share))))
    }),
    column("FAILED/S", 3, Align::Right, |server| rate(server.failed_requests_per_second)),
    column("READ/S", 4, Align::Right, |server| bytes_rate(server.storage_read_bytes_per_second)),
    column("RSS", 4, Align::Right, |server| known(server.resident_memory_bytes.map(output::bytes))),
    column("FILES", 5, Align::Right, |server| {
        known(server.open_fds.zip(server.max_fds).map(|(open, most)| format!("{open} of {most}")))
    }),
    column("STORAGE ERR/S", 7, Align::Right, |server| rate(server.storage_errors_per_second)),
    column("RETRIES/S", 7, Align::Right, |server| rate(server.storage_retries_per_second)),
    column("FITS", 6, Align::Right, |server| number(server.fits_active)),
    column("EXCHANGES", 6, Align::Right, |server| number(server.exchanges_active)),
    column("UP", 5, Align::Right, |server| known(server.uptime_seconds.map(|up| duration(up.round())))),
    column("VERSION", 8, Align::Left, |server| known(server.version.as_deref().map(printable).map(Cow::into_owned))),
];

const STREAMS: &[Column<StreamFigures>] = &[
    column("DATASET", 0, Align::Left, |stream| name(&stream.dataset)),
    column("EPOCH", 1, Align::Right, |stream| number(stream.epoch)),
    column("RANK", 0, Align::Right, |stream| number(stream.rank)),
    column("ROWS/S", 0, Align::Right, |stream| rate(stream.rows_per_second)),
    column("BYTES/S", 1, Align::Right, |stream| bytes_rate(stream.bytes_per_second)),
    column("STAGES", 1, Align::Left, |stream| bar::stages(&stream.stages)),
    column("POSITION", 2, Align::Right, |stream| number(stream.position)),
    column("OPEN", 3, Align::Right, |stream| known(stream.open_seconds.map(|open| duration(open.round())))),
    column("SERVER", 4, Align::Left, |stream| name(short(&stream.server))),
    column("STREAM", 5, Align::Left, |stream| name(&stream.id)),
];

/// Returns the columns of servers.
pub(super) fn server_columns() -> &'static [Column<ServerFigures>] {
    SERVERS
}

/// Returns the columns of streams.
pub(super) fn stream_columns() -> &'static [Column<StreamFigures>] {
    STREAMS
}

/// Returns a server's row, with the error instead of figures if it is down.
pub(super) fn server_row(server: &ServerFigures) -> Vec<Line<'static>> {
    match &server.error {
        Some(error) => {
            vec![
                name(short(&server.url)),
                Span::styled(state(server), bar::ALARM).into(),
                printable(error).into_owned().into(),
            ]
        }
        None => SERVERS.iter().map(|column| (column.cell)(server)).collect(),
    }
}

/// Returns a stream's row.
pub(super) fn stream_row(stream: &StreamFigures) -> Vec<Line<'static>> {
    STREAMS.iter().map(|column| (column.cell)(stream)).collect()
}

/// Whether a character can affect a terminal: control characters, and invisible or direction-changing ones. All have at
/// most four hexadecimal digits.
pub(super) fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Replaces the unsafe characters of an untrusted text.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    if text.contains(is_unsafe) { text.replace(is_unsafe, "\u{fffd}").into() } else { text.into() }
}

const fn column<T>(name: &'static str, rank: u8, align: Align, cell: fn(&T) -> Line<'static>) -> Column<T> {
    Column { name, rank, align, cell }
}

/// Returns a server's short name.
fn short(url: &str) -> &str {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    rest.strip_suffix("/metrics").unwrap_or(rest)
}

fn state(server: &ServerFigures) -> &'static str {
    match (server.up, server.ready) {
        (false, _) => "down",
        (true, Some(false)) => "draining",
        (true, _) => "up",
    }
}

/// Formats an untrusted text.
fn name(text: &str) -> Line<'static> {
    printable(text).into_owned().into()
}

fn known(text: Option<String>) -> Line<'static> {
    text.unwrap_or_else(|| UNKNOWN.to_owned()).into()
}

fn number(value: Option<u64>) -> Line<'static> {
    known(value.map(count))
}

fn rate(value: Option<f64>) -> Line<'static> {
    known(value.map(|rate| match rate {
        _ if rate == 0.0 => "0".to_owned(),
        // Rates below 10/s keep a decimal, so that rare events are visible.
        _ if rate < 0.095 => "<0.1".to_owned(),
        _ if rate < 9.95 => format!("{rate:.1}"),
        _ => count(rate.round() as u64),
    }))
}

fn bytes_rate(value: Option<f64>) -> Line<'static> {
    known(value.map(|rate| decimal_bytes(rate.round() as u64)))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn memory(server: &ServerFigures) -> Line<'static> {
    let Some((reserved, limit)) = server.memory_reserved_bytes.zip(server.memory_limit_bytes) else {
        return known(None);
    };
    if limit == 0 {
        return known(None);
    }
    let share = reserved as f64 / limit as f64;
    let mut line = bar::filled(share);
    line.push_span(format!(" {:>5} of {}", percent(share), output::bytes(limit)));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_rates() {
        let cases = [
            (None, "–"),
            (Some(0.0), "0"),
            (Some(0.01), "<0.1"),
            (Some(0.44), "0.4"),
            (Some(12.6), "13"),
            (Some(1_234_567.0), "1,234,567"),
            (Some(f64::MAX), "18,446,744,073,709,551,615"),
        ];
        for (value, expected) in cases {
            assert_eq!(rate(value).to_string(), expected);
        }
    }

    #[test]
    fn replaces_unsafe_characters_of_names() {
        assert_eq!(printable("a\u{1b}[2J\nb\u{9b}c\u{202e}d"), "a\u{fffd}[2J\u{fffd}b\u{fffd}c\u{fffd}d");
        assert_eq!(printable("flüge 航班"), "flüge 航班");
    }

    #[test]
    fn shortens_server_urls() {
        assert_eq!(short("http://10.0.0.7:9815/metrics"), "10.0.0.7:9815");
        assert_eq!(short("http://10.0.0.7:80/a/b"), "10.0.0.7:80/a/b");
    }
}

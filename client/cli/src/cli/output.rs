//! Output to stdout: checked writes, aligned columns and readable units. Names of columns and files cannot act on the
//! terminal.

use std::io::{self, IsTerminal, Write};

use super::{cell_text::plain, failure::Failure, message::LAYOUT};

/// Writes a text or JSON to stdout and flushes it.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    let text = forebay_proto::plain_text(text, &LAYOUT);
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::Write)
}

/// Returns the columns of the terminal that stdout is; none if it is not a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    let (columns, _) = io::stdout().is_terminal().then(|| crossterm::terminal::size().ok())??;
    // A serial line may report 0.
    (columns > 0).then_some(columns.into())
}

/// Alignment of a column.
#[derive(Clone, Copy)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Formats rows in columns two spaces apart. The first row has the names. The last cell of a row with fewer cells than
/// columns extends to the right and does not widen its column.
pub(crate) fn columns(align: &[Align], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| row.len() == align.len() || column + 1 < row.len());
        cells.filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..align.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(align).zip(&widths).map(|((cell, align), width)| match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Formats a size with a binary unit: `1.5 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let power = count.ilog2() as usize / 10;
    format!("{:.1} {}", count as f64 / (1_u64 << (10 * power)) as f64, UNITS[power - 1])
}

/// Formats a number with thousands separators: `2,000,000,000`.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a size with a decimal unit, to four digits: `2.048 TB`.
pub(crate) fn decimal_bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    // From 999.95, four digits would show 1000 of the unit.
    while size >= 999.95 && unit + 1 < UNITS.len() {
        size /= 1000.0;
        unit += 1;
    }
    format!("{} {}", figures(size), UNITS[unit])
}

/// Formats a duration: `64 s`, `1 h 2 min 5 s`.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds < 99.95 {
        return format!("{} s", figures(seconds));
    }
    let whole = seconds.round() as u64;
    let parts = [(whole / 86_400, "d"), (whole / 3600 % 24, "h"), (whole / 60 % 60, "min"), (whole % 60, "s")];
    let shown: Vec<String> =
        parts.iter().skip_while(|(count, _)| *count == 0).map(|(count, unit)| format!("{count} {unit}")).collect();
    shown.join(" ")
}

/// Formats a short time to three digits: `85.3 µs`, `12.1 ms`, `1.25 s`.
pub(crate) fn latency(seconds: f64) -> String {
    let (time, unit) = match seconds {
        // From 999.5, three digits would show 1000 of the unit.
        _ if seconds < 999.5e-9 => (seconds * 1e9, "ns"),
        _ if seconds < 999.5e-6 => (seconds * 1e6, "µs"),
        _ if seconds < 999.5e-3 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let decimals = if time >= 99.95 {
        0
    } else if time >= 9.995 {
        1
    } else {
        2
    };
    format!("{time:.decimals$} {unit}")
}

/// Formats a number to four digits, without trailing zeros.
fn figures(number: f64) -> String {
    let decimals = if number >= 100.0 {
        1
    } else if number >= 10.0 {
        2
    } else {
        3
    };
    let text = format!("{number:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_their_widest_cell_and_short_rows_extend() {
        let row = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
        let rows = [
            row(&["name", "rows", "id"]),
            row(&["a", "12345", "x"]),
            row(&["long name", "7", "y"]),
            row(&["bad", "error: no such file"]),
        ];
        let text = columns(&[Align::Left, Align::Right, Align::Left], &rows);
        let lines =
            ["name        rows  id", "a          12345  x", "long name      7  y", "bad        error: no such file"];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
        let hostile = columns(&[Align::Left], &[row(&["a\nb\u{1b}[2J\u{202e}\u{9b}"])]);
        assert_eq!(hostile, "a\\nb\\u{1b}[2J\\u{202e}\\u{9b}\n");
    }

    #[test]
    fn formats_sizes_in_binary_units() {
        let cases = [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_572_864, "1.5 MiB"), (u64::MAX, "16.0 EiB")];
        for (count, expected) in cases {
            assert_eq!(bytes(count), expected);
        }
    }

    #[test]
    fn formats_numbers_sizes_and_times() {
        let counts = [(0, "0"), (999, "999"), (1000, "1,000"), (2_000_000_000, "2,000,000,000")];
        for (number, expected) in counts {
            assert_eq!(count(number), expected);
        }
        let sizes = [
            (0, "0 B"),
            (1024, "1.024 kB"),
            (128_000_000_000, "128 GB"),
            (2_048_000_000_000, "2.048 TB"),
            (999_960, "1 MB"),
            (u64::MAX, "18.45 EB"),
        ];
        for (bytes, expected) in sizes {
            assert_eq!(decimal_bytes(bytes), expected);
        }
        let latencies = [
            (0.0, "0.00 ns"),
            (85.31e-6, "85.3 µs"),
            (999.7e-6, "1.00 ms"),
            (12.06e-3, "12.1 ms"),
            (0.1234, "123 ms"),
            (99.96e-3, "100 ms"),
            (61.25, "61.2 s"),
        ];
        for (seconds, expected) in latencies {
            assert_eq!(latency(seconds), expected);
        }
        let times = [
            (0.0, "0 s"),
            (0.0125, "0.013 s"),
            (64.0, "64 s"),
            (3725.4, "1 h 2 min 5 s"),
            (90_000.0, "1 d 1 h 0 min 0 s"),
        ];
        for (seconds, expected) in times {
            assert_eq!(duration(seconds), expected);
        }
    }
}

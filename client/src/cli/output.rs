//! Writing to stdout: text in aligned columns, and every error seen (a full disk, a closed pipe).

use std::io::{self, Write};

use super::Failure;

/// Writes a whole text to stdout and sees it off.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::Write)
}

/// How the cells of a column stand.
#[derive(Clone, Copy)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Lays rows out in columns two spaces apart, the first row being the names. A row may have fewer cells than there are
/// columns; its last cell then runs on to the right and does not widen its column.
pub(crate) fn columns(align: &[Align], rows: &[Vec<String>]) -> String {
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

/// A size as people read it: `1.5 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let power = count.ilog2() as usize / 10;
    format!("{:.1} {}", count as f64 / (1_u64 << (10 * power)) as f64, UNITS[power - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_a_short_row_runs_on() {
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
    }

    #[test]
    fn sizes_have_the_unit_below_them() {
        let cases = [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_572_864, "1.5 MiB"), (u64::MAX, "16.0 EiB")];
        for (count, expected) in cases {
            assert_eq!(bytes(count), expected);
        }
    }
}

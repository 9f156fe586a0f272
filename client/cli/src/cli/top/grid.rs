//! Layout of styled cells in columns, dropping columns if space is short.

use ratatui::{
    style::{Modifier, Style},
    text::{Line, Span},
};

use crate::cli::output::Align;

/// Spaces between columns.
const GAP: usize = 2;

/// Maximum width of a column; longer text ends in `…`.
const CELL_MAX: usize = 36;

/// Column of a table.
pub(super) struct Column<T> {
    pub(super) name: &'static str,
    /// Columns of the highest rank are dropped first, those of rank 0 never.
    pub(super) rank: u8,
    pub(super) align: Align,
    pub(super) cell: fn(&T) -> Line<'static>,
}

/// Lays out the columns' names and the rows in a width. The last cell of a row with fewer cells than columns extends to
/// the right, and must be in a column of rank 0 or next to one.
pub(super) fn lines<T>(columns: &[Column<T>], rows: Vec<Vec<Line<'static>>>, width: usize) -> Vec<Line<'static>> {
    let is_whole = |row: &Vec<Line>| row.len() == columns.len();
    let rows: Vec<Vec<Line>> =
        rows.into_iter().map(|row| if is_whole(&row) { row.into_iter().map(cut).collect() } else { row }).collect();
    let natural = |(index, column): (usize, &Column<T>)| {
        let cells = rows.iter().filter(|row| is_whole(row) || index + 1 < row.len());
        cells.map(|row| row[index].width().min(CELL_MAX)).max().unwrap_or(0).max(column.name.len())
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(natural).collect();
    let shown = shown(columns, &widths, width);
    let heading = Style::new().add_modifier(Modifier::BOLD);
    let names = columns.iter().map(|column| Line::from(Span::styled(column.name, heading))).collect();
    let line = |row: Vec<Line<'static>>| {
        let last = if is_whole(&row) { usize::MAX } else { row.len() - 1 };
        let mut line = Line::default();
        for (index, cell) in row.into_iter().enumerate().filter(|(index, _)| *index >= last || shown[*index]) {
            let blank = if index >= last { 0 } else { widths[index].saturating_sub(cell.width()) };
            let (before, after) = match columns[index].align {
                Align::Left => (0, blank),
                Align::Right => (blank, 0),
            };
            line.push_span(" ".repeat(before));
            line.extend(cell.spans);
            line.push_span(" ".repeat(after + GAP));
        }
        line
    };
    [names].into_iter().chain(rows).map(line).collect()
}

/// Returns the columns that fit.
fn shown<T>(columns: &[Column<T>], widths: &[usize], width: usize) -> Vec<bool> {
    let mut shown = vec![true; columns.len()];
    loop {
        let taken: usize = (0..columns.len()).filter(|index| shown[*index]).map(|index| widths[index] + GAP).sum();
        let last = (0..columns.len()).filter(|index| shown[*index]).max_by_key(|index| columns[*index].rank);
        match last {
            // The last column has no gap.
            Some(last) if taken > width + GAP && columns[last].rank > 0 => shown[last] = false,
            _ => return shown,
        }
    }
}

/// Cuts a long cell of a single span, ending it in `…`.
fn cut(cell: Line<'static>) -> Line<'static> {
    if cell.width() <= CELL_MAX {
        return cell;
    }
    // A character can be two cells wide.
    let mut text: String = cell.to_string().chars().take(CELL_MAX).collect();
    while Line::from(text.as_str()).width() >= CELL_MAX {
        text.pop();
    }
    Line::from(text + "…")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column<()>] = &[
        Column { name: "A", rank: 0, align: Align::Left, cell: |()| Line::default() },
        Column { name: "B", rank: 2, align: Align::Right, cell: |()| Line::default() },
        Column { name: "C", rank: 1, align: Align::Right, cell: |()| Line::default() },
    ];

    fn drawn(rows: &[&[&str]], width: usize) -> Vec<String> {
        let row = |row: &&[&str]| row.iter().map(|cell| Line::from((*cell).to_owned())).collect();
        let lines = lines(COLUMNS, rows.iter().map(row).collect(), width);
        lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn drops_columns_of_high_rank() {
        let rows: &[&[&str]] = &[&["one", "2", "30"], &["x", "222", "3"]];
        assert_eq!(drawn(rows, 80), ["A      B   C", "one    2  30", "x    222   3"]);
        assert_eq!(drawn(rows, 12), drawn(rows, 80));
        assert_eq!(drawn(rows, 11), ["A     C", "one  30", "x     3"]);
        assert_eq!(drawn(rows, 1), ["A", "one", "x"]);
    }

    #[test]
    fn extends_short_rows() {
        let rows: &[&[&str]] = &[&["one", "2", "3"], &["x", "down for a reason"]];
        assert_eq!(drawn(rows, 80), ["A    B  C", "one  2  3", "x    down for a reason"]);
        assert_eq!(drawn(rows, 3), ["A", "one", "x    down for a reason"]);
    }

    #[test]
    fn cuts_long_texts() {
        let wide = "航".repeat(1000);
        let line = &drawn(&[&[&wide, "2", "3"]], 80)[1];
        assert!(line.contains("航…") && Line::from(line.as_str()).width() <= CELL_MAX + 10, "{line}");
    }
}

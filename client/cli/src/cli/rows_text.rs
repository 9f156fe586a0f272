//! Rows as a table of text that fits the terminal.

use arrow::{array::RecordBatch, error::ArrowError};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::cell_text::{cell, plain};

/// Widest column, in cells of the terminal.
const COLUMN_WIDTH_MAX: usize = 64;

/// Width to which columns shrink before columns are left out.
const COLUMN_WIDTH_MIN: usize = 8;

/// Cells of a border and the spaces beside it.
const BORDER_WIDTH: usize = 3;

/// Names of the columns that are left out, at most.
const NAMES_MAX: usize = 8;

/// Formats rows with borders, in lines of at most `width` cells. Columns that do not fit are named below the table.
pub(crate) fn table(batches: &[RecordBatch], width: Option<usize>) -> Result<String, ArrowError> {
    let Some(first) = batches.first() else { return Ok(String::new()) };
    let names: Vec<String> = first.schema().fields().iter().map(|field| plain(field.name())).collect();
    let columns: Vec<Vec<String>> = (0..names.len()).map(|column| cells(batches, column)).collect::<Result<_, _>>()?;
    let natural = names.iter().zip(&columns).map(|(name, column)| {
        let widest = column.iter().chain([name]).map(|cell| cell.width()).max();
        widest.unwrap_or(0).min(COLUMN_WIDTH_MAX)
    });
    let widths = fitted(natural.collect(), width);
    let rule = widths.iter().fold(String::new(), |rule, width| rule + "+" + &"-".repeat(width + 2)) + "+\n";
    let line = |cells: &mut dyn Iterator<Item = &String>| {
        let padded = cells.zip(&widths).map(|(cell, width)| format!("| {} ", padded(cell, *width)));
        padded.collect::<String>() + "|\n"
    };
    let mut text = rule.clone() + &line(&mut names.iter()) + &rule;
    for row in 0..columns.first().map_or(0, Vec::len) {
        text += &line(&mut columns.iter().map(|column| &column[row]));
    }
    text += &rule;
    if let Some(left_out) = names.get(widths.len()..).filter(|names| !names.is_empty()) {
        text += &more(left_out, width.unwrap_or(usize::MAX));
    }
    Ok(text)
}

/// Formats a column of all batches.
fn cells(batches: &[RecordBatch], column: usize) -> Result<Vec<String>, ArrowError> {
    let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
    rows.map(|(batch, row)| cell(batch.column(column), row)).collect()
}

/// Shrinks the widest columns until all fit; leaves out the last ones if that is not enough.
fn fitted(mut widths: Vec<usize>, width: Option<usize>) -> Vec<usize> {
    let Some(width) = width else { return widths };
    let taken =
        |widths: &[usize], most: usize| widths.iter().map(|width| width.min(&most) + BORDER_WIDTH).sum::<usize>() + 1;
    while widths.len() > 1 && taken(&widths, COLUMN_WIDTH_MIN) > width {
        widths.pop();
    }
    let most = (COLUMN_WIDTH_MIN..COLUMN_WIDTH_MAX).rev().find(|most| taken(&widths, *most) <= width);
    let most =
        if taken(&widths, COLUMN_WIDTH_MAX) <= width { COLUMN_WIDTH_MAX } else { most.unwrap_or(COLUMN_WIDTH_MIN) };
    for width in &mut widths {
        *width = (*width).min(most);
    }
    widths
}

/// Names the columns that do not fit.
fn more(names: &[String], width: usize) -> String {
    let listed: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
    let rest = if names.len() > NAMES_MAX { ", …" } else { "" };
    let columns = if names.len() == 1 { "column" } else { "columns" };
    let text = format!("… {} more {columns} (--columns): {}{rest}", names.len(), listed.join(", "));
    cut(&text, width) + "\n"
}

fn padded(cell: &str, width: usize) -> String {
    let shown = cut(cell, width);
    let space = " ".repeat(width.saturating_sub(shown.width()));
    shown + &space
}

/// Cuts a text to a width, with an ellipsis.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut taken = 1;
    let fits = |letter: &char| {
        taken += letter.width().unwrap_or(0);
        taken <= width
    };
    text.chars().take_while(fits).collect::<String>() + "…"
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, BinaryArray, Int64Array, StringArray};

    use super::*;

    fn rows(columns: usize) -> RecordBatch {
        let text: ArrayRef = Arc::new(StringArray::from(vec![Some("日本語 ".repeat(40)), None]));
        let numbers =
            (1..columns).map(|number| (format!("n{number}"), Arc::new(Int64Array::from(vec![7, 8])) as ArrayRef));
        RecordBatch::try_from_iter_with_nullable(
            [("text".to_owned(), text)].into_iter().chain(numbers).map(|(name, column)| (name, column, true)),
        )
        .unwrap()
    }

    #[test]
    fn lines_fit_the_terminal() {
        for columns in [1, 2, 5, 30] {
            for width in [20, 40, 80, 200] {
                let shown = table(&[rows(columns), rows(columns)], Some(width)).unwrap();
                assert!(shown.lines().all(|line| line.width() <= width), "{columns} columns, {width} wide:\n{shown}");
                let whole = shown.lines().filter(|line| line.starts_with('|')).count();
                assert_eq!(whole, 5, "{shown}");
            }
        }
        let narrow = table(&[rows(30)], Some(60)).unwrap();
        assert!(narrow.lines().last().unwrap().starts_with("… 20 more columns (--columns): n10, n11"), "{narrow}");
    }

    #[test]
    fn without_a_terminal_every_column_is_shown() {
        let image = vec![0x89_u8; 1 << 20];
        let columns: [(&str, ArrayRef); 2] =
            [("id", Arc::new(Int64Array::from(vec![1]))), ("image", Arc::new(BinaryArray::from(vec![&image[..]])))];
        let shown = table(&[RecordBatch::try_from_iter(columns).unwrap()], None).unwrap();
        let expected = "\
            +----+--------------------------------+\n\
            | id | image                          |\n\
            +----+--------------------------------+\n\
            | 1  | <1048576 B: 8989898989898989…> |\n\
            +----+--------------------------------+\n";
        assert_eq!(shown, expected);
        assert_eq!(table(&[], None).unwrap(), "");
        assert_eq!(table(&[rows(30)], None).unwrap().lines().nth(1).unwrap().matches('|').count(), 31);
    }
}

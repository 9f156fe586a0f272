//! Tables of servers and streams as text.

use ratatui::text::Line;

use super::{cells, grid::Column, screen::Sort};
use crate::{cli::output, top::Snapshot};

/// Returns all columns of all servers and streams, sorted by rows.
pub(super) fn tables(snapshot: &Snapshot) -> String {
    let servers: Vec<_> = snapshot.servers.iter().map(cells::server_row).collect();
    let mut text = table(cells::server_columns(), &servers);
    if !snapshot.streams.is_empty() {
        let streams: Vec<_> = Sort::Rows.sorted(&snapshot.streams).into_iter().map(cells::stream_row).collect();
        text = format!("{text}\n{}\n{}\n", table(cells::stream_columns(), &streams), super::bar::legend());
    }
    text
}

fn table<T>(columns: &[Column<T>], rows: &[Vec<Line<'static>>]) -> String {
    let names = columns.iter().map(|column| column.name.to_owned()).collect();
    let rows = rows.iter().map(|row| row.iter().map(Line::to_string).collect());
    let align: Vec<_> = columns.iter().map(|column| column.align).collect();
    output::columns(&align, &[names].into_iter().chain(rows).collect::<Vec<_>>())
}

//! Frame of the live view: servers above, streams below, keys at the bottom.

use std::time::Duration;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Clear, Paragraph},
};

use super::{
    bar, cells, grid,
    screen::{KEYS, Screen},
};
use crate::top::Snapshot;

const FAINT: Style = Style::new().add_modifier(Modifier::DIM);

/// Draws the view at the frame's size.
pub(super) fn draw(frame: &mut Frame, screen: &Screen, interval: Duration) {
    let servers = screen.snapshot.servers.len();
    let height = usize::from(frame.area().height);
    // Streams keep half of the height.
    let server_lines = (servers + 1).min((height / 2).max(2)) as u16;
    let [title, server_area, gap, stream_area, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(server_lines),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(heading(screen, interval), title);
    frame.render_widget(Paragraph::new(server_table(&screen.snapshot, server_area)), server_area);
    frame.render_widget(streams_heading(screen), gap);
    frame.render_widget(Paragraph::new(stream_table(screen, stream_area)), stream_area);
    frame.render_widget(foot_line(), foot);
    if screen.is_helping {
        help(frame);
    }
}

fn heading(screen: &Screen, interval: Duration) -> Line<'static> {
    let servers = &screen.snapshot.servers;
    let up = servers.iter().filter(|server| server.up).count();
    let down = servers.len() - up;
    let mut line = Line::from(Span::styled("forebay top", Style::new().add_modifier(Modifier::BOLD)));
    line.push_span(format!("  every {} s  {up} up", interval.as_secs_f64()));
    if down > 0 {
        line.push_span(Span::styled(format!("  {down} down"), bar::ALARM));
    }
    if screen.is_paused {
        line.push_span(Span::styled("  PAUSED, p resumes", Style::new().add_modifier(Modifier::REVERSED)));
    }
    line
}

fn server_table(snapshot: &Snapshot, area: Rect) -> Vec<Line<'static>> {
    let rows = snapshot.servers.iter().map(cells::server_row).collect();
    let mut lines = grid::lines(cells::server_columns(), rows, area.width.into());
    let height = usize::from(area.height);
    if lines.len() > height && height > 1 {
        let hidden = lines.len() - height + 1;
        lines.truncate(height - 1);
        lines.push(Line::styled(format!("… and {hidden} more servers"), FAINT));
    }
    lines
}

fn streams_heading(screen: &Screen) -> Line<'static> {
    let known = screen.snapshot.streams.len();
    let open: u64 = screen.snapshot.servers.iter().filter_map(|server| server.streams_active).sum();
    // A server reports a thousand streams individually; smaller differences are streams opening or ending.
    let of = if open > known as u64 && known >= 1000 { format!(" of {open}") } else { String::new() };
    let scrolled = if screen.scrolled > 0 { format!(", {} above", screen.scrolled) } else { String::new() };
    Line::styled(format!("{known}{of} streams by {}{scrolled}", screen.sort.name()), FAINT)
}

fn stream_table(screen: &Screen, area: Rect) -> Vec<Line<'static>> {
    let sorted = screen.sort.sorted(&screen.snapshot.streams);
    // Only visible streams are laid out.
    let seen = sorted.into_iter().skip(screen.scrolled).take(usize::from(area.height).saturating_sub(1));
    grid::lines(cells::stream_columns(), seen.map(cells::stream_row).collect(), area.width.into())
}

fn foot_line() -> Line<'static> {
    // The keys first, because a narrow terminal cuts the end.
    let mut line = Line::from(Span::styled("q quit  s sort  p pause  ? help   ", FAINT));
    line.extend(bar::legend().spans);
    line
}

fn help(frame: &mut Frame) {
    let keys = KEYS.map(|(keys, what)| Line::from(format!(" {keys:<30}{what}")));
    let meanings = [
        "",
        " –  unknown: the server is down, new or restarted",
        " STAGES  where the streams' time goes, summed over lanes",
        " BOUND BY  the bottleneck; \"trainer or wire\" is as intended:",
        "   batches wait for clients",
        " MEMORY  memory of the streams, of their budget",
        " FAILED/S  calls failed with a server error",
        " READ/S  bytes from storage; FILES  open descriptors",
    ]
    .map(Line::from);
    let lines: Vec<Line> = keys.into_iter().chain(meanings).collect();
    let whole = frame.area();
    let (width, height) = (whole.width.min(84), whole.height.min(lines.len() as u16 + 2));
    let area = Rect { x: whole.x + (whole.width - width) / 2, y: whole.y + (whole.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" forebay top ")), area);
}

#[cfg(test)]
mod tests;

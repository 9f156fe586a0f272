//! Small bars: how stages share a time, and how full a limit is.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::top::Stages;

/// Cells of a bar.
const STAGE_CELLS: usize = 10;
const FILL_CELLS: usize = 6;

/// From these parts of a limit on it is worth a look, and an alarm. Dashboards turn at the same ones.
const WARN_SHARE: f64 = 0.8;
const ALARM_SHARE: f64 = 0.9;

/// What needs a look.
pub(super) const ALARM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// A letter, a name and a colour for each stage, in the order of a stream's work. The letters are for those who see no
/// colours.
const STAGES: [(char, &str, Color); 5] = [
    ('f', "fetch", Color::Blue),
    ('d', "decode", Color::Cyan),
    ('t', "transform", Color::Green),
    ('a', "assemble", Color::Yellow),
    ('w', "send wait", Color::Magenta),
];

/// Ten letters that share themselves out as the stages share the time.
pub(super) fn stages(stages: &Stages) -> Line<'static> {
    let times = stages.each().map(Option::unwrap_or_default);
    if stages.each().iter().all(Option::is_none) {
        return "–".into();
    }
    let spans = shared(times, STAGE_CELLS).into_iter().zip(STAGES).filter(|(cells, _)| *cells > 0);
    spans
        .map(|(cells, (letter, _, color))| {
            Span::styled(letter.to_string().repeat(cells), Style::new().fg(Color::Black).bg(color))
        })
        .collect()
}

/// What the letters mean.
pub(super) fn legend() -> Line<'static> {
    let mut line = Line::from("stages");
    for (letter, name, color) in STAGES {
        line.push_span("  ");
        line.push_span(Span::styled(letter.to_string(), Style::new().fg(Color::Black).bg(color)));
        line.push_span(format!(" {name}"));
    }
    line
}

/// How full a limit is.
pub(super) fn filled(share: f64) -> Line<'static> {
    let cells = ((share.clamp(0.0, 1.0) * FILL_CELLS as f64).round() as usize).min(FILL_CELLS);
    let color = match share {
        _ if share >= ALARM_SHARE => Color::Red,
        _ if share >= WARN_SHARE => Color::Yellow,
        _ => Color::Green,
    };
    Line::from(vec![
        Span::styled("█".repeat(cells), Style::new().fg(color)),
        Span::styled("░".repeat(FILL_CELLS - cells), Style::new().fg(Color::DarkGray)),
    ])
}

/// Shares cells out in proportion, the odd ones to those whose parts are nearest to the next cell. None where all is 0.
fn shared(parts: [f64; 5], cells: usize) -> [usize; 5] {
    let sum: f64 = parts.iter().sum();
    if sum <= 0.0 {
        return [0; 5];
    }
    let exact = parts.map(|part| part / sum * cells as f64);
    let mut given = exact.map(|part| part.floor() as usize);
    let mut order = [0, 1, 2, 3, 4];
    order.sort_by(|&one, &other| exact[other].fract().total_cmp(&exact[one].fract()));
    let left = cells.saturating_sub(given.iter().sum());
    for index in order.into_iter().take(left) {
        given[index] += 1;
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_share_themselves_out_as_the_times() {
        let bar = |times: [f64; 5]| {
            let [fetch, decode, transform, assemble, send_wait] = times.map(Some);
            stages(&Stages { fetch, decode, transform, assemble, send_wait }).to_string()
        };
        assert_eq!(bar([1.0, 1.0, 0.0, 0.0, 3.0]), "ffddwwwwww");
        assert_eq!(bar([0.0, 0.0, 0.0, 0.0, 0.001]), "wwwwwwwwww");
        assert_eq!(bar([1.0, 1.0, 1.0, 0.0, 0.0]).len(), 10);
        assert_eq!(bar([0.0; 5]), "");
        assert_eq!(stages(&Stages::default()).to_string(), "–");
    }

    #[test]
    fn a_bar_is_as_full_as_its_limit() {
        let cases = [(0.0, "░░░░░░"), (0.5, "███░░░"), (1.0, "██████"), (7.0, "██████")];
        for (share, expected) in cases {
            assert_eq!(filled(share).to_string(), expected);
        }
        assert_eq!(filled(0.95).spans[0].style.fg, Some(Color::Red));
    }
}

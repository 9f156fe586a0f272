//! Small bars: shares of stages, and use of a limit.

use ratatui::{
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

use crate::top::Stages;

/// Width of a bar in cells.
const STAGE_CELLS: usize = 10;
const FILL_CELLS: usize = 6;

/// Shares of a limit that show a warning and an alarm; those of the dashboards.
const WARN_SHARE: f64 = 0.8;
const ALARM_SHARE: f64 = 0.9;

/// Style of an alarm.
pub(super) const ALARM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// Letter, name and colour of each stage, in order. The letters work without colours.
const STAGES: [(char, &str, Color); 7] = [
    ('f', "fetch", Color::Blue),
    ('q', "queue", Color::Red),
    ('d', "decode", Color::Cyan),
    ('t', "transform", Color::Green),
    ('u', "udf", Color::LightGreen),
    ('a', "assemble", Color::Yellow),
    ('w', "send wait", Color::Magenta),
];

/// Returns ten letters in proportion to the stage times.
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

/// Returns the meaning of the letters.
pub(super) fn legend() -> Line<'static> {
    let mut line = Line::from("stages");
    for (letter, name, color) in STAGES {
        line.push_span("  ");
        line.push_span(Span::styled(letter.to_string(), Style::new().fg(Color::Black).bg(color)));
        line.push_span(format!(" {name}"));
    }
    line
}

/// Returns a bar of a limit's use.
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

/// Distributes cells in proportion, by largest remainder. Returns `None` if all parts are 0.
fn shared(parts: [f64; STAGES.len()], cells: usize) -> [usize; STAGES.len()] {
    let sum: f64 = parts.iter().sum();
    if sum <= 0.0 {
        return [0; STAGES.len()];
    }
    let exact = parts.map(|part| part / sum * cells as f64);
    let mut given = exact.map(|part| part.floor() as usize);
    let mut order: [usize; STAGES.len()] = std::array::from_fn(|index| index);
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
    fn letters_are_proportional_to_times() {
        let bar = |times: [f64; STAGES.len()]| {
            let [fetch, queue, decode, transform, udf, assemble, send_wait] = times.map(Some);
            stages(&Stages { fetch, queue, decode, transform, udf, assemble, send_wait }).to_string()
        };
        assert_eq!(bar([1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 3.0]), "ffddwwwwww");
        assert_eq!(bar([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.001]), "wwwwwwwwww");
        assert_eq!(bar([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]).len(), 10);
        assert_eq!(bar([0.0; STAGES.len()]), "");
        assert_eq!(stages(&Stages::default()).to_string(), "–");
    }

    #[test]
    fn a_bar_shows_the_use_of_a_limit() {
        let cases = [(0.0, "░░░░░░"), (0.5, "███░░░"), (1.0, "██████"), (7.0, "██████")];
        for (share, expected) in cases {
            assert_eq!(filled(share).to_string(), expected);
        }
        assert_eq!(filled(0.95).spans[0].style.fg, Some(Color::Red));
    }
}

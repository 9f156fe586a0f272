//! State of the live view, and the effect of each key.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::top::{Snapshot, StreamFigures};

/// Lines scrolled by a page key.
const PAGE: usize = 10;

/// State of the view.
#[derive(Debug, Default)]
pub(super) struct Screen {
    pub(super) snapshot: Snapshot,
    pub(super) sort: Sort,
    /// Number of streams scrolled past.
    pub(super) scrolled: usize,
    /// New figures are ignored.
    pub(super) is_paused: bool,
    pub(super) is_helping: bool,
}

/// Order of the streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Rows,
    Bytes,
    Open,
    Name,
}

/// Effect of a key on the program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Stay,
    Quit,
}

/// Keys, as listed in the help.
pub(super) const KEYS: [(&str, &str); 6] = [
    ("q, Esc, Ctrl-C", "quit"),
    ("↑ ↓ PageUp PageDown Home End", "scroll the streams"),
    ("s", "sort streams by rows, bytes, time open, name"),
    ("p, space", "pause and resume"),
    ("?", "this help"),
    ("any other key", "close the help"),
];

// === impl Screen ===

impl Screen {
    /// Replaces the figures unless the view is paused.
    pub(super) fn update(&mut self, snapshot: Snapshot) {
        if !self.is_paused {
            self.snapshot = snapshot;
            self.scroll_to(self.scrolled);
        }
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Step {
        if key.kind == KeyEventKind::Release {
            return Step::Stay;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && matches!(key.code, KeyCode::Char('c' | 'C')) {
            return Step::Quit;
        }
        if std::mem::take(&mut self.is_helping) {
            return Step::Stay;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Step::Quit,
            KeyCode::Up => self.scroll_to(self.scrolled.saturating_sub(1)),
            KeyCode::Down => self.scroll_to(self.scrolled + 1),
            KeyCode::PageUp => self.scroll_to(self.scrolled.saturating_sub(PAGE)),
            KeyCode::PageDown => self.scroll_to(self.scrolled + PAGE),
            KeyCode::Home => self.scrolled = 0,
            KeyCode::End => self.scroll_to(usize::MAX),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.scrolled = 0;
            }
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') => self.is_helping = true,
            _ => {}
        }
        Step::Stay
    }

    /// Scrolls, keeping the last stream visible.
    fn scroll_to(&mut self, line: usize) {
        self.scrolled = line.min(self.snapshot.streams.len().saturating_sub(1));
    }
}

// === impl Sort ===

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows/s",
            Self::Bytes => "bytes/s",
            Self::Open => "time open",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Rows => Self::Bytes,
            Self::Bytes => Self::Open,
            Self::Open => Self::Name,
            Self::Name => Self::Rows,
        }
    }

    /// Returns the streams in descending order, then by name; unknown values are last.
    pub(super) fn sorted(self, streams: &[StreamFigures]) -> Vec<&StreamFigures> {
        let size = |stream: &StreamFigures| match self {
            Self::Rows => stream.rows_per_second,
            Self::Bytes => stream.bytes_per_second,
            Self::Open => stream.open_seconds,
            Self::Name => None,
        };
        let name = |stream: &StreamFigures| (stream.epoch, stream.rank);
        let mut sorted: Vec<&StreamFigures> = streams.iter().collect();
        sorted.sort_by(|one, other| {
            let by_size = size(other).unwrap_or(-1.0).total_cmp(&size(one).unwrap_or(-1.0));
            let by_name = one.dataset.cmp(&other.dataset).then_with(|| name(one).cmp(&name(other)));
            by_size.then(by_name).then_with(|| (&one.server, &one.id).cmp(&(&other.server, &other.id)))
        });
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(streams: usize) -> Screen {
        let stream = |rank: usize| StreamFigures {
            rank: Some(rank as u64),
            rows_per_second: (rank > 0).then_some(rank as f64),
            ..StreamFigures::default()
        };
        let streams = (0..streams).map(stream).collect();
        Screen { snapshot: Snapshot { streams, ..Snapshot::default() }, ..Screen::default() }
    }

    fn press(screen: &mut Screen, code: KeyCode) -> Step {
        screen.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn q_escape_and_ctrl_c_quit() {
        assert_eq!(press(&mut screen(0), KeyCode::Char('q')), Step::Quit);
        assert_eq!(press(&mut screen(0), KeyCode::Esc), Step::Quit);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        let mut helping = Screen { is_helping: true, ..screen(0) };
        assert_eq!(helping.press(interrupt), Step::Quit);
        assert_eq!(press(&mut screen(0), KeyCode::Char('c')), Step::Stay);
    }

    #[test]
    fn scrolling_stops_at_the_last_stream() {
        let mut screen = screen(25);
        for (code, expected) in [
            (KeyCode::Up, 0),
            (KeyCode::Down, 1),
            (KeyCode::PageDown, 11),
            (KeyCode::End, 24),
            (KeyCode::Down, 24),
            (KeyCode::PageUp, 14),
        ] {
            assert_eq!(press(&mut screen, code), Step::Stay);
            assert_eq!(screen.scrolled, expected, "{code:?}");
        }
        screen.update(self::screen(3).snapshot);
        assert_eq!(screen.scrolled, 2);
        screen.update(Snapshot::default());
        assert_eq!(screen.scrolled, 0);
    }

    #[test]
    fn a_paused_view_ignores_updates() {
        let mut screen = screen(3);
        press(&mut screen, KeyCode::Char('p'));
        screen.update(Snapshot::default());
        assert_eq!(screen.snapshot.streams.len(), 3);
        press(&mut screen, KeyCode::Char('p'));
        screen.update(Snapshot::default());
        assert_eq!(screen.snapshot.streams.len(), 0);
    }

    #[test]
    fn sorts_the_busiest_stream_first_and_unknown_last() {
        let screen = screen(4);
        let ranks = |sort: Sort| -> Vec<u64> {
            sort.sorted(&screen.snapshot.streams).iter().filter_map(|stream| stream.rank).collect()
        };
        assert_eq!(ranks(Sort::Rows), [3, 2, 1, 0]);
        assert_eq!(ranks(Sort::Name), [0, 1, 2, 3]);
        let orders: Vec<Sort> = std::iter::successors(Some(Sort::Rows), |sort| Some(sort.next())).take(5).collect();
        assert_eq!(orders, [Sort::Rows, Sort::Bytes, Sort::Open, Sort::Name, Sort::Rows]);
    }
}

//! The one place through which lines of the log go to stderr: texts in them do not act on terminals or on the line.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use tracing_appender::non_blocking::NonBlocking;
use tracing_subscriber::fmt::MakeWriter;

/// Begins the colors of a line. The formatter escapes it in messages and fields.
const ESCAPE: char = '\u{1b}';

/// Writes lines without active letters.
#[derive(Clone, Debug)]
pub(super) struct PlainLines<W = NonBlocking> {
    lines: W,
    has_colors: bool,
}

impl<W> PlainLines<W> {
    /// Lines that have colors, or none.
    pub(super) fn new(lines: W, has_colors: bool) -> Self {
        Self { lines, has_colors }
    }
}

impl<'a, W: Clone + Write + 'a> MakeWriter<'a> for PlainLines<W> {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl<W: Write> Write for PlainLines<W> {
    /// Writes one event, as the formatter does.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let (line, end) = match text.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (text.as_ref(), ""),
        };
        let keeps: &[char] = if self.has_colors { &[ESCAPE] } else { &[] };
        if let Cow::Owned(plain) = forebay_proto::plain_text(line, keeps) {
            self.lines.write_all((plain + end).as_bytes())?;
        } else {
            self.lines.write_all(event)?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lines.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line_without_active_letters() {
        for (has_colors, event, want) in [
            (false, "plain é\n", "plain é\n"),
            (false, "a\nb\u{9b}31m\u{202e}\u{1b}[2J\n", "a\\u000ab\\u009b31m\\u202e\\u001b[2J\n"),
            (true, "\u{1b}[32mINFO\u{1b}[0m a\rb\n", "\u{1b}[32mINFO\u{1b}[0m a\\u000db\n"),
            (false, "no end\u{7}", "no end\\u0007"),
        ] {
            let mut lines = PlainLines::new(Vec::new(), has_colors);
            assert_eq!(lines.write(event.as_bytes()).unwrap(), event.len());
            assert_eq!(String::from_utf8(lines.lines).unwrap(), want);
        }
    }
}

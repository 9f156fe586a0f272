//! Messages to stderr, in which names of columns and files cannot act on the terminal.

use std::io::{self, Write};

/// Letters of a text that lay it out.
pub(crate) const LAYOUT: [char; 2] = ['\n', '\t'];

/// Writes a message to stderr. If that is closed, only the exit code remains.
pub(crate) fn say(message: &str) {
    let _ = writeln!(io::stderr(), "{}", forebay_proto::plain_text(message, &LAYOUT));
}

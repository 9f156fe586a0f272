//! Live state of servers, read from their `/metrics` pages.
//!
//! `target` is a page's address, `scrape` fetches the page, `text` parses its lines, `reading` extracts the metrics,
//! `figures` derives rates from two readings, and `watch` polls several servers into a [`Snapshot`]. Independent of
//! flags, terminals, exit codes and Flight.

mod figures;
mod reading;
mod scrape;
mod target;
mod text;
mod watch;

#[cfg(test)]
pub(crate) use figures::Limit;
pub(crate) use figures::{ServerFigures, Snapshot, Stages, StreamFigures};
pub(crate) use target::Target;
pub(crate) use watch::Watch;

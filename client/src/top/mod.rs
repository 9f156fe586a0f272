//! What servers do right now, read from their `/metrics` pages alone.
//!
//! `target` is where a page is; `scrape` fetches it; `text` takes its lines apart; `reading` keeps what is looked at;
//! `figures` makes rates of two readings; `watch` asks several servers again and again. From there a [`Snapshot`] goes
//! to whoever shows it. Nothing here knows of flags, terminals or exit codes, nor of Flight.

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

//! A load on a server: streams that take batches as fast as they come or on a schedule, and what they saw.
//!
//! `runner` connects, starts the streams and stops them; `stream` is one of them; `pace` says when it asks for a batch;
//! `measures` is what all of them write to. From there the figures go to `report`, and from it to `plot` and to
//! whoever writes text. Nothing here knows of flags, files or exit codes.

mod bound;
mod epochs;
mod measures;
mod pace;
mod plot;
mod report;
mod runner;
mod settings;
mod stream;
mod timeline;

pub(crate) use bound::Bound;
pub(crate) use pace::Pace;
pub(crate) use plot::svg;
pub(crate) use report::{Report, Times};
pub(crate) use runner::{Progress, run};
pub(crate) use settings::{RunEnd, Settings};
pub(crate) use stream::StreamFailure;

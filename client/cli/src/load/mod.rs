//! Load generator: concurrent streams, as fast as possible or on a schedule, and their measurements.
//!
//! `runner` connects, starts and stops the streams; `stream` is one of them; `pace` schedules its batches; all streams
//! record into `measures`. `report` summarizes the measurements for `plot` and for the command line. Independent of
//! flags, files and exit codes.

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

//! A writer of Prometheus's text format.

use std::fmt::Write as _;

use super::names::NAMES;

/// The part of `/metrics` that is not rendered by the recorder.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    /// Writes the help and type lines of a metric.
    pub(super) fn head(&mut self, name: &str) {
        let meaning = NAMES.iter().find(|(other, _)| *other == name).map_or("", |(_, meaning)| meaning);
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        // Writing to a String cannot fail.
        let _ = write!(self.0, "# HELP {name} {meaning}\n# TYPE {name} {kind}\n");
    }

    pub(super) fn series(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }

    pub(super) fn single(&mut self, name: &str, value: f64) {
        self.head(name);
        let _ = writeln!(self.0, "{name} {value}");
    }
}

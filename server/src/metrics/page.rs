//! The text of `/metrics`.

use std::fmt::Write as _;

use super::names::NAMES;

/// The text of `/metrics` that is written here.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    /// The lines before a metric's series.
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

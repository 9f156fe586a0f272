//! What a folder has besides the files of its dataset, for the log, descriptions and `forebay-server check`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Names that are kept of each reason: the first ones by name.
const NAMES_MAX: usize = 5;

/// Files and folders that are not part of a dataset, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut(BTreeMap<LeftOutReason, LeftOutNames>);

/// Why a file is not part of the dataset of its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOutReason {
    /// Its name leaves the format open, and its bytes are of another one.
    Content,
    /// Its name is of another format.
    Name,
    /// Its name starts with `_` or `.`.
    Hidden,
}

/// Names of one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOutNames {
    /// How many there are.
    pub count: u64,
    /// Some of them, relative to the folder: of folders, with a slash at the end.
    pub first: BTreeSet<String>,
}

// === impl LeftOut ===

impl LeftOut {
    /// Adds a name.
    pub(super) fn add(&mut self, reason: LeftOutReason, name: String) {
        let names = self.0.entry(reason).or_default();
        names.count += 1;
        names.first.insert(name);
        if names.first.len() > NAMES_MAX {
            names.first.pop_last();
        }
    }

    /// The names of each reason.
    pub fn by_reason(&self) -> impl Iterator<Item = (LeftOutReason, &LeftOutNames)> {
        self.0.iter().map(|(reason, names)| (*reason, names))
    }

    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

// === impl LeftOutReason ===

impl fmt::Display for LeftOutReason {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(match self {
            Self::Content => "neither Parquet nor Arrow by their last bytes",
            Self::Name => "not named as Parquet or Arrow files",
            Self::Hidden => "hidden by a name that starts with _ or .",
        })
    }
}

// === impl LeftOutNames ===

impl fmt::Display for LeftOutNames {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let names = self.first.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = self.count.saturating_sub(self.first.len() as u64);
        if more > 0 { write!(formatter, "{names} and {more} more") } else { formatter.write_str(&names) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_names_of_each_reason_are_kept() {
        let mut left_out = LeftOut::default();
        for number in (0..7).rev() {
            left_out.add(LeftOutReason::Name, format!("{number}.txt"));
        }
        left_out.add(LeftOutReason::Content, "x".to_owned());
        let shown: Vec<String> = left_out.by_reason().map(|(reason, names)| format!("{reason}: {names}")).collect();
        assert_eq!(
            shown,
            [
                "neither Parquet nor Arrow by their last bytes: x",
                "not named as Parquet or Arrow files: 0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 2 more"
            ]
        );
    }
}

//! The versions that a log has, to explain why one cannot be read.

use std::collections::BTreeSet;

use crate::error::LakeError;

/// The versions of the commits and checkpoints of a log.
#[derive(Debug, Default)]
pub(super) struct History {
    commits: BTreeSet<u64>,
    checkpoints: BTreeSet<u64>,
}

// === impl History ===

impl History {
    /// The versions in the names of a log's files.
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut history = Self::default();
        for name in names {
            let Some((digits, rest)) = name.split_once('.') else { continue };
            if digits.len() != 20 {
                continue;
            }
            let Ok(version) = digits.parse() else { continue };
            if rest == "json" {
                history.commits.insert(version);
            } else if rest.starts_with("checkpoint.") {
                history.checkpoints.insert(version);
            }
        }
        history
    }

    /// Why a version, or the newest one, cannot be read; none if the log has all files of it.
    pub(super) fn reason(&self, wanted: Option<u64>) -> Option<LakeError> {
        let Some(newest) = self.commits.iter().chain(&self.checkpoints).max().copied() else {
            return Some(LakeError::NotATable(
                "it is not a Delta table: the folder _delta_log has no commit".to_owned(),
            ));
        };
        let wanted = wanted.unwrap_or(newest);
        if wanted > newest {
            return Some(LakeError::NoVersion(format!(
                "there is no version {wanted}: the newest version of the table is {newest}"
            )));
        }
        let start = match self.checkpoints.range(..=wanted).next_back() {
            Some(checkpoint) => checkpoint + 1,
            None if self.commits.first() == Some(&0) => 0,
            None => {
                let earliest = self.checkpoints.first();
                let hint = earliest.map(|version| format!(": the earliest version that can be read is {version}"));
                return Some(LakeError::NoVersion(format!(
                    "version {wanted} is no longer in the log{}",
                    hint.unwrap_or_default()
                )));
            }
        };
        let hole = (start..=wanted).find(|version| !self.commits.contains(version))?;
        Some(LakeError::Corrupt(format!(
            "version {wanted} cannot be read: the log has no commit {hole}; restore the file {hole:020}.json, or name an \
             earlier version"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(files: &[&str], wanted: Option<u64>) -> String {
        let names: Vec<String> = files
            .iter()
            .map(|name| {
                let (version, rest) = name.split_once('.').unwrap();
                format!("{:020}.{rest}", version.parse::<u64>().unwrap())
            })
            .collect();
        let reason = History::of(names.iter().map(String::as_str)).reason(wanted);
        reason.map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn errors_name_what_is_missing() {
        for (files, wanted, word) in [
            (&[][..], None, "not a Delta table"),
            (&["0.json", "1.json"], Some(2), "no version 2: the newest version of the table is 1"),
            (&["0.json", "2.json"], None, "no commit 1; restore the file 00000000000000000001.json"),
            (&["0.json", "2.json"], Some(0), ""),
            (&["2.checkpoint.parquet", "3.json"], Some(1), "version 1 is no longer in the log: the earliest"),
            (&["2.checkpoint.parquet", "3.json"], None, ""),
            (&["2.checkpoint.0001.0002.parquet", "4.json"], None, "no commit 3"),
            (&["1.json"], None, "version 1 is no longer in the log"),
        ] {
            let reason = reason(files, wanted);
            assert!(reason.contains(word) && reason.is_empty() == word.is_empty(), "{reason}");
        }
    }
}

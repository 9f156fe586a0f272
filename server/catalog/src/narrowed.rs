//! The narrowed snapshots of a dataset: those of the files that a rule keeps, such as the conditions of a filter on
//! partition columns. Each is opened once, and kept for the epochs that read it.
//!
//! A digest identifies the files that were kept, not those that were not. It is therefore known only together with the
//! rule: another rule might keep more of the same listing.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use forebay_runtime::metrics::{self, Cache};
use tokio::sync::OnceCell;

use super::{error::CatalogError, listed::ListedFiles, snapshot::Snapshot};

/// Narrowed snapshots that a dataset keeps, for as many filters. They share the footers of files that several have.
const NARROWED_KEPT_MAX: usize = 32;

/// Files of all narrowed snapshots that a dataset keeps, at about 100 bytes each without their footers.
const NARROWED_FILES_MAX: usize = 1_000_000;

/// Narrowed snapshots, those used last first.
#[derive(Debug, Default)]
pub(super) struct NarrowedSnapshots(Mutex<VecDeque<Narrowed>>);

/// A snapshot; empty until it is opened.
type SnapshotCell = Arc<OnceCell<Arc<Snapshot>>>;

#[derive(Debug)]
struct Narrowed {
    rule: String,
    /// The id of the listed files.
    files: String,
    file_count: usize,
    cell: SnapshotCell,
}

/// Whether a digest is that of a narrowed snapshot: it ends with the number of files.
pub fn is_narrowed(digest: &str) -> bool {
    digest.contains('-')
}

// === impl NarrowedSnapshots ===

impl NarrowedSnapshots {
    /// The snapshot of a digest, if the rule has led to it and no reader has found one of its files changed.
    pub(super) fn find(&self, rule: &str, digest: &str) -> Option<Arc<Snapshot>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = |entry: &Narrowed| {
            let snapshot = entry.cell.get().filter(|snapshot| snapshot.digest() == digest);
            entry.rule == rule && snapshot.is_some_and(|snapshot| !snapshot.is_outdated())
        };
        let found = entries.iter().position(is_wanted).and_then(|index| entries.remove(index))?;
        let snapshot = found.cell.get().cloned();
        entries.push_front(found);
        snapshot
    }

    /// Those that are open, used last first.
    pub(super) fn opened(&self) -> Vec<Arc<Snapshot>> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().filter_map(|entry| entry.cell.get().cloned()).collect()
    }

    /// The snapshot of the files that a rule keeps. Concurrent callers share one opening.
    pub(super) async fn get<Opening>(
        &self,
        rule: &str,
        files: &ListedFiles,
        open: impl FnOnce() -> Opening,
    ) -> Result<Arc<Snapshot>, CatalogError>
    where
        Opening: Future<Output = Result<Arc<Snapshot>, CatalogError>>,
    {
        let cell = self.cell(rule, files);
        if let Some(known) = cell.get() {
            metrics::cache_requests(Cache::Footers, true, files.count());
            // A new listing has the same files, so a reader that found a change was wrong, or it was undone.
            known.set_current();
            return Ok(Arc::clone(known));
        }
        cell.get_or_try_init(open).await.cloned()
    }

    fn cell(&self, rule: &str, files: &ListedFiles) -> SnapshotCell {
        let (files, file_count) = (files.id(), files.count());
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Rules that keep the same files share their snapshot.
        let same_files = entries.iter().find(|entry| entry.files == files);
        let cell = same_files.map(|entry| Arc::clone(&entry.cell)).unwrap_or_default();
        entries.retain(|entry| entry.rule != rule || entry.files != files);
        entries.push_front(Narrowed { rule: rule.to_owned(), files, file_count, cell: Arc::clone(&cell) });
        let counts = entries.iter().scan(0, |sum: &mut usize, entry| {
            *sum += entry.file_count;
            Some(*sum)
        });
        let kept = counts.take(NARROWED_KEPT_MAX).take_while(|sum| *sum <= NARROWED_FILES_MAX).count();
        entries.truncate(kept.max(1));
        cell
    }
}

#[cfg(test)]
mod tests {
    use object_store::{ObjectMeta, path::Path};

    use super::*;
    use crate::{found_files::Listing, location::Location};

    fn files(names: &[&str]) -> ListedFiles {
        let object = |name: &&str| ObjectMeta {
            location: Path::from(*name),
            last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
            size: 1,
            e_tag: None,
            version: None,
        };
        let listing = Listing::new(Path::default(), names.iter().map(object).collect());
        ListedFiles::new("t", Location::directory("/t".into()), listing).unwrap()
    }

    #[test]
    fn rules_that_keep_the_same_files_share_a_snapshot() {
        let known = NarrowedSnapshots::default();
        let first = known.cell("a = 1", &files(&["a=1/x", "a=1/y"]));
        assert!(Arc::ptr_eq(&first, &known.cell("a < 2", &files(&["a=1/x", "a=1/y"]))));
        assert!(Arc::ptr_eq(&first, &known.cell("a = 1", &files(&["a=1/x", "a=1/y"]))));
        assert!(!Arc::ptr_eq(&first, &known.cell("a = 1", &files(&["a=1/x"]))));
        assert_eq!(known.0.lock().unwrap().len(), 3);
    }

    #[test]
    fn those_used_longest_ago_are_dropped() {
        let known = NarrowedSnapshots::default();
        let names: Vec<String> = (0..NARROWED_KEPT_MAX + 8).map(|number| format!("a={number}/x")).collect();
        for name in &names {
            known.cell(name, &files(&[name.as_str()]));
            known.cell("first", &files(&["a=0/x"]));
        }
        let rules: Vec<String> = known.0.lock().unwrap().iter().map(|entry| entry.rule.clone()).collect();
        assert_eq!(rules.len(), NARROWED_KEPT_MAX);
        assert_eq!(
            (rules[0].as_str(), &rules[1], &rules[2]),
            ("first", &names[names.len() - 1], &names[names.len() - 2])
        );
    }

    #[test]
    fn their_files_are_limited_together() {
        let known = NarrowedSnapshots::default();
        for rule in ["a", "b", "c"] {
            known.cell(rule, &files(&["a=0/x"]));
            known.0.lock().unwrap()[0].file_count = NARROWED_FILES_MAX / 2;
        }
        assert_eq!(known.0.lock().unwrap().len(), 2);
    }
}

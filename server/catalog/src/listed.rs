//! The files of a dataset as a listing has them, before any footer is read: paths, tags and partition values.
//!
//! From the partition values a caller decides which files to open; this module has no access to expressions. The footers
//! are read by `snapshot`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::cast,
    datatypes::Schema,
    error::ArrowError,
};
use forebay_runtime::state::short_digest;

use super::{error::CatalogError, file_footer::wide, found_files::Listing, location::Location, partitions::Partitions};

/// The files of a dataset at one moment, or some of them, with the values of their partition columns.
#[derive(Debug)]
pub struct ListedFiles {
    pub(super) location: Location,
    pub(super) listing: Listing,
    pub(super) partitions: Partitions,
    /// Whether these are only some of the dataset's files.
    pub(super) is_narrowed: bool,
    /// Whether some of them could not be opened, so that they must be listed again.
    is_outdated: AtomicBool,
}

// === impl ListedFiles ===

impl ListedFiles {
    /// Reads the partition columns of a listing. Their types, if no schema is pinned, are those that all files agree on.
    pub(super) fn new(dataset: &str, location: Location, listing: Listing) -> Result<Self, CatalogError> {
        let partitions = if let Some(table) = &listing.table {
            Partitions::of_table(dataset, table)?
        } else {
            let paths = listing.objects.iter().map(|object| listing.relative(&object.location));
            Partitions::of(dataset, paths, location.schema())?
        };
        Ok(Self { location, listing, partitions, is_narrowed: false, is_outdated: AtomicBool::new(false) })
    }

    /// Whether some of them could not be opened.
    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Marks them: some could not be opened.
    pub(super) fn set_outdated(&self) {
        self.is_outdated.store(true, Ordering::Relaxed);
    }

    /// The number of files.
    pub fn count(&self) -> usize {
        self.listing.objects.len()
    }

    /// Whether files have values of partition columns.
    pub fn is_partitioned(&self) -> bool {
        !self.partitions.fields().is_empty()
    }

    /// A row for each file, with its partition columns as plans read them.
    pub fn partition_values(&self) -> Result<RecordBatch, ArrowError> {
        let schema = Arc::new(wide(&Schema::new(self.partitions.fields().to_vec())));
        let values = schema.fields().iter().enumerate();
        let values = values.map(|(column, field)| cast(self.partitions.values(column), field.data_type()));
        RecordBatch::try_new(Arc::clone(&schema), values.collect::<Result<_, _>>()?)
    }

    /// Some of the files. Of none, the first: a snapshot has the columns of a file.
    pub(super) fn narrowed(&self, kept: &BooleanArray) -> Result<Self, ArrowError> {
        let first_only;
        let kept = if kept.true_count() > 0 {
            kept
        } else {
            first_only = (0..self.count()).map(|file| Some(file == 0)).collect();
            &first_only
        };
        let objects = self.listing.objects.iter().zip(kept.values()).filter(|(_, is_kept)| *is_kept);
        let objects = objects.map(|(object, _)| object.clone()).collect();
        let table = self.listing.table.as_ref().map(|table| Arc::new(table.narrowed(kept)));
        let listing = Listing { table, ..Listing::new(self.listing.root.clone(), objects) };
        let (location, partitions) = (self.location.clone(), self.partitions.kept(kept)?);
        Ok(Self { location, listing, partitions, is_narrowed: true, is_outdated: AtomicBool::new(false) })
    }

    /// Identifies the files and everything else that their snapshot depends on.
    pub(super) fn id(&self) -> String {
        let mut manifest = self.listing.root.to_string().into_bytes();
        for object in &self.listing.objects {
            let tags = [&object.e_tag, &object.version].map(|tag| tag.as_deref().unwrap_or("-"));
            let (path, date) = (&object.location, object.last_modified.timestamp_nanos_opt());
            manifest.extend(format!("\n{path}\n{}\n{tags:?}\n{date:?}", object.size).bytes());
        }
        if let Some(table) = &self.listing.table {
            manifest.extend(format!("\ntable {}", table.digest).bytes());
        }
        for field in self.partitions.fields() {
            manifest.extend(format!("\n{}\n{}\n{}", field.name(), field.data_type(), field.is_nullable()).bytes());
        }
        short_digest(&[&manifest])
    }
}

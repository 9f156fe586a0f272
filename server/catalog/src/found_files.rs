//! The files that a listing of a dataset found.

use std::sync::Arc;

use object_store::{ObjectMeta, path::Path};

use super::{
    lake::TableVersion,
    left_out::LeftOut,
    splits::{self, DatasetSplit},
};

/// A dataset's files, sorted by path; those of a list in its order.
#[derive(Debug)]
pub(super) struct Listing {
    /// The directory that contains them.
    pub root: Path,
    /// The files.
    pub objects: Vec<ObjectMeta>,
    /// The version of the lake table that has them.
    pub table: Option<Arc<TableVersion>>,
    /// What else is in the folder, if it is one.
    pub left_out: LeftOut,
    /// The files in the folder that are not of the dataset by their bytes.
    pub others: Vec<ObjectMeta>,
}

impl Listing {
    /// The files under a root.
    pub(super) fn new(root: Path, objects: Vec<ObjectMeta>) -> Self {
        Self { root, objects, table: None, left_out: LeftOut::default(), others: Vec::new() }
    }

    /// Whether another listing has the same state of the same files, and leaves out the same. False for lake tables.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.root == other.root
            && self.objects == other.objects
            && self.table.is_none()
            && other.table.is_none()
            && self.others == other.others
            && self.left_out == other.left_out
    }

    /// The splits of the folder with this URL, if the names of its files tell some.
    pub(super) fn splits(&self, folder: &str) -> Vec<DatasetSplit> {
        splits::find(folder, self.objects.iter().map(|object| self.relative(&object.location)))
    }

    /// The path of one of the files below the root.
    pub(super) fn relative<'a>(&self, path: &'a Path) -> &'a str {
        relative(&self.root, path).unwrap_or(path.as_ref())
    }
}

/// The path of a file relative to the root.
pub(super) fn relative<'a>(root: &Path, path: &'a Path) -> Option<&'a str> {
    if root.as_ref().is_empty() {
        return Some(path.as_ref());
    }
    path.as_ref().strip_prefix(root.as_ref())?.strip_prefix('/')
}

//! `--out`: where a run writes its files, and how they become a dataset at once.
//!
//! On a local disk, files are written to a hidden folder next to the result, which is then renamed. Remote stores cannot
//! rename: files are written to the folder of the run, and belong to the dataset when the manifest names them. Either
//! way, the files of an interrupted run belong to no dataset.

mod local;
mod remote;
mod staging;

pub(crate) use self::staging::{Existing, Staging};

use forebay_catalog::{Folder, Location};

use self::{local::LocalFolder, remote::RemoteFolder};
use crate::error::PrepareError;

/// The folder of the result.
#[derive(Debug)]
pub(crate) enum Destination {
    /// On this machine.
    Local(LocalFolder),
    /// In a remote store.
    Remote(RemoteFolder),
}

// === impl Destination ===

impl Destination {
    /// The folder that a URL names.
    pub(crate) fn open(out: &str, location: &Location) -> Result<Self, PrepareError> {
        let refused = |reason: &str| PrepareError::Usage(format!("--out {out}: {reason}"));
        match location.folder() {
            None => Err(refused("expected a directory, or a prefix such as s3://bucket/joined, without wildcards")),
            Some(Folder::Local(path)) => Ok(Self::Local(LocalFolder::open(out, path)?)),
            Some(Folder::Remote(_, path)) if path.as_ref().is_empty() => {
                Err(refused("a whole bucket cannot be a dataset"))
            }
            Some(Folder::Remote(store, path)) => Ok(Self::Remote(RemoteFolder::new(out, store.clone(), path.clone()))),
        }
    }

    /// Whether the folder contains a file of an input.
    pub(crate) fn contains(&self, display: &str) -> bool {
        match self {
            Self::Local(folder) => folder.contains(display),
            Self::Remote(folder) => folder.contains(display),
        }
    }

    /// Reads what is there.
    pub(crate) async fn existing(&mut self) -> Result<Existing, PrepareError> {
        match self {
            Self::Local(folder) => folder.existing(),
            Self::Remote(folder) => folder.existing().await,
        }
    }

    /// Removes what interrupted runs left, and creates the folder of this run.
    pub(crate) async fn stage(&mut self) -> Result<Staging, PrepareError> {
        match self {
            Self::Local(folder) => folder.stage(),
            Self::Remote(folder) => folder.stage().await,
        }
    }

    /// Writes the manifest, and makes the files a dataset.
    pub(crate) async fn publish(&mut self, manifest: Vec<u8>) -> Result<(), PrepareError> {
        match self {
            Self::Local(folder) => folder.publish(&manifest),
            Self::Remote(folder) => folder.publish(manifest).await,
        }
    }

    /// Removes the files of a run that failed. A file that cannot be removed is left for the next run.
    pub(crate) async fn discard(&mut self) {
        match self {
            Self::Local(folder) => folder.discard(),
            Self::Remote(folder) => folder.discard().await,
        }
    }

    /// An error of a write to the folder of the run.
    pub(crate) fn write_error(&self, reason: String) -> PrepareError {
        let out = match self {
            Self::Local(folder) => folder.out(),
            Self::Remote(folder) => folder.out(),
        };
        PrepareError::Out { out: out.to_owned(), reason }
    }
}

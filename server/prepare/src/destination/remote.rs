//! A result in a remote store: a folder per run, and a manifest that names the files of one.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use chrono::{DateTime, Utc};
use forebay_catalog::{MANIFEST, MANIFEST_BYTES_MAX, RUN_PREFIX, Store};
use futures::{StreamExt, TryStreamExt};
use object_store::{
    Error as ObjectError, GetOptions, ObjectMeta, ObjectStore, PutMode, PutOptions, UpdateVersion, path::Path,
};

use super::staging::{Existing, Staging, run_id};
use crate::{error::PrepareError, manifest::EarlierManifest};

/// Age at which files that no manifest names are those of an interrupted run, and not of one that is running.
const LEFTOVER_AGE: Duration = Duration::from_hours(24);

/// A prefix in a store.
#[derive(Debug)]
pub(crate) struct RemoteFolder {
    out: String,
    store: Store,
    root: Path,
    /// The version of the manifest to be replaced.
    earlier: Option<UpdateVersion>,
    /// The files of the dataset to be replaced.
    earlier_files: Vec<Path>,
    run: Option<Path>,
}

// === impl RemoteFolder ===

impl RemoteFolder {
    pub(super) fn new(out: &str, store: Store, root: Path) -> Self {
        Self { out: out.to_owned(), store, root, earlier: None, earlier_files: Vec::new(), run: None }
    }

    pub(super) fn out(&self) -> &str {
        &self.out
    }

    pub(super) fn contains(&self, display: &str) -> bool {
        display.starts_with(&format!("{}/", self.store.display(&self.root)))
    }

    pub(super) async fn existing(&mut self) -> Result<Existing, PrepareError> {
        let path = self.manifest_path();
        let found = match self.client().get_opts(&path, GetOptions::default()).await {
            Ok(found) => found,
            Err(ObjectError::NotFound { .. }) => return self.without_manifest().await,
            Err(error) => return Err(self.failed(&path, &error)),
        };
        if found.meta.size > MANIFEST_BYTES_MAX {
            return Ok(Existing::Foreign(format!("its {MANIFEST} is too large")));
        }
        self.earlier = Some(UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() });
        let text = found.bytes().await.map_err(|error| self.failed(&path, &error))?;
        let manifest = match EarlierManifest::parse(&text) {
            Ok(manifest) => manifest,
            Err(error) => return Ok(Existing::Damaged(format!("its {MANIFEST} is invalid: {error}"))),
        };
        self.earlier_files = manifest.files().map(|(below, _)| self.below(below)).collect();
        let sizes: BTreeMap<Path, u64> =
            self.list().await?.into_iter().map(|object| (object.location, object.size)).collect();
        let is_damaged = |(below, bytes): &(&str, u64)| sizes.get(&self.below(below)) != Some(bytes);
        let damaged = manifest.files().find(is_damaged).map(|(below, _)| below.to_owned());
        Ok(match damaged {
            Some(below) => Existing::Damaged(format!("its object \"{below}\" is missing or has another size")),
            None => Existing::Prepared(Box::new(manifest)),
        })
    }

    async fn without_manifest(&self) -> Result<Existing, PrepareError> {
        let runs = format!("{}/{RUN_PREFIX}", self.root);
        let others = |object: &ObjectMeta| std::future::ready(!object.location.as_ref().starts_with(&runs));
        let mut found = self.client().list(Some(&self.root)).try_filter(others).boxed();
        match found.next().await {
            None => Ok(Existing::Nothing),
            Some(Ok(object)) => {
                let shown = self.store.display(&object.location);
                Ok(Existing::Foreign(format!("there are objects such as {shown}, and no {MANIFEST}")))
            }
            Some(Err(error)) => Err(self.failed(&self.root, &error)),
        }
    }

    pub(super) async fn stage(&mut self) -> Result<Staging, PrepareError> {
        self.remove_leftovers().await?;
        let name = format!("{RUN_PREFIX}{}", run_id());
        let folder = self.root.clone().join(name.as_str());
        self.run = Some(folder.clone());
        Ok(Staging { store: Arc::clone(self.client()), folder, relative: format!("{name}/") })
    }

    pub(super) async fn publish(&mut self, manifest: Vec<u8>) -> Result<(), PrepareError> {
        let path = self.manifest_path();
        let mode = self.earlier.clone().map_or(PutMode::Create, PutMode::Update);
        let put = self.client().put_opts(&path, manifest.into(), PutOptions::from(mode)).await;
        match put {
            Ok(_) => {}
            Err(ObjectError::AlreadyExists { .. } | ObjectError::Precondition { .. }) => {
                let reason = "another run has written it meanwhile".to_owned();
                return Err(PrepareError::Out { out: self.out.clone(), reason });
            }
            Err(error) => return Err(self.failed(&path, &error)),
        }
        self.run = None;
        self.remove_earlier().await;
        Ok(())
    }

    pub(super) async fn discard(&mut self) {
        let Some(run) = self.run.take() else { return };
        let found = self.client().list(Some(&run)).map_ok(|object| object.location).boxed();
        let removed = self.client().delete_stream(found);
        removed.for_each(|_| std::future::ready(())).await;
    }

    /// Removes the files of the replaced dataset.
    async fn remove_earlier(&mut self) {
        let runs = format!("{}/{RUN_PREFIX}", self.root);
        let files = std::mem::take(&mut self.earlier_files).into_iter();
        let files: Vec<_> = files.filter(|path| path.as_ref().starts_with(&runs)).map(Ok).collect();
        let removed = self.client().delete_stream(futures::stream::iter(files).boxed());
        removed.for_each(|_| std::future::ready(())).await;
    }

    /// Removes old files of runs that were interrupted.
    async fn remove_leftovers(&self) -> Result<(), PrepareError> {
        let runs = format!("{}/{RUN_PREFIX}", self.root);
        let newest = DateTime::<Utc>::from(SystemTime::now() - LEFTOVER_AGE);
        let is_leftover = |object: &ObjectMeta| {
            let path = &object.location;
            path.as_ref().starts_with(&runs) && !self.earlier_files.contains(path) && object.last_modified < newest
        };
        let paths: Vec<_> =
            self.list().await?.into_iter().filter(is_leftover).map(|object| Ok(object.location)).collect();
        let removed = self.client().delete_stream(futures::stream::iter(paths).boxed());
        removed.for_each(|_| std::future::ready(())).await;
        Ok(())
    }

    async fn list(&self) -> Result<Vec<ObjectMeta>, PrepareError> {
        let listed = self.client().list(Some(&self.root)).try_collect().await;
        listed.map_err(|error| self.failed(&self.root, &error))
    }

    fn client(&self) -> &Arc<dyn ObjectStore> {
        self.store.client()
    }

    fn manifest_path(&self) -> Path {
        self.root.clone().join(MANIFEST)
    }

    fn below(&self, relative: &str) -> Path {
        relative.split('/').fold(self.root.clone(), Path::join)
    }

    fn failed(&self, path: &Path, error: &ObjectError) -> PrepareError {
        PrepareError::Out { out: self.out.clone(), reason: self.store.error(path, error).to_string() }
    }
}

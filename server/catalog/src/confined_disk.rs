//! The local disk, of which only files in some folders are read, with links resolved.
//!
//! The log of a table names its files. A writer of the table must not be able to have other files served.

use std::{
    fmt::{self, Display},
    io,
    path::PathBuf,
    sync::Arc,
};

use async_trait::async_trait;
use forebay_lake::TableFolders;
use futures::{FutureExt, StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, local::LocalFileSystem, path::Path,
};

use super::walk;

/// A disk and the folders that are read.
#[derive(Clone, Debug)]
pub(super) struct ConfinedDisk {
    disk: Arc<LocalFileSystem>,
    folders: Arc<[Path]>,
}

/// The cause of an error: a link leads out of the folders.
#[derive(Debug, thiserror::Error)]
#[error("it is a link, or below one, that leads out of the folders of the table")]
pub(super) struct LinkOut;

// === impl ConfinedDisk ===

impl ConfinedDisk {
    pub(super) fn new(disk: Arc<LocalFileSystem>, folders: &TableFolders) -> Self {
        let folders = [&folders.root].into_iter().chain(&folders.further).cloned().collect();
        Self { disk, folders }
    }

    /// Fails if a path does not exist, or is in none of the folders once its links are resolved.
    pub(super) async fn check(&self, path: &Path) -> Result<()> {
        let (disk, path) = (self.clone(), path.clone());
        let checked = tokio::task::spawn_blocking(move || disk.check_now(&path)).await;
        checked.unwrap_or_else(|ended| Err(Error::JoinError { source: ended }))
    }

    /// The folders that exist, with their links resolved.
    pub(super) async fn real_folders(&self) -> Vec<Path> {
        let disk = self.clone();
        let real = move || disk.canonical().filter_map(|folder| Path::from_absolute_path(folder).ok()).collect();
        tokio::task::spawn_blocking(real).await.unwrap_or_default()
    }

    fn check_now(&self, path: &Path) -> Result<()> {
        let failed = |source: io::Error| walk::store_error(path, source);
        let real = self.disk.path_to_filesystem(path)?.canonicalize().map_err(failed)?;
        if self.canonical().any(|folder| real.starts_with(folder)) {
            return Ok(());
        }
        Err(Error::PermissionDenied { path: path.to_string(), source: LinkOut.into() })
    }

    fn canonical(&self) -> impl Iterator<Item = PathBuf> {
        let real = |folder: &Path| self.disk.path_to_filesystem(folder).ok()?.canonicalize().ok();
        self.folders.iter().filter_map(real)
    }

    /// Lists a folder that is checked, or that does not exist.
    fn listed(
        &self,
        prefix: Option<&Path>,
        list: impl FnOnce(&LocalFileSystem, Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> + Send + 'static,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (disk, prefix) = (self.clone(), prefix.cloned());
        let open = async move {
            match disk.check(&prefix.clone().unwrap_or_default()).await {
                Err(Error::NotFound { .. }) | Ok(()) => Ok(list(&disk.disk, prefix.as_ref())),
                Err(error) => Err(error),
            }
        };
        open.into_stream().try_flatten().boxed()
    }
}

impl Display for ConfinedDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ConfinedDisk")
    }
}

fn read_only<T>() -> Result<T> {
    let operation = "write".to_owned();
    Err(Error::NotImplemented { operation, implementer: "a table on this machine, which is only read".to_owned() })
}

#[async_trait]
impl ObjectStore for ConfinedDisk {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        read_only()
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        read_only()
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.check(location).await?;
        self.disk.get_opts(location, options).await
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        futures::stream::once(async { read_only() }).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, |disk, prefix| disk.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let offset = offset.clone();
        self.listed(prefix, move |disk, prefix| disk.list_with_offset(prefix, &offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        match self.check(&prefix.cloned().unwrap_or_default()).await {
            Err(Error::NotFound { .. }) | Ok(()) => self.disk.list_with_delimiter(prefix).await,
            Err(error) => Err(error),
        }
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        read_only()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use object_store::ObjectStoreExt;

    use super::*;

    #[tokio::test]
    async fn links_are_followed_within_the_folders_only() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        for name in ["t", "more", "secret"] {
            fs::create_dir(top.join(name)).unwrap();
            fs::write(top.join(name).join("f"), name).unwrap();
        }
        for (target, link) in [("secret/f", "t/link"), ("secret", "t/dir"), ("more/f", "t/to-more"), ("t/f", "t/same")]
        {
            symlink(top.join(target), top.join(link)).unwrap();
        }
        let path = |name: &str| Path::from_absolute_path(top.join(name)).unwrap();
        let folders = TableFolders { root: path("t"), further: vec![path("more"), path("missing")] };
        let disk = ConfinedDisk::new(Arc::new(LocalFileSystem::new()), &folders);
        for (name, want) in [("t/f", "t"), ("t/to-more", "more"), ("t/same", "t"), ("more/f", "more")] {
            let read = disk.get(&path(name)).await.unwrap().bytes().await.unwrap();
            assert_eq!(read, want, "{name}");
        }
        for name in ["t/link", "t/dir/f", "secret/f"] {
            let refused = disk.get(&path(name)).await.unwrap_err();
            assert!(matches!(&refused, Error::PermissionDenied { source, .. } if source.is::<LinkOut>()), "{name}");
            assert!(disk.head(&path(name)).await.is_err(), "{name}");
        }
        assert!(matches!(disk.get(&path("t/none")).await, Err(Error::NotFound { .. })));
        assert!(disk.list(Some(&path("t/dir"))).try_collect::<Vec<_>>().await.is_err());
        assert!(disk.list_with_delimiter(Some(&path("secret"))).await.is_err());
        assert_eq!(disk.list(Some(&path("t/none"))).try_collect::<Vec<_>>().await.unwrap(), []);
    }
}

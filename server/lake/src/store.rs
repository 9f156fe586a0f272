//! The store that holds a table.

use std::sync::Arc;

use object_store::{ObjectStore, path::Path};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::folders::TableFolders;

/// Records a request: its kind, whether it succeeded, and the bytes that it read.
pub type RecordRequest = fn(&'static str, bool, u64);

/// A store and the folders of a table in it.
#[derive(Clone, Debug)]
pub struct TableStore {
    /// The client of the store.
    pub client: Arc<dyn ObjectStore>,
    /// The start of the URLs of files in the store: `/` for a disk, else such as `s3://bucket/`.
    pub url: String,
    /// The folders whose files are read.
    pub folders: TableFolders,
    /// Called after each request.
    pub record: RecordRequest,
}

/// The path of a URL in the store whose URLs start with `store`; none if it is in another one. A disk has `/`.
pub fn path_in_store(store: &str, url: &str) -> Option<Path> {
    if store == "/" {
        return Path::from_absolute_path(Url::parse(url).ok()?.to_file_path().ok()?).ok();
    }
    let (scheme, rest) = url.split_once("://")?;
    let scheme = if scheme == "s3a" { "s3" } else { scheme };
    let below = format!("{scheme}://{rest}");
    let key = percent_decode_str(below.strip_prefix(store)?).decode_utf8().ok()?.into_owned();
    Path::parse(key).ok()
}

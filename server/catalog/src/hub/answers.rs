//! The answers of a hub's API that listings need, in JSON.

use chrono::{DateTime, Utc};
use object_store::{Error, ObjectMeta, Result, path::Path};
use serde::Deserialize;

/// The time of files, of which listings say nothing: their tags identify them.
const NO_TIME: DateTime<Utc> = DateTime::UNIX_EPOCH;

/// What a revision is.
#[derive(Debug, Deserialize)]
pub(super) struct RevisionInfo {
    /// Its commit.
    pub sha: String,
}

/// A file or a folder.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    #[serde(rename = "type")]
    kind: EntryKind,
    /// From the root of the repository.
    path: String,
    #[serde(default)]
    size: u64,
    /// The hash of the file's bytes in Git, or of the pointer to them.
    #[serde(default)]
    oid: String,
    lfs: Option<LargeFile>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EntryKind {
    File,
    Directory,
    #[serde(other)]
    Other,
}

/// A file that Git has only a pointer to.
#[derive(Debug, Deserialize)]
struct LargeFile {
    /// The SHA-256 of its bytes.
    oid: String,
    size: u64,
}

// === impl Entry ===

impl Entry {
    /// The file at a commit; none for a folder.
    pub(super) fn object(self, commit: String) -> Result<Option<ObjectMeta>> {
        if self.kind != EntryKind::File {
            return Ok(None);
        }
        let location = parsed(&self.path)?;
        let (tag, size) = self.lfs.map_or((self.oid, self.size), |file| (file.oid, file.size));
        // Without a hash, the commit tells apart the states of a file.
        let tag = if tag.is_empty() { &commit } else { &tag };
        Ok(Some(ObjectMeta { location, last_modified: NO_TIME, size, e_tag: Some(quoted(tag)), version: Some(commit) }))
    }

    /// The path of a folder; none for a file.
    pub(super) fn folder(&self) -> Result<Option<Path>> {
        if self.kind == EntryKind::Directory { parsed(&self.path).map(Some) } else { Ok(None) }
    }
}

/// A tag of a file as headers have it.
pub(super) fn quoted(tag: &str) -> String {
    format!("\"{tag}\"")
}

fn parsed(path: &str) -> Result<Path> {
    Path::parse(path).map_err(|source| Error::InvalidPath { source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> Result<Option<ObjectMeta>> {
        serde_json::from_str::<Entry>(json).unwrap().object("c0".to_owned())
    }

    #[test]
    fn files_are_known_by_the_hash_of_their_bytes() {
        let small = object(r#"{"type": "file", "oid": "a1", "size": 3, "path": "data/a b.parquet", "xetHash": "f"}"#);
        let small = small.unwrap().unwrap();
        assert_eq!((small.location.as_ref(), small.size), ("data/a b.parquet", 3));
        assert_eq!((small.e_tag.as_deref(), small.version.as_deref()), (Some("\"a1\""), Some("c0")));
        let large = r#"{"type": "file", "oid": "a1", "size": 3, "path": "b", "lfs": {"oid": "f00", "size": 9, "pointerSize": 3}}"#;
        let large = object(large).unwrap().unwrap();
        assert_eq!((large.e_tag.as_deref(), large.size), (Some("\"f00\""), 9));
        assert_eq!(object(r#"{"type": "directory", "oid": "a1", "size": 0, "path": "data"}"#).unwrap(), None);
        assert_eq!(object(r#"{"type": "submodule", "path": "x"}"#).unwrap(), None);
        for path in ["../a", "a//b", "a/./b"] {
            assert!(
                object(&format!(r#"{{"type": "file", "oid": "a", "size": 1, "path": "{path}"}}"#)).is_err(),
                "{path}"
            );
        }
    }
}

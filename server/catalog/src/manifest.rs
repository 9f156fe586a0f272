//! Manifests of prepared datasets: a folder that has one consists of exactly the files that it names.
//!
//! `forebay-prepare` writes the manifest last, so that files of an interrupted run belong to no dataset.

use std::{collections::BTreeMap, fs, path::Path as FilePath};

use object_store::ObjectMeta;
use serde::Deserialize;

/// The name of the manifest in the folder of its dataset.
pub const MANIFEST: &str = "_forebay_manifest.json";

/// Prefix of the folders of a prepared dataset in a remote store, one per run. Listed only through the manifest.
pub const RUN_PREFIX: &str = "_forebay_run-";

/// The largest manifest, enough for 200,000 files.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// The part of a manifest that names the files: relative path → bytes.
#[derive(Debug)]
pub(super) struct NamedFiles(BTreeMap<String, u64>);

#[derive(Deserialize)]
struct ManifestText {
    files: Vec<NamedFile>,
}

#[derive(Deserialize)]
struct NamedFile {
    path: String,
    bytes: u64,
}

// === impl NamedFiles ===

impl NamedFiles {
    /// Parses a manifest. `display` is its path, for errors.
    pub(super) fn parse(display: &str, text: &[u8]) -> Result<Self, String> {
        let text: ManifestText = serde_json::from_slice(text)
            .map_err(|source| format!("{display} is not the manifest of a prepared dataset: {source}"))?;
        Ok(Self(text.files.into_iter().map(|file| (file.path, file.bytes)).collect()))
    }

    /// Reads the manifest of a local folder; `None` if it has none.
    pub(super) fn of_folder(root: &FilePath) -> Result<Option<Self>, String> {
        let path = root.join(MANIFEST);
        let display = path.display().to_string();
        match fs::metadata(&path) {
            Err(_) => return Ok(None),
            Ok(metadata) => check_size(&display, metadata.len())?,
        }
        let text = fs::read(&path).map_err(|source| format!("{display}: {source}"))?;
        Self::parse(&display, &text).map(Some)
    }

    /// Whether a file, by its path relative to the manifest, belongs to the dataset.
    pub(super) fn has(&self, below: &str) -> bool {
        self.0.contains_key(below)
    }

    /// Checks that every named file exists and has its size.
    pub(super) fn check<'a>(&self, found: impl IntoIterator<Item = (&'a str, &'a ObjectMeta)>) -> Result<(), String> {
        let mut missing = self.0.clone();
        for (below, object) in found {
            if let Some(bytes) = missing.remove(below).filter(|bytes| *bytes != object.size) {
                return Err(format!("\"{below}\" has {} bytes, but {MANIFEST} says {bytes}", object.size));
            }
        }
        match missing.keys().next() {
            Some(below) => Err(format!("there is no \"{below}\", which {MANIFEST} names")),
            None => Ok(()),
        }
    }
}

/// Checks the size of a manifest before it is read.
pub(super) fn check_size(display: &str, bytes: u64) -> Result<(), String> {
    if bytes > MANIFEST_BYTES_MAX {
        return Err(format!("{display} has {bytes} bytes, the limit is {MANIFEST_BYTES_MAX}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use object_store::path::Path;

    use super::*;

    fn object(size: u64) -> ObjectMeta {
        let last_modified = std::time::SystemTime::now().into();
        ObjectMeta { location: Path::from("x"), last_modified, size, e_tag: None, version: None }
    }

    #[test]
    fn every_named_file_must_exist_with_its_size() {
        let text = br#"{"sql": "SELECT 1", "files": [{"path": "a/b.parquet", "bytes": 7, "rows": 1}]}"#;
        let named = NamedFiles::parse("m", text).unwrap();
        assert!(named.has("a/b.parquet") && !named.has("b.parquet"));
        let (good, bad) = (object(7), object(6));
        assert_eq!(named.check([("a/b.parquet", &good)]), Ok(()));
        assert!(named.check([("a/b.parquet", &bad)]).unwrap_err().contains("has 6 bytes"));
        assert!(named.check([]).unwrap_err().contains("there is no \"a/b.parquet\""));
        assert!(NamedFiles::parse("m", b"{}").unwrap_err().contains("m is not the manifest"));
    }
}

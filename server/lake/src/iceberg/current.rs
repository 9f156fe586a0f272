//! The current metadata file of a table.
//!
//! Catalogs keep the name of the current file. In a folder without one, it is the file that `version-hint.text` names,
//! or a later one. Without a hint, and with one that is empty or names a file that is gone, it is the file of the highest
//! number.

use object_store::path::Path;

use super::metadata_store::MetadataStore;
use crate::error::LakeError;

const METADATA: &str = "metadata";
const HINT: &str = "version-hint.text";
const HINT_BYTES_MAX: u64 = 4096;
/// Versions after that of the hint that are looked for. The hint is written after the version.
const VERSIONS_AFTER_HINT_MAX: usize = 1000;

const ENDING: &str = ".metadata.json";
const COMPRESSED_ENDINGS: [&str; 2] = [".gz.metadata.json", ".metadata.json.gz"];

/// The folder of the table of a metadata file; `None` if a path does not name one.
pub(super) fn root_of(path: &Path) -> Option<Path> {
    path.filename().filter(|name| is_metadata(name))?;
    let folder = parent(path);
    Some(if folder.filename() == Some(METADATA) { parent(&folder) } else { folder })
}

/// Finds the current metadata file of the table in a folder.
pub(super) async fn find(store: MetadataStore<'_>, root: &Path) -> Result<Path, LakeError> {
    let folder = root.clone().join(METADATA);
    match hinted(store, &folder).await? {
        Some(file) => Ok(file),
        None => highest(store, &folder).await,
    }
}

fn parent(path: &Path) -> Path {
    let mut parts: Vec<_> = path.parts().collect();
    parts.pop();
    parts.into_iter().collect()
}

/// The file that the hint names, or a later one of the same numbering; `None` if the hint helps no further.
async fn hinted(store: MetadataStore<'_>, folder: &Path) -> Result<Option<Path>, LakeError> {
    let hint_file = folder.clone().join(HINT);
    let Some(text) = store.get(&hint_file, HINT_BYTES_MAX).await? else { return Ok(None) };
    let corrupt = |reason: &str| LakeError::Corrupt(format!("\"{}\" {reason}", store.display(&hint_file)));
    let hint = std::str::from_utf8(&text).map_err(|_| corrupt("is not text"))?.trim();
    if hint.contains(['/', '\n']) {
        return Err(corrupt("names no version"));
    }
    if hint.is_empty() {
        return Ok(None);
    }
    let Ok(mut version) = hint.parse::<u64>() else {
        let name = if is_metadata(hint) { hint.to_owned() } else { format!("{hint}{ENDING}") };
        let file = folder.clone().join(name);
        return Ok(store.has(&file).await?.then_some(file));
    };
    let mut found = numbered(store, folder, version).await?;
    for _ in 0..VERSIONS_AFTER_HINT_MAX {
        if found.is_none() {
            return Ok(None);
        }
        version = version.saturating_add(1);
        match numbered(store, folder, version).await? {
            None => return Ok(found),
            later => found = later,
        }
    }
    Ok(None)
}

/// The file of a version, if there is one.
async fn numbered(store: MetadataStore<'_>, folder: &Path, version: u64) -> Result<Option<Path>, LakeError> {
    for ending in [ENDING, COMPRESSED_ENDINGS[0]] {
        let file = folder.clone().join(format!("v{version}{ending}"));
        if store.has(&file).await? {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// The file of the highest number in a folder.
async fn highest(store: MetadataStore<'_>, folder: &Path) -> Result<Path, LakeError> {
    let names = store.names(folder).await?;
    let numbers = names.iter().filter_map(|name| Some((number(name)?, name)));
    let Some((number, name)) = numbers.clone().max() else {
        let folder = store.display(folder);
        return Err(LakeError::NotATable(format!(
            "there is no Iceberg table: no {HINT} and no *{ENDING} file in \"{folder}\""
        )));
    };
    // A failed commit leaves a file of the number that another commit then takes.
    if let Some((_, other)) = numbers.filter(|(other, _)| *other == number).find(|(_, other)| *other != name) {
        return Err(LakeError::NotATable(format!(
            "\"{other}\" and \"{name}\" in \"{}\" have the same number, and only the table's catalog knows which is \
             current: name the file",
            store.display(folder)
        )));
    }
    Ok(folder.clone().join(name.as_str()))
}

fn is_metadata(name: &str) -> bool {
    name.ends_with(ENDING) || COMPRESSED_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// The number of a metadata file: 3 for `v3.metadata.json` and `00003-<uuid>.metadata.json`.
fn number(name: &str) -> Option<u64> {
    if !is_metadata(name) {
        return None;
    }
    let name = name.strip_prefix('v').unwrap_or(name);
    let end = name.find(|letter: char| !letter.is_ascii_digit())?;
    name[..end].parse().ok().filter(|_| name[end..].starts_with(['-', '.']))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::{ObjectStoreExt, memory::InMemory};

    use super::*;
    use crate::{folders::TableFolders, store::TableStore};

    async fn found(files: &[(&str, &str)], root: &str) -> Result<String, String> {
        let client = Arc::new(InMemory::new());
        for (name, text) in files {
            client.put(&Path::from(*name), (*text).to_owned().into()).await.unwrap();
        }
        let folders = TableFolders::of(Path::from(root));
        let table = TableStore { client, url: "s3://b/".to_owned(), folders, record: |_, _, _| () };
        let found = find(MetadataStore::new(&table), &table.folders.root).await;
        found.map(|file| file.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_metadata_file_is_of_the_folder_above_metadata() {
        for (path, root) in [
            ("a/t/metadata/00001-x.metadata.json", Some("a/t")),
            ("a/t/v1.gz.metadata.json", Some("a/t")),
            ("metadata/v1.metadata.json.gz", Some("")),
            ("a/t/metadata", None),
            ("a/t/x.json", None),
        ] {
            assert_eq!(root_of(&Path::from(path)), root.map(Path::from));
        }
    }

    #[tokio::test]
    async fn the_hint_is_followed_by_later_versions() {
        let files = ["t/metadata/v2.metadata.json", "t/metadata/v3.gz.metadata.json", "t/metadata/v5.metadata.json"];
        let mut files: Vec<(&str, &str)> = files.map(|file| (file, "")).to_vec();
        files.push(("t/metadata/version-hint.text", "2\n"));
        assert_eq!(found(&files, "t").await, Ok(files[1].0.to_owned()));
        files[3].1 = "v3.gz";
        assert_eq!(found(&files, "t").await.unwrap(), files[1].0);
        // Hints that are empty, or that name a missing version or file.
        for hint in ["", " \n", "4", "00009-x.metadata.json"] {
            files[3].1 = hint;
            assert_eq!(found(&files, "t").await.unwrap(), files[2].0, "{hint}");
        }
        files[3].1 = "../x";
        assert!(found(&files, "t").await.unwrap_err().contains("names no version"));
    }

    #[tokio::test]
    async fn without_a_hint_the_highest_number_is_current() {
        let names = ["t/metadata/00009-a.metadata.json", "t/metadata/00010-b.metadata.json", "t/metadata/snap-99.avro"];
        let mut files = names.map(|name| (name, "")).to_vec();
        assert_eq!(found(&files, "t").await.unwrap(), names[1]);
        files.push(("t/metadata/00010-c.metadata.json", ""));
        let error = found(&files, "t").await.unwrap_err();
        assert!(error.contains("00010-b") && error.contains("00010-c") && error.contains("same number"), "{error}");
        assert!(found(&files, "u").await.unwrap_err().contains("there is no Iceberg table"));
    }
}

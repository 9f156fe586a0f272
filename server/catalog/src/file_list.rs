//! `--dataset NAME=@FILE`: a dataset of the files that a text file on this machine lists.
//!
//! Each line is a path, relative to the folder of the list, or a URL. Empty lines and lines that start with `#` are
//! skipped. All files must be in one store.

use std::{
    collections::HashMap,
    fs::File as DiskFile,
    io::Read,
    path::{Path as FilePath, PathBuf},
};

use object_store::path::Path;
use url::Url;

use super::stores;

/// The largest list, enough for 500,000 files.
const LIST_BYTES_MAX: u64 = 64 << 20;

/// A list of files. Read at every listing, as its lines may change.
#[derive(Clone, Debug)]
pub(super) struct FileList {
    path: PathBuf,
    origin: StoreOfList,
}

/// The store of a listed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreOfList {
    /// This machine.
    Disk,
    /// A bucket or a web server: the scheme of its URLs, and its name.
    Remote(String, String),
}

/// A listed file: its line, counted from 1, and its path in the store.
pub(super) type ListedFile = (usize, Path);

// === impl FileList ===

impl FileList {
    /// Reads a list for the first time. Its first file decides the store.
    pub(super) fn open(path: &FilePath) -> Result<Self, String> {
        let path = std::path::absolute(path).map_err(|source| source.to_string())?;
        let text = read(&path)?;
        let (line, entry) = lines(&text).next().ok_or("it lists no files")?;
        let (origin, _) = parse(&path, entry).map_err(|reason| format!("line {line}: {reason}"))?;
        Ok(Self { path, origin })
    }

    /// The store of the files.
    pub(super) fn origin(&self) -> &StoreOfList {
        &self.origin
    }

    /// The name of the list, for errors.
    pub(super) fn display(&self) -> String {
        self.path.display().to_string()
    }

    /// The files that the list names now, in its order.
    pub(super) fn files(&self) -> Result<Vec<ListedFile>, String> {
        let text = read(&self.path).map_err(|reason| format!("\"{}\": {reason}", self.display()))?;
        let mut files: Vec<ListedFile> = Vec::new();
        let mut known: HashMap<Path, usize> = HashMap::new();
        for (line, entry) in lines(&text) {
            let wrong = |reason: String| format!("\"{}\", line {line}: {reason}", self.display());
            let (origin, path) = parse(&self.path, entry).map_err(wrong)?;
            if origin != self.origin {
                return Err(wrong(format!(
                    "\"{entry}\" is not in the store of the first file: list the files of one store"
                )));
            }
            if let Some(earlier) = known.insert(path.clone(), line) {
                return Err(wrong(format!("\"{entry}\" is also on line {earlier}")));
            }
            files.push((line, path));
        }
        Ok(files)
    }
}

fn read(path: &FilePath) -> Result<String, String> {
    let file = DiskFile::open(path).map_err(|source| source.to_string())?;
    let mut text = String::new();
    file.take(LIST_BYTES_MAX + 1).read_to_string(&mut text).map_err(|source| source.to_string())?;
    if text.len() as u64 > LIST_BYTES_MAX {
        return Err(format!("it has more than {LIST_BYTES_MAX} bytes, which is the limit of a list of files"));
    }
    Ok(text)
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// The store and path of an entry of a list.
fn parse(list: &FilePath, entry: &str) -> Result<(StoreOfList, Path), String> {
    let invalid = |source: object_store::path::Error| source.to_string();
    match entry.split_once("://") {
        None => {
            let folder = list.parent().unwrap_or(FilePath::new("/"));
            Ok((StoreOfList::Disk, Path::from_absolute_path(folder.join(entry)).map_err(invalid)?))
        }
        Some(("file", _)) => Ok((StoreOfList::Disk, Path::from_absolute_path(file_url(entry)?).map_err(invalid)?)),
        Some((scheme @ ("http" | "https"), _)) => {
            let parsed = Url::parse(entry).map_err(|source| source.to_string())?;
            if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
                return Err(WITH_CREDENTIALS.to_owned());
            }
            let path = Path::from_url_path(parsed.path()).map_err(invalid)?;
            Ok((StoreOfList::Remote(scheme.to_owned(), parsed.authority().to_owned()), path))
        }
        Some((scheme, rest)) => {
            let (authority, key) = stores::split(scheme, rest)?;
            if authority.is_empty() || key.is_empty() {
                return Err(format!("\"{entry}\" names no file"));
            }
            let scheme = if scheme == "s3a" { "s3" } else { scheme };
            Ok((StoreOfList::Remote(scheme.to_owned(), authority), Path::parse(key).map_err(invalid)?))
        }
    }
}

/// The error of a URL with a user, a password or a signature, which it must not repeat.
pub(super) const WITH_CREDENTIALS: &str =
    "a user, a password or a query is not allowed: a URL must hold no credentials";

/// The path of a `file://` URL.
pub(super) fn file_url(url: &str) -> Result<PathBuf, String> {
    let path = Url::parse(url).ok().and_then(|parsed| parsed.to_file_path().ok());
    path.ok_or_else(|| "file:// must be followed by an absolute path".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list.txt");
        std::fs::write(&path, text).unwrap();
        let folder = format!("{}/", Path::from_absolute_path(dir.path()).unwrap());
        let files = FileList::open(&path)?.files()?;
        let shown = |(line, path): ListedFile| {
            format!("{line} {}", path.as_ref().strip_prefix(&folder).unwrap_or(path.as_ref()))
        };
        Ok(files.into_iter().map(shown).collect())
    }

    #[test]
    fn lines_are_paths_or_urls_in_order() {
        assert_eq!(
            listed("# all\n\n b.parquet \n/x/a.parquet\nfile:///x/c%20d\n").unwrap(),
            ["3 b.parquet", "4 x/a.parquet", "5 x/c d"]
        );
        assert_eq!(listed("s3://b/y z/1\r\ns3://b/0").unwrap(), ["1 y z/1", "2 0"]);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, word) in [
            ("", "no files"),
            ("# nothing", "no files"),
            ("a\nb\na", "line 3: \"a\" is also on line 1"),
            ("a\n\ns3://b/c", "line 3: \"s3://b/c\" is not in the store"),
            ("s3://b/c\ns3://d/c", "line 2"),
            ("s3://b", "line 1: \"s3://b\" names no file"),
            ("file://x", "line 1: file://"),
            ("https://user:secret@host/a", "line 1: a user, a password"),
            ("a\nhttps://host/a?sig=secret", "line 2: a user, a password"),
        ] {
            let error = listed(text).unwrap_err();
            assert!(error.contains(word) && !error.contains("secret"), "{error}");
        }
        assert!(FileList::open(FilePath::new("/nowhere")).is_err());
    }
}

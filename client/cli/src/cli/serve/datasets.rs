//! The datasets of a folder: itself if it has data files, else each folder in it that has some; of those whose files are
//! named as splits, each split. And those of a URL.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde::Deserialize;
use tokio::process::Command;

use crate::cli::failure::Failure;

/// Endings of the files that the server reads.
const ENDINGS: [&str; 4] = ["parquet", "arrow", "feather", "ipc"];

/// Endings of files that `forebay convert` reads.
const CONVERTIBLE: [&str; 6] = ["csv", "tsv", "json", "jsonl", "ndjson", "gz"];

/// Limits of the search for a data file in a folder.
const DEPTH_MAX: usize = 8;
const ENTRIES_MAX: usize = 10_000;

/// Longest name of a dataset in bytes.
const NAME_BYTES_MAX: usize = 128;

/// What stands before the path in a URL.
const SCHEME_END: &str = "://";

/// The formats of tables, before their URLs, and what follows these.
const TABLES: [&str; 2] = ["delta+", "iceberg+"];
const MARKS: [&str; 3] = ["@version=", "@snapshot=", "@root="];

/// The schemes of catalogs of tables, whose URLs end with the name of a table.
const CATALOGS: [&str; 5] = ["+rest://", "+rest+http://", "+unity://", "+unity+http://", "+glue://"];

/// A dataset to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedDataset {
    name: String,
    /// `delta+` or `iceberg+` before the path of a table.
    scheme: &'static str,
    /// On this machine, or a URL.
    path: PathBuf,
}

/// A line of `forebay-server splits`.
#[derive(Debug, Deserialize)]
struct DatasetSplits {
    dataset: String,
    splits: Vec<Split>,
}

#[derive(Debug, Deserialize)]
struct Split {
    name: String,
    url: PathBuf,
}

/// The kinds of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FolderKind {
    Files,
    Delta,
    Iceberg,
    /// No data directly in it.
    Other,
}

/// Finds the datasets of a folder or a URL, in the order of their names. `server` is the program that knows splits.
pub(super) async fn find(folder: &Path, server: Command) -> Result<Vec<ServedDataset>, Failure> {
    if let Some(url) = folder.to_str().filter(|url| url.contains(SCHEME_END)) {
        let dataset = ServedDataset::new(OsStr::new(name_of(url)), "", Path::new(url))?;
        return divided(vec![dataset], server).await.map_err(Failure::Usage);
    }
    let datasets = in_folder(folder)?;
    let kept = datasets.clone();
    // The server says itself what is wrong with a folder.
    Ok(divided(datasets, server).await.unwrap_or(kept))
}

/// The name of the dataset of a URL: its last part, or that of a repository without its revision, or of the table.
fn name_of(url: &str) -> &str {
    let is_table = TABLES.iter().any(|format| url.starts_with(format));
    let url = if is_table { without_marks(url) } else { url };
    if is_table && CATALOGS.iter().any(|catalog| url.contains(catalog)) {
        let address = url.split_once('?').map_or(url, |(address, _)| address).trim_end_matches('/');
        return address.rsplit(['/', '.']).next().unwrap_or(address);
    }
    let path = url.split_once(SCHEME_END).map_or(url, |(_, path)| path).trim_end_matches('/');
    let last = path.rsplit('/').find(|part| !part.contains(['*', '?', '['])).unwrap_or(path);
    let name = last.split_once('@').map_or(last, |(name, _)| name);
    let ending = name.rsplit_once('.').filter(|(stem, ending)| !stem.is_empty() && ENDINGS.contains(ending));
    ending.map_or(name, |(stem, _)| stem)
}

/// The URL of a table without what follows it.
fn without_marks(url: &str) -> &str {
    MARKS.iter().filter_map(|mark| url.find(mark)).min().map_or(url, |end| &url[..end])
}

/// Datasets with each split in place of those that have some; else what the server said.
async fn divided(datasets: Vec<ServedDataset>, mut server: Command) -> Result<Vec<ServedDataset>, String> {
    server.arg("splits").stdin(Stdio::null());
    let plain: Vec<&ServedDataset> = datasets.iter().filter(|dataset| dataset.scheme.is_empty()).collect();
    if plain.is_empty() {
        return Ok(datasets);
    }
    for dataset in &plain {
        server.arg("--dataset").arg(dataset.flag());
    }
    let found = server.output().await.map_err(|error| error.to_string())?;
    let lines = String::from_utf8_lossy(&found.stdout);
    // What is wrong with some of them does not keep the others from being divided.
    if lines.is_empty() && !found.status.success() {
        return Err(String::from_utf8_lossy(&found.stderr).trim().trim_start_matches("error: ").to_owned());
    }
    let read = lines.lines().map(serde_json::from_str::<DatasetSplits>).collect::<Result<Vec<_>, _>>();
    let read = read.map_err(|error| format!("the server's answer is not one: {error}"))?;
    let mut splits: HashMap<String, Vec<Split>> = read.into_iter().map(|found| (found.dataset, found.splits)).collect();
    let is_one = datasets.len() == 1;
    let mut all = Vec::with_capacity(datasets.len());
    for dataset in datasets {
        let found = splits.remove(&dataset.name).unwrap_or_default();
        if found.is_empty() {
            all.push(dataset);
            continue;
        }
        for Split { name, url } in found {
            let name = if is_one { name } else { format!("{}-{name}", dataset.name) };
            all.push(ServedDataset::new(OsStr::new(&name), "", &url).map_err(|error| error.to_string())?);
        }
    }
    Ok(all)
}

/// Finds the datasets of a folder, in the order of their names.
fn in_folder(folder: &Path) -> Result<Vec<ServedDataset>, Failure> {
    let unreadable = |source: io::Error| Failure::Usage(format!("{}: {source}", folder.display()));
    let root = fs::canonicalize(folder).map_err(unreadable)?;
    if root.is_file() {
        return Ok(vec![ServedDataset::new(root.file_stem().unwrap_or_default(), "", &root)?]);
    }
    let kind = kind_of(&root).map_err(unreadable)?;
    if kind != FolderKind::Other {
        return Ok(vec![ServedDataset::new(root.file_name().unwrap_or_default(), kind.scheme(), &root)?]);
    }
    let mut datasets = Vec::new();
    for path in entries(&root).map_err(unreadable)?.into_iter().filter(|path| path.is_dir()) {
        // A folder that cannot be read is not a dataset.
        let kind = kind_of(&path).unwrap_or(FolderKind::Other);
        if kind != FolderKind::Other || has_data(&path) {
            datasets.push(ServedDataset::new(path.file_name().unwrap_or_default(), kind.scheme(), &path)?);
        }
    }
    if datasets.is_empty() { Err(Failure::Usage(no_datasets(folder, &root))) } else { Ok(datasets) }
}

fn no_datasets(folder: &Path, root: &Path) -> String {
    let is_convertible = |path: &PathBuf| has_ending(path, &CONVERTIBLE);
    let other = entries(root).ok().and_then(|paths| paths.into_iter().find(is_convertible));
    let advice = match other {
        Some(file) => format!("`forebay convert {} --out DIR` makes Parquet of its files", file.display()),
        None => "name a folder of Parquet or Arrow files, or one whose folders have them".to_owned(),
    };
    format!("{} has no Parquet or Arrow files, nor has any folder in it; {advice}", folder.display())
}

/// The entries of a folder by name, without those that the server skips.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_hidden = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(b".") || name.starts_with(b"_")
    };
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| !is_hidden(path));
    paths.sort();
    Ok(paths)
}

fn kind_of(folder: &Path) -> io::Result<FolderKind> {
    if folder.join("_delta_log").is_dir() {
        return Ok(FolderKind::Delta);
    }
    let is_metadata = |path: &PathBuf| path.to_string_lossy().ends_with(".metadata.json");
    if entries(&folder.join("metadata")).is_ok_and(|paths| paths.iter().any(is_metadata)) {
        return Ok(FolderKind::Iceberg);
    }
    // Folders named key=value are partitions of one dataset.
    let is_partition = |path: &Path| path.is_dir() && path.file_name().is_some_and(|name| contains(name, b'='));
    let is_data = |path: &PathBuf| is_data_file(path) || (is_partition(path) && has_data(path));
    Ok(if entries(folder)?.iter().any(is_data) { FolderKind::Files } else { FolderKind::Other })
}

/// Whether a folder has a data file at any depth, within the limits of the search.
fn has_data(folder: &Path) -> bool {
    let mut folders = vec![(folder.to_owned(), 0)];
    let mut seen = 0;
    while let Some((folder, depth)) = folders.pop() {
        // A folder that cannot be read has no data for the server either.
        for path in entries(&folder).unwrap_or_default() {
            seen += 1;
            if is_data_file(&path) {
                return true;
            }
            if seen > ENTRIES_MAX {
                return false;
            }
            if depth < DEPTH_MAX && path.is_dir() {
                folders.push((path, depth + 1));
            }
        }
    }
    false
}

fn is_data_file(path: &Path) -> bool {
    has_ending(path, &ENDINGS) && path.is_file()
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    path.extension().is_some_and(|found| endings.iter().any(|ending| found.eq_ignore_ascii_case(ending)))
}

fn contains(name: &OsStr, byte: u8) -> bool {
    name.as_encoded_bytes().contains(&byte)
}

// === impl FolderKind ===

impl FolderKind {
    fn scheme(self) -> &'static str {
        match self {
            Self::Files | Self::Other => "",
            Self::Delta => "delta+",
            Self::Iceberg => "iceberg+",
        }
    }
}

// === impl ServedDataset ===

impl ServedDataset {
    fn new(name: &OsStr, scheme: &'static str, path: &Path) -> Result<Self, Failure> {
        let is_name = |name: &&str| {
            !name.is_empty()
                && name.len() <= NAME_BYTES_MAX
                && !name.contains(['=', '\\'])
                && !name.contains(char::is_control)
        };
        match name.to_str().filter(is_name) {
            Some(name) => Ok(Self { name: name.to_owned(), scheme, path: path.to_owned() }),
            None => Err(Failure::Usage(format!(
                "{}: its name cannot be that of a dataset; run `forebay-server --dataset NAME=DIR`",
                path.display()
            ))),
        }
    }

    /// The value of the server's flag.
    pub(super) fn flag(&self) -> OsString {
        let mut flag = OsString::from(format!("{}={}", self.name, self.scheme));
        flag.push(&self.path);
        flag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        folder
    }

    fn names(files: &[&str]) -> Vec<String> {
        let folder = folder(files);
        in_folder(&folder.path().join("data"))
            .unwrap()
            .into_iter()
            .map(|found| found.scheme.to_owned() + &found.name)
            .collect()
    }

    #[test]
    fn a_folder_is_one_dataset_or_each_of_its_folders() {
        let cases: [(&[&str], &[&str]); 7] = [
            (&["data/a.parquet", "data/more/b.parquet"], &["data"]),
            (&["data/a.arrow"], &["data"]),
            (&["data/flights/a.parquet", "data/clicks/deep/b.PARQUET", "data/notes/c.txt"], &["clicks", "flights"]),
            (&["data/day=1/a.parquet", "data/day=2/b.parquet"], &["data"]),
            (&["data/_delta_log/0.json", "data/a.parquet"], &["delta+data"]),
            (&["data/t/metadata/v1.metadata.json", "data/u/_delta_log/0.json"], &["iceberg+t", "delta+u"]),
            (&["data/.hidden/a.parquet", "data/_tmp/a.parquet", "data/t/a.feather"], &["t"]),
        ];
        for (files, expected) in cases {
            assert_eq!(names(files), expected, "{files:?}");
        }
    }

    #[test]
    fn a_file_is_a_dataset_by_its_stem() {
        let folder = folder(&["flights.parquet"]);
        let path = fs::canonicalize(folder.path().join("flights.parquet")).unwrap();
        let expected = vec![ServedDataset { name: "flights".into(), scheme: "", path: path.clone() }];
        assert_eq!(in_folder(&path).unwrap(), expected);
        assert_eq!(expected[0].flag().to_str().unwrap(), format!("flights={}", path.display()));
    }

    #[test]
    fn urls_name_their_dataset() {
        for (url, name) in [
            ("hf://datasets/o/reviews", "reviews"),
            ("hf://datasets/o/reviews@v1.0/", "reviews"),
            ("delta+s3://b/clicks@version=3@root=s3://b/old", "clicks"),
            ("iceberg+rest://h:1/api/db.clicks?warehouse=w@snapshot=1@root=s3://b/w", "clicks"),
            ("iceberg+rest://h/db/clicks@root=/w", "clicks"),
            ("delta+unity+http://h/a.b.clicks@root=s3://b/w", "clicks"),
            ("iceberg+glue://db/clicks@root=s3://b/w", "clicks"),
            ("hf://datasets/o/reviews/data/train-*.parquet", "data"),
            ("s3://bucket/flights/", "flights"),
            ("s3://bucket", "bucket"),
            ("https://host/a/flights.parquet", "flights"),
        ] {
            assert_eq!(name_of(url), name, "{url}");
        }
    }

    #[test]
    fn a_folder_without_datasets_says_what_to_do() {
        let refused = |files: &[&str]| in_folder(folder(files).path()).unwrap_err().to_string();
        assert!(refused(&["a.csv"]).contains("a.csv --out DIR` makes Parquet"), "{}", refused(&["a.csv"]));
        assert!(refused(&["notes/a.txt"]).contains("has no Parquet or Arrow files"));
        assert!(refused(&["a=b.txt", "x\n/a.parquet"]).contains("cannot be that of a dataset"));
        assert!(matches!(in_folder(Path::new("/nonexistent/folder")), Err(Failure::Usage(_))));
    }
}

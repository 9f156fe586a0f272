//! Locations of datasets, and files there with hostile names and links: nothing outside the location is read.
//!
//! The operator's own path is trusted, with any links and `..`. The files below it are not.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    path::{Component, Path, PathBuf},
};

use arrow::array::{Int64Array, RecordBatch};
use arrow_flight::FlightDescriptor;
use forebay_catalog::{Location, Stores};
use parquet::arrow::ArrowWriter;
use tonic::Status;
use url::Url;

use crate::server::{Process, Server, exclusive};

/// Files, directories and links that an input creates.
const ENTRIES_MAX: usize = 8;

/// The column of the files in the location, and of the file outside.
const INSIDE: &str = "inside";
const OUTSIDE: &str = "outside";

/// The directories of an input.
#[derive(Debug)]
struct Sandbox {
    /// The parent of the others.
    whole: PathBuf,
    /// The dataset's location.
    root: PathBuf,
}

/// The first line is used three times: as a URL, and appended to the path of a directory and to its `file://` URL. The
/// other lines create entries in the directory: `f NAME`, `d NAME`, `l NAME>TARGET`. In a target, `{out}` is the
/// directory outside and `{root}` the location itself.
pub fn path_resolver(data: &[u8]) {
    let _exclusive = exclusive();
    let mut lines = data.split(|byte| *byte == b'\n');
    let url = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let _ = Location::parse("t", &url, &mut Stores::default());

    let sandbox = Sandbox::make();
    for line in lines.take(ENTRIES_MAX) {
        sandbox.fill(line);
    }
    let root = sandbox.root.display();
    let as_path = format!("{root}{url}");
    read(&sandbox, &as_path, Some(PathBuf::from(&as_path)));
    let as_url = format!("file://{root}{url}");
    let named = Url::parse(&as_url).ok().and_then(|url| url.to_file_path().ok());
    read(&sandbox, &as_url, named);
}

/// Reads the dataset at a URL of this path.
fn read(sandbox: &Sandbox, url: &str, named: Option<PathBuf>) {
    let Ok(location) = Location::parse("t", url, &mut Stores::default()) else { return };
    let Some(base) = named.and_then(|named| base(&named)) else { return };
    // An operator may use any path; the fuzzer must not walk the whole disk.
    if !base.starts_with(&sandbox.whole) {
        return;
    }
    let server = Server::over("t", location);
    let Ok(info) = server.info(&FlightDescriptor::new_path(vec!["t".to_owned()])) else { return };
    for file in files(&server) {
        let real = file.canonicalize().expect("an existing file");
        let (real_name, base_name) = (real.display(), base.display());
        assert!(real.starts_with(&base), "{url}: {real_name} is read, outside {base_name}");
    }
    if base.starts_with(&sandbox.root) {
        let schema = info.clone().try_decode_schema().expect("a valid schema");
        assert!(schema.field_with_name(OUTSIDE).is_err(), "{url}: the file outside is read");
    }
    server.get_first_and_last(&info);
}

/// The files of the server's dataset.
fn files(server: &Server) -> Vec<PathBuf> {
    let listed = server.run(async {
        let dataset = server.catalog().dataset("t").map_err(|error| Status::not_found(error.to_string()))?;
        dataset.present().await.map_err(|error| Status::aborted(error.to_string()))
    });
    listed.map_or_else(
        |_| Vec::new(),
        |snapshot| snapshot.files().iter().map(|file| PathBuf::from(file.display())).collect(),
    )
}

/// The real path of an existing file or directory, or of the parts before the first wildcard.
fn base(named: &Path) -> Option<PathBuf> {
    if named.exists() {
        return named.canonicalize().ok();
    }
    let is_wild = |part: &Component<'_>| part.as_os_str().as_bytes().iter().any(|byte| b"*?[".contains(byte));
    let plain: PathBuf = named.components().take_while(|part| !is_wild(part)).collect();
    plain.canonicalize().ok()
}

// === impl Sandbox ===

impl Sandbox {
    /// An empty location, and a file outside it.
    fn make() -> Self {
        let whole = Process::get().fresh("paths");
        let sandbox = Self { root: whole.join("root"), whole };
        for directory in [sandbox.root.clone(), sandbox.out()] {
            fs::create_dir(directory).expect("create a directory");
        }
        fs::write(sandbox.out().join("secret.parquet"), file_with(OUTSIDE)).expect("write a file");
        sandbox
    }

    fn out(&self) -> PathBuf {
        self.whole.join("out")
    }

    /// Creates the entry of a line, if that is possible.
    fn fill(&self, line: &[u8]) {
        let Some((kind, rest)) = line.split_at_checked(2) else { return };
        let end = rest.iter().position(|byte| kind == b"l " && *byte == b'>').unwrap_or(rest.len());
        let Some(path) = self.below(&rest[..end]) else { return };
        if let Some(parent) = path.parent() {
            let _ = fs::create_dir_all(parent);
        }
        let _ = match kind {
            b"f " => fs::write(path, file_with(INSIDE)),
            b"d " => fs::create_dir(path),
            b"l " => symlink(self.target(rest.get(end + 1..).unwrap_or_default()), path),
            _ => Ok(()),
        };
    }

    /// The path of a name below the location. None if links of earlier lines could lead the fuzzer itself outside.
    fn below(&self, name: &[u8]) -> Option<PathBuf> {
        let mut path = self.root.clone();
        for part in name.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            if matches!(part, b"." | b"..") || path.is_symlink() {
                return None;
            }
            path.push(OsStr::from_bytes(part));
        }
        (path != self.root && !path.is_symlink()).then_some(path)
    }

    fn target(&self, text: &[u8]) -> PathBuf {
        let (out, root) = (self.out(), self.root.clone());
        for (word, path) in [(&b"{out}"[..], &out), (b"{root}", &root)] {
            if let Some(rest) = text.strip_prefix(word) {
                return PathBuf::from(OsStr::from_bytes(&[path.as_os_str().as_bytes(), rest].concat()));
            }
        }
        PathBuf::from(OsStr::from_bytes(text))
    }
}

/// A file with one row of one column.
fn file_with(column: &str) -> Vec<u8> {
    let values = std::sync::Arc::new(Int64Array::from(vec![1]));
    let batch = RecordBatch::try_from_iter([(column, values as _)]).expect("a table");
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("write rows");
    writer.close().expect("write a footer");
    bytes
}

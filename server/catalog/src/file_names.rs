//! What the names of the files in a folder say: which are the data of a dataset, and which may be.
//!
//! This module knows names only; `folder_files` reads the files whose names leave it open.

/// Endings of Parquet and Arrow IPC files.
const DATA: [&str; 6] = [".parquet", ".parq", ".pq", ".arrow", ".feather", ".ipc"];

/// Endings of the codecs that some writers append to the name of a file, although only its pages are compressed.
const CODECS: [&str; 11] =
    [".gz", ".gzip", ".snappy", ".zst", ".zstd", ".lz4", ".lzo", ".br", ".brotli", ".deflate", ".bz2"];

/// What a path below the folder of a dataset says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind<'a> {
    /// Data, by its ending.
    Data,
    /// Data or not: Hive and Spark also write Parquet without an ending, such as `000000_0`.
    Open,
    /// Another format.
    Other,
    /// In a hidden folder, whose path this is.
    InHidden(&'a str),
    /// A hidden file.
    Hidden,
}

// === impl NameKind ===

impl<'a> NameKind<'a> {
    /// The kind of a path relative to the folder of the dataset.
    pub(super) fn of(below: &'a str) -> Self {
        let (folders, name) = below.rsplit_once('/').unwrap_or(("", below));
        let mut end = 0;
        for folder in folders.split('/') {
            end += folder.len();
            if is_hidden(folder) {
                return Self::InHidden(&below[..end]);
            }
            end += 1;
        }
        if is_hidden(name) {
            Self::Hidden
        } else if is_data(name) {
            Self::Data
        } else if is_open(name) {
            Self::Open
        } else {
            Self::Other
        }
    }
}

/// Whether the name of a file or a folder is hidden, as Spark and Hive have it: markers, logs and incomplete files start
/// with `_` or `.`. A folder such as `_key=1` is a partition.
pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || name.starts_with('_') && !name.contains('=')
}

/// Whether a name has an ending of Parquet or Arrow IPC files.
pub(super) fn is_data(name: &str) -> bool {
    without(name, &DATA).is_some()
}

/// Whether a name has no ending, or one that says nothing about its format: a number, or a codec after another name that
/// may be one of data.
fn is_open(name: &str) -> bool {
    if let Some(stem) = without(name, &CODECS) {
        return is_data(stem) || has_no_ending(stem);
    }
    has_no_ending(name)
}

fn has_no_ending(name: &str) -> bool {
    name.rsplit_once('.').is_none_or(|(stem, ending)| {
        // A number after an ending of data is most often that of a backup.
        !ending.is_empty() && ending.bytes().all(|byte| byte.is_ascii_digit()) && !is_data(stem)
    })
}

/// A name without the first of these endings that it has, in any case.
fn without<'a>(name: &'a str, endings: &[&str]) -> Option<&'a str> {
    endings.iter().find_map(|ending| {
        let start = name.len().checked_sub(ending.len()).filter(|start| *start > 0)?;
        name.as_bytes()[start..].eq_ignore_ascii_case(ending.as_bytes()).then(|| &name[..start])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_data() {
        use NameKind as N;
        for (below, want) in [
            ("a.parquet", N::Data),
            ("b.PARQUET", N::Data),
            ("c.parq", N::Data),
            ("d.pq", N::Data),
            ("day=1/a.gz.parquet", N::Data),
            ("ü.parquet", N::Data),
            ("a.arrow", N::Data),
            ("a.feather", N::Data),
            ("000000_0", N::Open),
            ("part-00000", N::Open),
            ("parquet", N::Open),
            ("éparquet", N::Open),
            ("day=1/000001_0.snappy", N::Open),
            ("4e43-data.0", N::Open),
            ("e.parquet.gzip", N::Open),
            ("e.parquet.20240229", N::Other),
            ("a.parquet.crc", N::Other),
            ("a.parquet.tmp", N::Other),
            ("a.csv.gz", N::Other),
            ("notes.txt", N::Other),
            ("a.", N::Other),
            ("_a.parquet", N::Hidden),
            (".parquet", N::Hidden),
            ("a/_SUCCESS", N::Hidden),
            ("_temporary/0/a.parquet", N::InHidden("_temporary")),
            ("a=1/.b/a.parquet", N::InHidden("a=1/.b")),
            ("a=1/.b=2/a.parquet", N::InHidden("a=1/.b=2")),
            ("_k=1/a.parquet", N::Data),
            ("a=1/_b=2/000000_0", N::Open),
        ] {
            assert_eq!(NameKind::of(below), want, "{below}");
        }
    }
}

//! Formats of files, by name and by first bytes.

use std::path::Path;

/// A format that is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines of fields between delimiters.
    Csv,
    /// Lines of JSON objects.
    JsonLines,
    /// Arrow IPC: a file, or a stream of messages.
    Arrow,
    /// Parquet.
    Parquet,
}

// === impl Format ===

impl Format {
    /// The format of this name on the command line.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "csv" => Some(Self::Csv),
            "jsonl" => Some(Self::JsonLines),
            "arrow" => Some(Self::Arrow),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
            Self::Arrow => "arrow",
            Self::Parquet => "parquet",
        }
    }

    /// The format that the name of a file says.
    pub(crate) fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let (stem, is_compressed) = match name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")) {
            Some(stem) => (stem, true),
            None => (name.as_str(), false),
        };
        let (_, extension) = stem.rsplit_once('.')?;
        match extension {
            "csv" | "tsv" => Some(Self::Csv),
            "jsonl" | "ndjson" | "json" => Some(Self::JsonLines),
            "arrow" | "arrows" | "feather" | "ipc" if !is_compressed => Some(Self::Arrow),
            "parquet" | "parq" | "pq" if !is_compressed => Some(Self::Parquet),
            _ => None,
        }
    }

    /// The format that the first bytes of a file say; text has no mark.
    pub(crate) fn of_magic(first: &[u8]) -> Option<Self> {
        if first.starts_with(b"PAR1") {
            Some(Self::Parquet)
        } else if first.starts_with(b"ARROW1") || first.starts_with(&[0xff; 4]) {
            Some(Self::Arrow)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_format() {
        for (name, format) in [
            ("a.csv", Some(Format::Csv)),
            ("a.TSV.gz", Some(Format::Csv)),
            ("a.b.jsonl.zst", Some(Format::JsonLines)),
            ("a.feather", Some(Format::Arrow)),
            ("a.parquet", Some(Format::Parquet)),
            ("a.PQ", Some(Format::Parquet)),
            ("a.parquet.gz", None),
            ("a.txt", None),
            ("csv", None),
        ] {
            assert_eq!(Format::of_name(Path::new(name)), format, "{name}");
        }
    }
}

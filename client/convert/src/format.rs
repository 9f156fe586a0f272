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
    /// Avro object container files.
    Avro,
    /// ORC.
    Orc,
    /// Tar archives of samples.
    WebDataset,
    /// `TFRecord` files of `tf.train.Example`.
    TfRecord,
    /// Folders of MDS shards.
    Mds,
    /// Folders of images.
    Images,
}

// === impl Format ===

impl Format {
    /// Every format.
    pub const ALL: [Self; 10] = [
        Self::Csv,
        Self::JsonLines,
        Self::Arrow,
        Self::Parquet,
        Self::Avro,
        Self::Orc,
        Self::WebDataset,
        Self::TfRecord,
        Self::Mds,
        Self::Images,
    ];

    /// The format of this name on the command line.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The names of all formats, for messages.
    pub fn names() -> String {
        let names: Vec<&str> = Self::ALL.into_iter().map(Self::name).collect();
        let (last, others) = names.split_last().unwrap_or((&"", &[]));
        format!("{} or {last}", others.join(", "))
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
            Self::Arrow => "arrow",
            Self::Parquet => "parquet",
            Self::Avro => "avro",
            Self::Orc => "orc",
            Self::WebDataset => "webdataset",
            Self::TfRecord => "tfrecord",
            Self::Mds => "mds",
            Self::Images => "images",
        }
    }

    /// The format that the name of a file says.
    pub(crate) fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
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
            "avro" if !is_compressed => Some(Self::Avro),
            "orc" if !is_compressed => Some(Self::Orc),
            "tar" => Some(Self::WebDataset),
            "tgz" if !is_compressed => Some(Self::WebDataset),
            other => matches!(before_part(other), "tfrecord" | "tfrecords" | "tfrec").then_some(Self::TfRecord),
        }
    }

    /// The format that the first bytes of a file say; text has no mark.
    pub(crate) fn of_magic(first: &[u8]) -> Option<Self> {
        if first.starts_with(b"PAR1") {
            Some(Self::Parquet)
        } else if first.starts_with(b"ARROW1") || first.starts_with(&[0xff; 4]) {
            Some(Self::Arrow)
        } else if first.starts_with(b"Obj\x01") {
            Some(Self::Avro)
        } else if first.starts_with(b"ORC") {
            Some(Self::Orc)
        } else {
            None
        }
    }
}

/// An extension without the number of a part, such as `-00001-of-00010`, which TensorFlow appends.
pub(crate) fn before_part(extension: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let part = extension.rsplit_once("-of-").and_then(|(rest, parts)| Some((rest.rsplit_once('-')?, parts)));
    match part {
        Some(((rest, part), parts)) if is_number(part) && is_number(parts) => rest,
        _ => extension,
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
            ("a.avro", Some(Format::Avro)),
            ("a.avro.gz", None),
            ("a.orc", Some(Format::Orc)),
            ("a.tar", Some(Format::WebDataset)),
            ("a.0.tar.zst", Some(Format::WebDataset)),
            ("a.tgz", Some(Format::WebDataset)),
            ("a.tfrecord", Some(Format::TfRecord)),
            ("a.tfrecord-00001-of-00010", Some(Format::TfRecord)),
            ("a.tfrec.gz", Some(Format::TfRecord)),
            ("train-00001-of-00010", None),
            ("a.tfrecord-1-of-x", None),
            ("a.csv-00001-of-00010", None),
            ("a.txt", None),
            ("csv", None),
        ] {
            assert_eq!(Format::of_name(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn names_on_the_command_line_are_parsed() {
        for format in Format::ALL {
            assert_eq!(Format::parse(format.name()), Some(format));
        }
        assert_eq!(Format::parse("xml"), None);
        assert!(Format::names().starts_with("csv, jsonl, "));
    }
}

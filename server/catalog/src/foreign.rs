//! Files of other formats where a dataset is expected: the command that converts them.

/// The first file of another format in a listing.
#[derive(Debug, Default)]
pub(super) struct ForeignFiles(Option<String>);

// === impl ForeignFiles ===

impl ForeignFiles {
    /// Notes a file that is not hidden, by its path below the folder.
    pub(super) fn note(&mut self, below: &str) {
        if self.0.is_none() && of_folder(below).is_some() {
            self.0 = Some(below.to_owned());
        }
    }

    /// Why a folder without Parquet is not a dataset, if it has a file of another format.
    pub(super) fn refusal(&self, folder: &str) -> Option<String> {
        let first = self.0.as_deref()?;
        let (format, command) = (of_folder(first)?, command(folder, folder));
        Some(format!(
            "no *.parquet or *.arrow file under \"{folder}\", but \"{first}\": {format} is not served; {command}"
        ))
    }
}

/// The command for a file that is not Parquet and whose name says another format.
pub(super) fn advice(file: &str) -> Option<String> {
    let format = format_of(file)?;
    let stem = file.rfind('.').map_or(file, |end| &file[..end]);
    Some(format!("\"{file}\" is not Parquet, and {format} is not served; {}", command(file, stem)))
}

fn command(source: &str, stem: &str) -> String {
    // The program reads files of its machine only.
    if source.contains("://") {
        return "copy the files to a disk, convert them there with `forebay convert SRC --out DIR`, and serve the result"
            .to_owned();
    }
    let (source, out) = (word(source), word(&format!("{}-parquet", stem.trim_end_matches('/'))));
    format!("convert it with `forebay convert {source} --out {out}`, and serve that folder")
}

/// A text as one word of a shell.
fn word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || matches!(letter, '/' | '.' | '_' | '-' | '=' | '+' | ',');
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The format that the name of a file in a folder says, also if the folder is converted as a whole.
fn of_folder(name: &str) -> Option<&'static str> {
    format_of(name).or_else(|| match name.to_ascii_lowercase().rsplit_once('.')?.1 {
        "mds" => Some("MDS"),
        "jpg" | "jpeg" | "png" | "webp" => Some("a folder of images"),
        _ => None,
    })
}

/// The format that a name says, unless it is Parquet or an Arrow IPC file.
fn format_of(name: &str) -> Option<&'static str> {
    let name = name.rsplit('/').next()?.to_ascii_lowercase();
    let (stem, is_compressed) = match name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")) {
        Some(stem) => (stem, true),
        None => (name.as_str(), false),
    };
    match stem.rsplit_once('.')?.1 {
        "csv" | "tsv" => Some("CSV"),
        "jsonl" | "ndjson" | "json" => Some("JSON"),
        // Streams have no footer.
        "arrows" if !is_compressed => Some("an Arrow IPC stream"),
        "avro" if !is_compressed => Some("Avro"),
        "orc" if !is_compressed => Some("ORC"),
        "tar" | "tgz" => Some("WebDataset"),
        // A number of a part may follow.
        extension if extension.starts_with("tfrec") => Some("TFRecord"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_the_files() {
        let mut foreign = ForeignFiles::default();
        for below in ["notes.txt", "part.parquet.crc"] {
            foreign.note(below);
            assert_eq!(foreign.refusal("/data/clicks"), None, "{below}");
        }
        foreign.note("day/a.csv.gz");
        foreign.note("b.jsonl");
        assert_eq!(
            foreign.refusal("/data/my clicks").unwrap(),
            "no *.parquet or *.arrow file under \"/data/my clicks\", but \"day/a.csv.gz\": CSV is not served; \
             convert it with `forebay convert '/data/my clicks' --out '/data/my clicks-parquet'`, and serve that folder"
        );
        assert!(foreign.refusal("s3://bucket/clicks").unwrap().contains("copy the files to a disk"));
        assert_eq!(
            advice("/data/a.jsonl").unwrap(),
            "\"/data/a.jsonl\" is not Parquet, and JSON is not served; convert it with \
             `forebay convert /data/a.jsonl --out /data/a-parquet`, and serve that folder"
        );
        for (name, format) in [
            ("part-0.avro", Some("Avro")),
            ("000000_0.orc", Some("ORC")),
            ("a.tar", Some("WebDataset")),
            ("b/a.tar.gz", Some("WebDataset")),
            ("a.tfrecord-00001-of-00010", Some("TFRecord")),
            ("shard.00000.mds", Some("MDS")),
            ("cats/1.JPG", Some("a folder of images")),
            ("a.txt", None),
        ] {
            assert_eq!(of_folder(name), format, "{name}");
        }
        assert!(advice("/data/a.tar").unwrap().contains("WebDataset is not served; convert it with"));
        assert!(advice("/data/a.mds").is_none() && advice("/data/a.parquet").is_none());
    }
}

//! Samples of an archive: consecutive entries whose names are equal up to the first dot after the last slash.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::{
    error::ConvertError,
    input::{RECORD_BYTES_MAX, ReadBytes},
    sources::SourceFile,
    webdataset::tar::{TarEntries, TarEntry},
};

/// The column of the keys.
pub(crate) const KEY: &str = "__key__";

/// Entries of a sample, and columns.
pub(crate) const FIELDS_MAX: usize = 1_000;

/// Keys of an archive that are remembered, to find those that occur again: 64 MiB of hashes.
const KEYS_MAX: usize = 4 << 20;

/// A row.
#[derive(Debug)]
pub(crate) struct Sample {
    /// The common part of the names.
    pub key: String,
    /// Extensions, and the contents of their entries.
    pub fields: Vec<(String, Vec<u8>)>,
    /// Bytes of all contents.
    pub bytes: usize,
}

/// The samples of an archive, in order.
pub(crate) struct Samples {
    entries: TarEntries,
    /// The first entry of the next sample, with its key and extension.
    next: Option<(TarEntry, String, String)>,
    /// Hashes of the keys so far.
    keys: HashSet<u64>,
}

// === impl Samples ===

impl Samples {
    pub(crate) fn open(file: &SourceFile, read: &ReadBytes) -> Result<Self, ConvertError> {
        Ok(Self { entries: TarEntries::open(file, read)?, next: None, keys: HashSet::new() })
    }

    /// Reads the next sample.
    pub(crate) fn next_sample(&mut self) -> Result<Option<Sample>, ConvertError> {
        let first = match self.next.take() {
            None => self.next_entry()?,
            next => next,
        };
        let Some((entry, key, extension)) = first else { return Ok(None) };
        self.check_key(&key)?;
        let mut sample = Sample { key, fields: Vec::new(), bytes: 0 };
        self.add(&mut sample, &entry, extension)?;
        while let Some((entry, key, extension)) = self.next_entry()? {
            if key != sample.key {
                self.next = Some((entry, key, extension));
                break;
            }
            self.add(&mut sample, &entry, extension)?;
        }
        Ok(Some(sample))
    }

    /// An error of a sample.
    pub(crate) fn bad_sample(&self, key: &str, column: &str, reason: String) -> ConvertError {
        self.entries.bad_sample(key, Some(column.to_owned()), reason)
    }

    fn add(&mut self, sample: &mut Sample, entry: &TarEntry, extension: String) -> Result<(), ConvertError> {
        if sample.fields.iter().any(|(other, _)| *other == extension) {
            let reason = format!("two of its entries have the extension \"{extension}\", in any case: rename one");
            return Err(self.entries.bad_sample(&sample.key, None, reason));
        }
        if sample.fields.len() == FIELDS_MAX {
            let reason = format!("it has more than {FIELDS_MAX} entries: names are equal up to the first dot");
            return Err(self.entries.bad_sample(&sample.key, None, reason));
        }
        let bytes = self.entries.read(entry)?;
        sample.bytes += bytes.len();
        if sample.bytes as u64 > RECORD_BYTES_MAX {
            let reason = format!("its entries have more than {} MiB: divide it", RECORD_BYTES_MAX >> 20);
            return Err(self.entries.bad_sample(&sample.key, None, reason));
        }
        sample.fields.push((extension, bytes));
        Ok(())
    }

    fn next_entry(&mut self) -> Result<Option<(TarEntry, String, String)>, ConvertError> {
        while let Some(entry) = self.entries.next_entry()? {
            let bad = |reason: &str| self.entries.bad_entry(entry.name.clone(), reason.to_owned());
            if entry.name.starts_with('/') || entry.name.split('/').any(|part| part == "..") {
                return Err(bad("its name is outside the archive, as of a damaged or hostile one: rename it"));
            }
            if is_skipped(&entry.name) {
                continue;
            }
            let Some((key, extension)) = split(&entry.name) else {
                return Err(bad(
                    "its name has no extension, which is its column: rename it, or write the archive without it",
                ));
            };
            if extension == KEY {
                return Err(bad("its extension is the column of keys: rename it"));
            }
            return Ok(Some((entry, key, extension)));
        }
        Ok(None)
    }

    fn check_key(&mut self, key: &str) -> Result<(), ConvertError> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        if self.keys.len() < KEYS_MAX && !self.keys.insert(hasher.finish()) {
            let reason =
                "its entries are not next to each other: write the archive with sorted names, as by tar --sort=name";
            return Err(self.entries.bad_sample(key, None, reason.to_owned()));
        }
        Ok(())
    }
}

/// Whether an entry is about the archive or its files, and no value: hidden names, and those such as `__meta__`.
fn is_skipped(name: &str) -> bool {
    let is_meta = |part: &str| part == "__MACOSX" || part.len() > 4 && part.starts_with("__") && part.ends_with("__");
    name.split('/').any(|part| part.starts_with('.') && part != "." || is_meta(part))
}

/// The key of a name, and its extension in lower case.
fn split(name: &str) -> Option<(String, String)> {
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].find('.')?;
    let extension = &name[dot + 1..];
    (dot > base && !extension.is_empty()).then(|| (name[..dot].to_owned(), extension.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_a_key_and_an_extension() {
        for (name, expected) in [
            ("a.jpg", Some(("a", "jpg"))),
            ("x.y/a.seg.PNG", Some(("x.y/a", "seg.png"))),
            ("./a.txt", Some(("./a", "txt"))),
            ("a", None),
            ("x.y/a", None),
            ("a.", None),
        ] {
            let expected = expected.map(|(key, extension)| (key.to_owned(), extension.to_owned()));
            assert_eq!(split(name), expected, "{name}");
        }
    }

    #[test]
    fn hidden_names_are_skipped() {
        for name in [".DS_Store", "a/._b.jpg", "__MACOSX/a.jpg", "x/__meta__/a.json", "./.git/a.b"] {
            assert!(is_skipped(name), "{name}");
        }
        for name in ["a.jpg", "./a.jpg", "__a.jpg", "a.__b__x", "____/a.jpg"] {
            assert!(!is_skipped(name), "{name}");
        }
    }
}

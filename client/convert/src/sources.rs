//! Paths → files of one format, in the order of their rows: paths as given, the files of a folder sorted by path.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use crate::{error::ConvertError, format::Format, options::Options};

/// Files of one conversion, at most.
const FILES_MAX: usize = 1_000_000;

/// Depth of folders.
const DEPTH_MAX: usize = 32;

/// A file to convert.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// Its path.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// The files of a conversion.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Their format.
    pub format: Format,
    /// The files, at least one.
    pub files: Vec<SourceFile>,
}

/// Finds the files and their format.
pub(crate) fn find(options: &Options) -> Result<Sources, ConvertError> {
    let mut found: Vec<(SourceFile, Format)> = Vec::new();
    for path in &options.sources {
        let metadata = fs::metadata(path).map_err(|source| failed(path, source))?;
        if metadata.is_dir() {
            let before = found.len();
            walk(path, options, 0, &mut found)?;
            if found.len() == before {
                return Err(ConvertError::File { path: path.clone(), reason: nothing_there(options.format) });
            }
        } else {
            let format = match options.format {
                Some(format) => format,
                None => format_of(path)?,
            };
            found.push((SourceFile { path: path.clone(), bytes: metadata.len() }, format));
        }
        if found.len() > FILES_MAX {
            return Err(ConvertError::Usage(format!("more than {FILES_MAX} files: convert them in parts")));
        }
    }
    let Some((first, format)) = found.first().map(|(file, format)| (file.path.clone(), *format)) else {
        return Err(ConvertError::Usage("name at least one file or folder".to_owned()));
    };
    if let Some((other, another)) = found.iter().find(|(_, another)| *another != format) {
        return Err(ConvertError::Usage(format!(
            "\"{}\" is {} and \"{}\" is {}: convert each format separately, or select one with --from",
            first.display(),
            format.name(),
            other.path.display(),
            another.name()
        )));
    }
    Ok(Sources { format, files: found.into_iter().map(|(file, _)| file).collect() })
}

fn walk(
    folder: &Path,
    options: &Options,
    depth: usize,
    found: &mut Vec<(SourceFile, Format)>,
) -> Result<(), ConvertError> {
    if depth > DEPTH_MAX {
        let reason = format!("folders are nested deeper than {DEPTH_MAX}");
        return Err(ConvertError::File { path: folder.to_owned(), reason });
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(|source| failed(folder, source))? {
        names.push(entry.map_err(|source| failed(folder, source))?.file_name());
    }
    // A dataset sorts whole paths: the folder "a" is after the file "a.csv".
    let key = |name: &std::ffi::OsString| {
        let mut key = name.as_encoded_bytes().to_vec();
        if folder.join(name).is_dir() {
            key.push(b'/');
        }
        key
    };
    names.sort_by_cached_key(key);
    for name in names {
        // Markers and incomplete files, which datasets skip too; a folder such as _key=1 is a partition there.
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b".") || bytes.starts_with(b"_") && !bytes.contains(&b'=') {
            continue;
        }
        let path = folder.join(&name);
        let metadata = fs::metadata(&path).map_err(|source| failed(&path, source))?;
        if metadata.is_dir() {
            let before = found.len();
            walk(&path, options, depth + 1, found)?;
            if found.len() > before && name.to_string_lossy().contains('=') {
                let reason = "the names of folders such as key=value are a column that the result would lose: convert \
                              each folder to a folder of the same name";
                return Err(ConvertError::File { path, reason: reason.to_owned() });
            }
        } else if let Some(format) = in_folder(&path, options)? {
            found.push((SourceFile { path, bytes: metadata.len() }, format));
        }
    }
    Ok(())
}

/// The format of a file of a folder; `None` if it should not be converted. Hive and Spark also write Parquet under
/// names without an extension.
fn in_folder(path: &Path, options: &Options) -> Result<Option<Format>, ConvertError> {
    let named = Format::of_name(path);
    let found = match named {
        Some(_) if options.format.is_some() => named,
        Some(_) => by_magic(path)?.or(named),
        None if path.extension().is_none() => by_magic(path)?,
        None => None,
    };
    Ok(found.filter(|found| options.format.is_none_or(|wanted| wanted == *found)))
}

fn format_of(path: &Path) -> Result<Format, ConvertError> {
    by_magic(path)?.or_else(|| Format::of_name(path)).ok_or_else(|| {
        ConvertError::Usage(format!(
            "\"{}\": its name and its first bytes do not say its format: pass --from csv, jsonl, arrow or parquet",
            path.display()
        ))
    })
}

fn by_magic(path: &Path) -> Result<Option<Format>, ConvertError> {
    let mut first = Vec::new();
    let file = File::open(path).map_err(|source| failed(path, source))?;
    file.take(8).read_to_end(&mut first).map_err(|source| failed(path, source))?;
    Ok(Format::of_magic(&first))
}

fn nothing_there(format: Option<Format>) -> String {
    match format {
        Some(format) => format!("it has no files of the format {}", format.name()),
        None => "it has no files that end in .csv, .tsv, .jsonl, .ndjson, .json (also with .gz or .zst), .arrow, \
                 .arrows, .feather, .ipc or .parquet"
            .to_owned(),
    }
}

fn failed(path: &Path, source: std::io::Error) -> ConvertError {
    ConvertError::Read { path: path.to_owned(), source }
}

//! Paths → files of one format, in the order of their rows: paths as given, the files of a folder sorted by path. A
//! folder of MDS shards is one file.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use crate::{
    error::ConvertError,
    format::{Format, before_part},
    image_folder::walk::{ImageWalk, tables_of},
    mds::index::MdsIndex,
    options::Options,
};

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
        add(path, options, &mut found)?;
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

/// Adds a file, or the files of a folder.
fn add(path: &Path, options: &Options, found: &mut Vec<(SourceFile, Format)>) -> Result<(), ConvertError> {
    let metadata = fs::metadata(path).map_err(|source| failed(path, source))?;
    if metadata.is_dir() {
        return add_folder(path, options, found);
    }
    let format = match options.format {
        Some(format @ (Format::Mds | Format::Images)) => {
            let reason = format!("{} are folders: name the folder that has this file", format.name());
            return Err(ConvertError::File { path: path.to_owned(), reason });
        }
        Some(format) => format,
        None => format_of(path)?,
    };
    found.push((SourceFile { path: path.to_owned(), bytes: metadata.len() }, format));
    Ok(())
}

fn add_folder(path: &Path, options: &Options, found: &mut Vec<(SourceFile, Format)>) -> Result<(), ConvertError> {
    let before = found.len();
    if options.format != Some(Format::Images) {
        walk(path, options, 0, found)?;
    }
    // Images are a source if a folder has no other, and a table of them is not one itself.
    let is_table = matches!(&found[before..], [(file, _)] if tables_of(path).contains(&file.path));
    if is_table && options.format.is_none() && ImageWalk::new(path)?.next().is_some() {
        found.truncate(before);
    }
    if found.len() > before {
        return Ok(());
    }
    if options.format.is_none_or(|wanted| wanted == Format::Images) {
        let mut bytes = None;
        for image in ImageWalk::new(path)? {
            *bytes.get_or_insert(0) += image?.bytes;
        }
        if let Some(bytes) = bytes {
            found.push((SourceFile { path: path.to_owned(), bytes }, Format::Images));
            return Ok(());
        }
    }
    Err(ConvertError::File { path: path.to_owned(), reason: nothing_there(options.format) })
}

/// A folder of shards as one source.
fn shards_of(folder: &Path) -> Result<SourceFile, ConvertError> {
    let index = MdsIndex::load(folder).map_err(|reason| ConvertError::File { path: folder.to_owned(), reason })?;
    Ok(SourceFile { path: folder.to_owned(), bytes: index.stored_bytes(folder) })
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
    if options.format.is_none_or(|wanted| wanted == Format::Mds) && MdsIndex::is_in(folder) {
        found.push((shards_of(folder)?, Format::Mds));
        return Ok(());
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
        None if is_part(path) && options.format == Some(Format::TfRecord) => options.format,
        None if path.extension().is_none() => by_magic(path)?,
        None => None,
    };
    Ok(found.filter(|found| options.format.is_none_or(|wanted| wanted == *found)))
}

/// Whether a name ends in the number of a part, such as `train-00001-of-00010`.
fn is_part(path: &Path) -> bool {
    path.file_name().map(|name| name.to_string_lossy()).is_some_and(|name| before_part(&name) != name)
}

fn format_of(path: &Path) -> Result<Format, ConvertError> {
    by_magic(path)?.or_else(|| Format::of_name(path)).ok_or_else(|| {
        ConvertError::Usage(format!(
            "\"{}\": its name and its first bytes do not say its format: pass --from {}",
            path.display(),
            Format::names()
        ))
    })
}

fn by_magic(path: &Path) -> Result<Option<Format>, ConvertError> {
    // An archive begins with the name of an entry, which may be like the mark of a format.
    if Format::of_name(path) == Some(Format::WebDataset) {
        return Ok(None);
    }
    let found = Format::of_magic(&first_bytes(path, 8)?);
    // Text may begin as ORC does.
    Ok(found.filter(|found| *found != Format::Orc || Format::of_name(path).is_none_or(|named| named == Format::Orc)))
}

/// The first bytes of a file, fewer if it is shorter.
pub(crate) fn first_bytes(path: &Path, count: u64) -> Result<Vec<u8>, ConvertError> {
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| file.take(count).read_to_end(&mut first));
    read.map(|_| first).map_err(|source| ConvertError::Read { path: path.to_owned(), source })
}

fn nothing_there(format: Option<Format>) -> String {
    match format {
        Some(Format::Mds) => "it has no index.json of MDS shards".to_owned(),
        Some(Format::Images) => "it has no images: their names end in .jpg, .png or .webp, for example".to_owned(),
        Some(format) => format!("it has no files of the format {}", format.name()),
        None => "it has no images, no index.json of MDS shards, and no files that end in .csv, .tsv, .jsonl, .ndjson, \
                 .json, .tar, .tfrecord (also with .gz or .zst), .arrow, .arrows, .feather, .ipc or .parquet"
            .to_owned(),
    }
}

fn failed(path: &Path, source: std::io::Error) -> ConvertError {
    ConvertError::Read { path: path.to_owned(), source }
}

//! The images of a folder and the folders below it, sorted by path: one folder at a time is in memory.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    vec::IntoIter,
};

use crate::error::ConvertError;

/// Names of tables, with a row for each image.
const TABLES: [&str; 2] = ["metadata.csv", "metadata.jsonl"];

/// Depth of folders.
const DEPTH_MAX: usize = 32;

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageFile {
    /// Its path.
    pub path: PathBuf,
    /// Its path below the folder, with slashes.
    pub relative: String,
    /// Its size.
    pub bytes: u64,
    /// The text next to it.
    pub caption: Option<PathBuf>,
}

/// Images that were not visited.
pub(crate) struct ImageWalk {
    /// The entries of each open folder that were not visited.
    folders: Vec<IntoIter<ImageEntry>>,
}

/// An image or a folder.
enum ImageEntry {
    Image(ImageFile),
    Folder(PathBuf, String),
}

// === impl ImageFile ===

impl ImageFile {
    /// The name of its folder, if that is not the folder of the dataset.
    pub(crate) fn label(&self) -> Option<&str> {
        let (folder, _) = self.relative.rsplit_once('/')?;
        Some(folder.rsplit('/').next().unwrap_or(folder))
    }
}

// === impl ImageWalk ===

impl ImageWalk {
    /// Begins with the first image of a folder.
    pub(crate) fn new(folder: &Path) -> Result<Self, ConvertError> {
        Ok(Self { folders: vec![entries(folder, "")?] })
    }
}

impl Iterator for ImageWalk {
    type Item = Result<ImageFile, ConvertError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(folder) = self.folders.last_mut() {
            match folder.next() {
                None => {
                    self.folders.pop();
                }
                Some(ImageEntry::Image(image)) => return Some(Ok(image)),
                Some(ImageEntry::Folder(path, _)) if self.folders.len() > DEPTH_MAX => {
                    let reason = format!("folders are nested deeper than {DEPTH_MAX}");
                    self.folders.clear();
                    return Some(Err(ConvertError::File { path, reason }));
                }
                Some(ImageEntry::Folder(path, relative)) => match entries(&path, &relative) {
                    Ok(entries) => self.folders.push(entries),
                    Err(error) => {
                        self.folders.clear();
                        return Some(Err(error));
                    }
                },
            }
        }
        None
    }
}

/// The tables of a folder, which should have at most one.
pub(crate) fn tables_of(folder: &Path) -> Vec<PathBuf> {
    TABLES.iter().map(|name| folder.join(name)).filter(|path| path.is_file()).collect()
}

/// The images and folders of a folder, in the order of whole paths; `relative` ends in a slash unless it is empty.
fn entries(folder: &Path, relative: &str) -> Result<IntoIter<ImageEntry>, ConvertError> {
    let failed = |path: &Path, source: io::Error| ConvertError::Read { path: path.to_owned(), source };
    let mut names = HashSet::new();
    for entry in fs::read_dir(folder).map_err(|source| failed(folder, source))? {
        names.insert(entry.map_err(|source| failed(folder, source))?.file_name());
    }
    if let Some(table) = TABLES.iter().find(|table| !relative.is_empty() && names.contains(OsStr::new(table))) {
        let reason = "a table of images is read in the folder of the source: convert this folder separately".to_owned();
        return Err(ConvertError::File { path: folder.join(table), reason });
    }
    let mut found = Vec::new();
    for name in &names {
        if name.as_encoded_bytes().starts_with(b".") || name == "__MACOSX" {
            continue;
        }
        let path = folder.join(name);
        let metadata = fs::metadata(&path).map_err(|source| failed(&path, source))?;
        if !metadata.is_dir() && !is_image(&path) {
            continue;
        }
        let Some(text) = name.to_str() else {
            let reason = "its name is not UTF-8: rename it".to_owned();
            return Err(ConvertError::File { path, reason });
        };
        if metadata.is_dir() {
            let below = format!("{relative}{text}/");
            found.push((below.clone(), ImageEntry::Folder(path, below)));
            continue;
        }
        let relative = format!("{relative}{text}");
        let caption = Some(path.with_extension("txt"));
        let caption = caption.filter(|path| path.file_name().is_some_and(|name| names.contains(name)));
        let image = ImageFile { path, relative: relative.clone(), bytes: metadata.len(), caption };
        found.push((relative, ImageEntry::Image(image)));
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>().into_iter())
}

/// Whether a name is that of an image.
fn is_image(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    matches!(
        extension.to_ascii_lowercase().as_str(),
        "jpg" | "jpeg" | "png" | "webp" | "gif" | "bmp" | "tif" | "tiff" | "avif"
    )
}

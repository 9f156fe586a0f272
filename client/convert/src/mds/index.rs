//! `index.json` of a folder of MDS shards: their files, compression and columns.

use std::{
    fs::{self, File},
    io::Read,
    path::{Component, Path, PathBuf},
};

use serde::Deserialize;

/// The name of the file.
pub(crate) const INDEX: &str = "index.json";

/// Bytes of an index.
const INDEX_BYTES_MAX: u64 = 1 << 28;

/// The version of the format.
const VERSION: u64 = 2;

/// What a folder has.
#[derive(Debug, Deserialize)]
pub(crate) struct MdsIndex {
    version: u64,
    /// The shards, in the order of their rows.
    pub shards: Vec<MdsShard>,
}

/// A file of rows.
#[derive(Debug, Deserialize)]
pub(crate) struct MdsShard {
    format: String,
    /// The number of rows.
    pub samples: u64,
    /// The names of the columns.
    #[serde(default)]
    pub column_names: Vec<String>,
    /// How the values of each column are stored.
    #[serde(default)]
    pub column_encodings: Vec<String>,
    /// Bytes of each value; `None` if they vary.
    #[serde(default)]
    pub column_sizes: Vec<Option<u64>>,
    /// The codec of the compressed file, with its level.
    #[serde(default)]
    pub compression: Option<String>,
    /// The file without compression.
    pub raw_data: MdsFile,
    #[serde(default)]
    zip_data: Option<MdsFile>,
}

/// A file of a shard.
#[derive(Debug, Deserialize)]
pub(crate) struct MdsFile {
    /// Its path in the folder.
    basename: String,
    /// Its size.
    pub bytes: u64,
}

// === impl MdsIndex ===

impl MdsIndex {
    /// Whether a folder has an index of shards, of any version.
    pub(crate) fn is_in(folder: &Path) -> bool {
        #[derive(Deserialize)]
        struct Outline {
            #[serde(rename = "version")]
            _version: u64,
            #[serde(rename = "shards")]
            _shards: Vec<serde::de::IgnoredAny>,
        }
        read(folder).is_ok_and(|bytes| serde_json::from_slice::<Outline>(&bytes).is_ok())
    }

    /// Reads and checks the index of a folder; an error is the reason.
    pub(crate) fn load(folder: &Path) -> Result<Self, String> {
        let bytes = read(folder).map_err(|error| format!("its {INDEX} cannot be read: {error}"))?;
        let index: Self =
            serde_json::from_slice(&bytes).map_err(|error| format!("its {INDEX} is not one of MDS shards: {error}"))?;
        if index.version != VERSION {
            let found = index.version;
            return Err(format!("its {INDEX} has version {found}, and version {VERSION} is read: write it again"));
        }
        for shard in &index.shards {
            let name = &shard.raw_data.basename;
            if shard.format != "mds" {
                return Err(format!("its shard \"{name}\" has the format {}, not mds", shard.format.escape_debug()));
            }
            if [shard.column_encodings.len(), shard.column_sizes.len()] != [shard.column_names.len(); 2] {
                return Err(format!("its {INDEX} has columns without a name, encoding or size in \"{name}\""));
            }
            let files = [Some(&shard.raw_data), shard.zip_data.as_ref()].into_iter().flatten();
            for MdsFile { basename, .. } in files {
                let mut parts = Path::new(basename).components();
                if basename.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
                    return Err(format!("its {INDEX} names \"{basename}\", which is outside the folder"));
                }
            }
        }
        Ok(index)
    }

    /// Bytes of all files, as far as they exist.
    pub(crate) fn stored_bytes(&self, folder: &Path) -> u64 {
        let sizes = self.shards.iter().filter_map(|shard| fs::metadata(shard.path(folder)?.0).ok());
        sizes.map(|metadata| metadata.len()).sum()
    }
}

// === impl MdsShard ===

impl MdsShard {
    /// The file that exists, and whether it is the compressed one.
    pub(crate) fn path(&self, folder: &Path) -> Option<(PathBuf, bool)> {
        let raw = folder.join(&self.raw_data.basename);
        if raw.is_file() {
            return Some((raw, false));
        }
        let zipped = folder.join(&self.zip_data.as_ref()?.basename);
        zipped.is_file().then_some((zipped, true))
    }

    /// The name of the shard in messages.
    pub(crate) fn name(&self) -> &str {
        &self.raw_data.basename
    }
}

fn read(folder: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(folder.join(INDEX))?.take(INDEX_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

//! The data files of a version, with their deleted rows.

use std::{collections::HashMap, thread};

use delta_kernel::{KernelError, scan::state::ScanFile};
use percent_encoding::percent_decode_str;
use url::Url;

use super::engine::LogEngine;
use crate::{
    error::LakeError,
    table::{FilePath, TableFile},
};

/// Threads that read deletion vectors, each of which may be a request.
const THREADS: usize = 8;

/// The files of a version, whose partition values have these keys in the log. Reads all deletion vectors.
pub(super) fn table_files(
    engine: &LogEngine,
    root: &Url,
    version: &str,
    keys: &[String],
    files: Vec<ScanFile>,
) -> Result<Vec<TableFile>, LakeError> {
    let table_file = |file: ScanFile| table_file(engine, root, version, keys, file);
    let (plain, with_deletions): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| !file.dv_info.has_vector());
    let mut read = plain.into_iter().map(table_file).collect::<Result<Vec<_>, _>>()?;
    let mut shares: Vec<Vec<ScanFile>> = Vec::new();
    shares.resize_with(THREADS.min(with_deletions.len()), Vec::new);
    for (index, file) in with_deletions.into_iter().enumerate() {
        let share = index % shares.len();
        shares[share].push(file);
    }
    let of_share = |share: Vec<ScanFile>| share.into_iter().map(table_file).collect::<Result<Vec<_>, _>>();
    let of_shares: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = shares.into_iter().map(|share| scope.spawn(move || of_share(share))).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    for of_share in of_shares {
        let panicked = || LakeError::Corrupt("its deletion vectors cannot be read".to_owned());
        read.extend(of_share.map_err(|_| panicked())??);
    }
    Ok(read)
}

fn table_file(
    engine: &LogEngine,
    root: &Url,
    version: &str,
    keys: &[String],
    file: ScanFile,
) -> Result<TableFile, LakeError> {
    let path = file_path(&file.path)?;
    let bytes = u64::try_from(file.size)
        .map_err(|_| LakeError::Corrupt(format!("the log declares {} bytes for \"{}\"", file.size, file.path)))?;
    let deleted = file.dv_info.get_row_indexes(engine, root).map_err(|error| {
        let what = format!("the deletion vector of \"{}\" in version {version} of the table", file.path);
        match (engine.store().failure(), error) {
            (Some(failure), _) => failure,
            (None, KernelError::FileNotFound(_)) => {
                LakeError::Gone(format!("{what} does not exist, as after VACUUM: restore it, or read a newer version"))
            }
            (None, error) => LakeError::Corrupt(format!("{what} cannot be read: {error}")),
        }
    })?;
    let mut values: HashMap<String, String> = file.partition_values;
    let partition_values = keys.iter().map(|key| values.remove(key).filter(|value| !value.is_empty())).collect();
    let rows = file.stats.map(|stats| stats.num_records);
    Ok(TableFile { path, bytes, rows, partition_values, if_missing: Vec::new(), deleted: deleted.unwrap_or_default() })
}

/// The path of a data file, which is percent-encoded in the log.
fn file_path(path: &str) -> Result<FilePath, LakeError> {
    // Spark writes `file:/a/b`.
    if path.contains("://") || path.starts_with("file:/") {
        return Ok(FilePath::Absolute(path.to_owned()));
    }
    if path.starts_with('/') {
        return Ok(FilePath::Absolute(format!("file://{path}")));
    }
    let decoded = percent_decode_str(path).decode_utf8();
    let decoded = decoded.map_err(|_| LakeError::Corrupt(format!("the path \"{path}\" in the log is not UTF-8")))?;
    Ok(FilePath::Relative(decoded.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_once() {
        let relative = |path: &str| FilePath::Relative(path.to_owned());
        assert_eq!(file_path("p=a%2520b/x%20y.parquet").unwrap(), relative("p=a%20b/x y.parquet"));
        assert_eq!(file_path("/a/b").unwrap(), FilePath::Absolute("file:///a/b".to_owned()));
        assert!(matches!(file_path("s3://b/a%20").unwrap(), FilePath::Absolute(_)));
        assert_eq!(file_path("file:/a/b").unwrap(), FilePath::Absolute("file:/a/b".to_owned()));
        assert!(file_path("%ff").is_err());
    }
}

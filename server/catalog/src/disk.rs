//! Reads of pinned files on a local disk: many ranges in one job, into memory that is not cleared before.

use std::{
    fs::OpenOptions,
    io,
    ops::Range,
    os::unix::fs::OpenOptionsExt,
    path::{Path as FilePath, PathBuf},
};

use bytes::Bytes;
use object_store::ObjectMeta;
use rustix::{
    buffer::spare_capacity,
    fs::OFlags,
    io::{Errno, pread},
};

use super::{pinned::is_same, walk};

/// Bytes of one job. Jobs of a row group read in parallel.
const JOB_BYTES: u64 = 4 << 20;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiskError {
    /// It is not the pinned file any more.
    #[error("it was replaced or changed")]
    Changed,
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// Consecutive ranges in jobs of similar size.
pub(super) fn jobs(ranges: &[Range<u64>]) -> Vec<Vec<Range<u64>>> {
    let mut jobs: Vec<Vec<Range<u64>>> = Vec::new();
    let mut bytes = JOB_BYTES;
    for range in ranges {
        if bytes >= JOB_BYTES {
            jobs.push(Vec::new());
            bytes = 0;
        }
        bytes += range.end - range.start;
        if let Some(job) = jobs.last_mut() {
            job.push(range.clone());
        }
    }
    jobs
}

/// Reads the ranges of a file that is the pinned one before and after. Blocks.
pub(super) fn read(path: &FilePath, pinned: &ObjectMeta, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, DiskError> {
    // A FIFO in place of the file must not block; regular files ignore the flag.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    check(&walk::metadata_of(&file.metadata()?, pinned.location.clone())?, pinned)?;
    let read = ranges.iter().map(|range| range_of(&file, range)).collect::<Result<Vec<_>, _>>()?;
    check(&walk::metadata(path, pinned.location.clone())?, pinned)?;
    Ok(read)
}

/// Reads the ranges as [`read`] does, on a thread that may block.
pub(super) async fn read_job(
    path: PathBuf,
    pinned: ObjectMeta,
    ranges: Vec<Range<u64>>,
) -> Result<Vec<Bytes>, DiskError> {
    let read = tokio::task::spawn_blocking(move || read(&path, &pinned, &ranges)).await;
    read.unwrap_or_else(|ended| Err(io::Error::other(ended).into()))
}

fn check(now: &ObjectMeta, pinned: &ObjectMeta) -> Result<(), DiskError> {
    if is_same(pinned, now) { Ok(()) } else { Err(DiskError::Changed) }
}

fn range_of(file: &std::fs::File, range: &Range<u64>) -> Result<Bytes, DiskError> {
    let wanted = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(wanted);
    while bytes.len() < wanted {
        let at = range.start + bytes.len() as u64;
        match pread(file, spare_capacity(&mut bytes), at) {
            // Truncated after its metadata was read.
            Ok(0) => return Err(DiskError::Changed),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    // The allocator may have given more than was requested.
    bytes.truncate(wanted);
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use object_store::path::Path;

    use super::*;

    #[test]
    fn ranges_are_read_in_jobs() {
        const MB: u64 = 1 << 20;
        assert_eq!(jobs(&[]), Vec::<Vec<Range<u64>>>::new());
        let ranges = [0..3 * MB, 3 * MB..5 * MB, 6 * MB..30 * MB, 30 * MB..30 * MB + 1];
        assert_eq!(jobs(&ranges), [&ranges[..2], &ranges[2..3], &ranges[3..]].map(<[_]>::to_vec));
    }

    #[test]
    fn reads_the_pinned_file_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let bytes: Vec<u8> = (0..100_000_u32).map(|index| index as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let pinned = walk::metadata(&path, Path::from("a")).unwrap();
        let pieces = read(&path, &pinned, &[5..70_000, 0..0, 99_999..100_000]).unwrap();
        let expected: [&[u8]; 3] = [&bytes[5..70_000], &[], &bytes[99_999..]];
        assert_eq!(pieces, expected);
        let refused = |range: Range<u64>| read(&path, &pinned, std::slice::from_ref(&range)).unwrap_err();
        assert!(matches!(refused(99_999..100_001), DiskError::Changed));
        fs::write(&path, &bytes[1..]).unwrap();
        assert!(matches!(refused(0..1), DiskError::Changed));
        fs::remove_file(&path).unwrap();
        assert!(matches!(refused(0..1), DiskError::Failed(error) if error.kind() == io::ErrorKind::NotFound));
    }
}

//! Bytes of files of bounded size.

use std::{fs::File, io::Read, path::Path};

use crate::{error::ConvertError, input::RECORD_BYTES_MAX};

/// Reads a file that is one value.
pub(crate) fn contents(path: &Path) -> Result<Vec<u8>, ConvertError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(RECORD_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|source| ConvertError::Read { path: path.to_owned(), source })?;
    if bytes.len() as u64 > RECORD_BYTES_MAX {
        let reason = format!("a value has at most {} MiB: make the file smaller", RECORD_BYTES_MAX >> 20);
        return Err(ConvertError::File { path: path.to_owned(), reason });
    }
    Ok(bytes)
}

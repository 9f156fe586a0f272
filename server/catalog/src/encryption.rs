//! Recognizes Parquet files that are encrypted, as a whole or in some columns. They are not read.
//!
//! A file with an encrypted footer ends with other magic bytes. One with a readable footer names the algorithm there, in
//! a field that the Parquet library skips.

use forebay_pages::thrift::{CompactReader, InvalidThrift, STRUCT};

/// The last bytes of a file whose footer is encrypted.
const MAGIC: &[u8] = b"PARE";

/// The footer field with the algorithm.
const ALGORITHM: i64 = 8;

/// A readable footer is signed: a nonce and a tag follow it.
const SIGNATURE_BYTES: usize = 12 + 16;

/// What is said of such a file.
pub(super) const REASON: &str = "it is encrypted, and the server has no keys: write it without encryption";

/// Whether these last bytes are those of a file with an encrypted footer.
pub(super) fn is_encrypted(end: &[u8]) -> bool {
    end.ends_with(MAGIC)
}

/// Whether a readable footer is that of a file with encrypted columns. A damaged one is not.
pub(super) fn has_encrypted_columns(footer: &[u8]) -> bool {
    names_algorithm(footer).unwrap_or(false)
}

fn names_algorithm(footer: &[u8]) -> Result<bool, InvalidThrift> {
    let (mut bytes, mut last, mut found) = (CompactReader::new(footer), 0, false);
    while let Some((field, kind)) = bytes.field(&mut last)? {
        if (field, kind) == (ALGORITHM, STRUCT) {
            found = is_algorithm(&mut bytes)?;
        } else {
            bytes.skip(kind)?;
        }
    }
    Ok(found && bytes.rest().len() == SIGNATURE_BYTES)
}

/// Reads a union of algorithms; whether it is one of the two that there are.
fn is_algorithm(bytes: &mut CompactReader<'_>) -> Result<bool, InvalidThrift> {
    let (mut last, mut count, mut is_known) = (0, 0, true);
    while let Some((field, kind)) = bytes.field(&mut last)? {
        is_known &= kind == STRUCT && (1..=2).contains(&field);
        count += 1;
        bytes.skip(kind)?;
    }
    Ok(is_known && count == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_in_a_signed_footer_says_that_columns_are_encrypted() {
        let signed = |footer: &[u8]| [footer, &[7; SIGNATURE_BYTES]].concat();
        // Field 1: the version; field 8: a union of structs; then the end.
        let footer = [0x15, 0x02, 0x7c, 0x1c, 0x00, 0x00, 0x00];
        assert!(has_encrypted_columns(&signed(&footer)));
        assert!(!has_encrypted_columns(&footer));
        // No algorithm, a number, and an unknown algorithm.
        for damaged in [&[0x15, 0x02, 0x00][..], &[0x86, 0x02, 0x00], &[0x8c, 0x3c, 0x00, 0x00, 0x00], &[0xff; 3]] {
            assert!(!has_encrypted_columns(&signed(damaged)));
        }
        assert!(is_encrypted(b"\x00PARE") && !is_encrypted(b"\x00PAR1"));
    }
}

//! Deletion vectors of version 3: the deleted rows of one data file, a Roaring bitmap in a Puffin file.

use roaring::RoaringTreemap;

const MAGIC: [u8; 4] = [0xd1, 0xd3, 0x39, 0x64];
/// The length and the checksum, 4 bytes each.
const FRAME_BYTES: usize = 8;

/// The deleted rows in a blob: a length, the magic bytes, the bitmap, and a checksum of the last two.
pub(super) fn rows(blob: &[u8], rows_max: u64) -> Result<Vec<u64>, String> {
    let (length, rest) = blob.split_first_chunk::<4>().ok_or("it is too short")?;
    let (content, checksum) = rest.split_last_chunk::<4>().ok_or("it is too short")?;
    if u32::from_be_bytes(*length) as usize != blob.len() - FRAME_BYTES {
        return Err("its length is wrong".to_owned());
    }
    if u32::from_be_bytes(*checksum) != crc32fast::hash(content) {
        return Err("its checksum is wrong".to_owned());
    }
    let bitmap = content.strip_prefix(&MAGIC).ok_or("it does not start as a deletion vector")?;
    let bitmap = RoaringTreemap::deserialize_from(bitmap).map_err(|source| source.to_string())?;
    if let Some(last) = bitmap.max().filter(|last| *last >= rows_max) {
        return Err(format!("it deletes row {last} of a file of {rows_max} rows"));
    }
    Ok(bitmap.iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(rows: &[u64]) -> Vec<u8> {
        let mut content = MAGIC.to_vec();
        rows.iter().copied().collect::<RoaringTreemap>().serialize_into(&mut content).unwrap();
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [length.as_slice(), &content, &crc32fast::hash(&content).to_be_bytes()].concat()
    }

    #[test]
    fn rows_of_a_blob() {
        let deleted = [0, 7, 8, 1 << 33];
        assert_eq!(rows(&blob(&deleted), u64::MAX).unwrap(), deleted);
        assert!(rows(&blob(&[5]), 5).unwrap_err().contains("row 5 of a file of 5 rows"));
    }

    #[test]
    fn damage_is_found() {
        let whole = blob(&[1, 2, 3, 100_000]);
        for length in 0..whole.len() {
            assert!(rows(&whole[..length], u64::MAX).is_err(), "{length}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0x10;
            assert!(rows(&damaged, u64::MAX).is_err(), "{place}");
        }
    }
}

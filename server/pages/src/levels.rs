//! Definition levels of flat columns: one bit per row, set unless the row is null.

use arrow::{array::BooleanBufferBuilder, buffer::BooleanBuffer};

use crate::{
    error::PageError,
    runs::{Piece, Runs},
};

/// The levels of a page; `None` if no row is null.
pub(crate) fn read(bytes: &[u8], rows: usize) -> Result<Option<BooleanBuffer>, PageError> {
    let mut valid: Option<BooleanBufferBuilder> = None;
    let mut seen = 0;
    Runs::new(0, 1).each(bytes, rows, |piece| {
        let all_valid_so_far = || {
            let mut valid = BooleanBufferBuilder::new(rows);
            valid.append_n(seen, true);
            valid
        };
        match piece {
            Piece::Repeated { value, count } => {
                if value != 0 {
                    if let Some(valid) = &mut valid {
                        valid.append_n(count, true);
                    }
                } else {
                    valid.get_or_insert_with(all_valid_so_far).append_n(count, false);
                }
                seen += count;
            }
            Piece::Packed { from, count, .. } => {
                valid.get_or_insert_with(all_valid_so_far).append_packed_range(from..from + count, bytes);
                seen += count;
            }
        }
    })?;
    Ok(valid.map(|mut valid| valid.finish()).filter(BooleanBuffer::has_false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(bytes: &[u8], rows: usize) -> Option<Vec<bool>> {
        read(bytes, rows).unwrap().map(|valid| valid.iter().collect())
    }

    #[test]
    fn a_page_without_nulls_keeps_no_bits() {
        assert_eq!(levels(&[20, 1], 10), None);
        assert_eq!(levels(&[3, 0xff], 8), None);
        assert_eq!(levels(&[3, 0xff, 4, 0], 9), Some([vec![true; 8], vec![false]].concat()));
        assert_eq!(levels(&[4, 1, 3, 0b0000_0101], 5), Some(vec![true, true, true, false, true]));
        assert!(read(&[20, 1], 11).is_err());
    }
}

//! The orientation in EXIF metadata, which is a TIFF file without pixels.

/// The TIFF tag of the orientation.
const ORIENTATION: u16 = 0x0112;

/// The TIFF type of 16-bit integers.
const SHORT: u16 = 3;

/// Bytes of an entry of a TIFF directory.
const ENTRY_BYTES: usize = 12;

/// How the stored rows and columns are shown, numbered as in EXIF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orientation {
    /// 1: as stored.
    #[default]
    Upright,
    /// 2: mirrored left to right.
    Mirrored,
    /// 3: turned by 180 degrees.
    Turned,
    /// 4: mirrored top to bottom.
    Flipped,
    /// 5: rows and columns exchanged.
    Transposed,
    /// 6: must be turned by 90 degrees clockwise.
    Right,
    /// 7: rows and columns exchanged along the other diagonal.
    Transversed,
    /// 8: must be turned by 90 degrees counterclockwise.
    Left,
}

// === impl Orientation ===

impl Orientation {
    /// The orientation of EXIF's number; any other number is upright.
    fn of_number(number: u16) -> Self {
        match number {
            2 => Self::Mirrored,
            3 => Self::Turned,
            4 => Self::Flipped,
            5 => Self::Transposed,
            6 => Self::Right,
            7 => Self::Transversed,
            8 => Self::Left,
            _ => Self::Upright,
        }
    }

    /// Whether the width and the height are exchanged.
    pub fn exchanges_sides(self) -> bool {
        matches!(self, Self::Transposed | Self::Right | Self::Transversed | Self::Left)
    }
}

/// The orientation in EXIF metadata; upright where it is missing or damaged, as image viewers have it.
pub(super) fn orientation(exif: &[u8]) -> Orientation {
    let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    find(tiff).map(Orientation::of_number).unwrap_or_default()
}

fn find(tiff: &[u8]) -> Option<u16> {
    let is_little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let long = |at: usize| {
        let bytes = tiff.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    let directory = long(4)? as usize;
    let count = usize::from(short(directory)?);
    (0..count).map(|entry| directory.saturating_add(2 + entry * ENTRY_BYTES)).find_map(|at| {
        let is_orientation = short(at)? == ORIENTATION && short(at.saturating_add(2))? == SHORT;
        is_orientation.then(|| short(at.saturating_add(8))).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exif(is_little: bool, number: u16) -> Vec<u8> {
        let short = |value: u16| if is_little { value.to_le_bytes() } else { value.to_be_bytes() };
        let long = |value: u32| if is_little { value.to_le_bytes() } else { value.to_be_bytes() };
        let mut bytes = if is_little { b"Exif\0\0II*\0".to_vec() } else { b"Exif\0\0MM\0*".to_vec() };
        bytes.extend(long(8));
        bytes.extend(short(2));
        for (tag, value) in [(0x0100, 7), (ORIENTATION, number)] {
            bytes.extend([short(tag), short(SHORT)].concat());
            bytes.extend(long(1));
            bytes.extend([short(value), short(0)].concat());
        }
        bytes
    }

    #[test]
    fn reads_both_byte_orders() {
        for (number, expected) in [(1, Orientation::Upright), (6, Orientation::Right), (8, Orientation::Left)] {
            assert_eq!(orientation(&exif(true, number)), expected);
            assert_eq!(orientation(&exif(false, number)), expected);
        }
    }

    #[test]
    fn damaged_metadata_is_upright() {
        let whole = exif(true, 6);
        for end in 0..whole.len() - 4 {
            assert_eq!(orientation(&whole[..end]), Orientation::Upright, "{end}");
        }
        let mut far = whole;
        far[10..14].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(orientation(&far), Orientation::Upright);
        assert_eq!(orientation(&exif(true, 9)), Orientation::Upright);
    }
}

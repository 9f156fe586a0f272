//! Versions of the order's arithmetic.

/// A version of the arithmetic. Tickets and cursors contain its number, because each version maps positions to other
/// rows. Every version that was ever released keeps its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OrderVersion {
    /// Every window has the same number of rows.
    One,
    /// The first windows of a lane are small, and lanes begin their windows at different offsets.
    Two,
    /// Cuts between lanes move from epoch to epoch, ranks get other lanes, and adjacent lanes meet.
    Three,
}

impl OrderVersion {
    /// The version of new epochs.
    pub const LATEST: Self = Self::Three;

    /// Returns the version with a number; 0 is the latest one.
    pub fn of_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::LATEST),
            1 => Some(Self::One),
            2 => Some(Self::Two),
            3 => Some(Self::Three),
            _ => None,
        }
    }

    /// Returns its number.
    pub fn number(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
        }
    }
}

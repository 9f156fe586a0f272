//! The recommended size of row groups: what `forebay convert` writes and `explain` reports.
//!
//! A stream keeps the stored bytes of a row group in memory for every lane, and fetches them in one request: more than
//! [`ROW_GROUP_BYTES`] costs memory, and much less costs requests. Beyond [`ROW_GROUP_ROWS_MAX`] rows there are too few
//! row groups to shuffle, to divide among ranks and to skip by a filter.

/// Rows of a row group, at most.
pub const ROW_GROUP_ROWS_MAX: u64 = 131_072;

/// Stored (compressed) bytes of a row group.
pub const ROW_GROUP_BYTES: u64 = 16 << 20;

/// The recommended rows of a row group whose rows have this stored size on average, to a multiple of 1024 if there are
/// so many.
pub fn recommended_rows(stored_row_bytes: f64) -> u64 {
    let rows = (ROW_GROUP_BYTES as f64 / stored_row_bytes.max(f64::MIN_POSITIVE)) as u64;
    let rows = rows.clamp(1, ROW_GROUP_ROWS_MAX);
    if rows < 1024 { rows } else { rows / 1024 * 1024 }
}

/// Whether row groups of this many rows on average are so far from the recommended size that converting the files pays:
/// twice as large, or a quarter of it and more than a few.
pub fn is_far(mean_rows: f64, recommended_rows: u64, row_groups: u64) -> bool {
    /// Row groups that are read fast at any size.
    const FEW: u64 = 16;
    let recommended = recommended_rows as f64;
    mean_rows > 2.0 * recommended || mean_rows < recommended / 4.0 && row_groups > FEW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_the_stored_size() {
        for (row_bytes, rows) in [
            (0.0, ROW_GROUP_ROWS_MAX),
            (40.0, ROW_GROUP_ROWS_MAX),
            (128.0, ROW_GROUP_ROWS_MAX),
            (1000.0, 16_384),
            (100_000.0, 167),
            (1e9, 1),
            (f64::INFINITY, 1),
        ] {
            assert_eq!(recommended_rows(row_bytes), rows, "{row_bytes}");
        }
    }

    #[test]
    fn only_bad_shapes_are_far() {
        for (mean, recommended, count, expected) in [
            (1e6, 131_072, 4, true),
            (200_000.0, 131_072, 4, false),
            (1000.0, 131_072, 10, false),
            (1000.0, 131_072, 1000, true),
            (60_000.0, 131_072, 1000, false),
        ] {
            assert_eq!(is_far(mean, recommended, count), expected, "{mean} {count}");
        }
    }
}

//! How often a balanced epoch draws each row.
//!
//! A class of n rows of which m are drawn gives each row ⌊m / n⌋ draws and m mod n rows one more: in each run of rows, such as
//! those of a row group, its share to within one, at places that depend on the seed and the epoch. Any row's draws follow from
//! its place among the rows of its class and run alone.

use crate::{Permutation, permutation::split_mix};

/// The draws of one class in one epoch.
#[derive(Clone, Debug)]
pub struct ClassDraws {
    rows: u64,
    draws: u64,
    key: u64,
    /// Shifts the shares of runs, so that other runs have the rounded ones in another epoch.
    offset: u64,
}

/// The draws of the rows of a class in a run.
#[derive(Clone, Debug)]
pub struct RunDraws {
    /// Draws of each row.
    each: u64,
    /// The number of rows with one more.
    extra: u64,
    rows: u64,
    order: Permutation,
}

/// Divides `total` draws among classes with these rows in proportion to weights, to within one. A class without rows has no
/// draws. `None` if no class with rows has a weight.
pub fn shares(total: u64, rows: &[u64], weights: &[f64]) -> Option<Vec<u64>> {
    // Relative to the largest, so that their sum is finite.
    let of_rows = |class: usize| if rows[class] > 0 { weights[class] } else { 0.0 };
    let largest = (0..rows.len()).map(of_rows).fold(0.0, f64::max);
    if largest <= 0.0 {
        return None;
    }
    let weight = |class: usize| of_rows(class) / largest;
    let sum: f64 = (0..rows.len()).map(weight).sum();
    // The ends of the shares are rounded, so that they add up to the total.
    let (mut before, mut end) = (0.0, 0);
    let last = (0..rows.len()).rev().find(|class| weight(*class) > 0.0)?;
    let share = |class| {
        before += weight(class);
        let start = end;
        end = if class >= last { total } else { ((before / sum * total as f64).round() as u64).clamp(start, total) };
        end - start
    };
    Some((0..rows.len()).map(share).collect())
}

// === impl ClassDraws ===

impl ClassDraws {
    /// The draws of the `class`-th class, of `rows` rows, at least one.
    pub fn new(rows: u64, draws: u64, (seed, epoch, class): (u64, u64, u64)) -> Self {
        let mut state = seed;
        for part in [epoch, class] {
            state = split_mix(&mut state) ^ part;
        }
        let key = split_mix(&mut state);
        Self { rows, draws, key, offset: split_mix(&mut state) % rows.max(1) }
    }

    /// The draws of the run of `rows` rows that follow the first `start` rows of the class.
    pub fn run(&self, start: u64, rows: u64) -> RunDraws {
        let mut state = self.key ^ start;
        let order = Permutation::new(rows, split_mix(&mut state));
        RunDraws { each: self.each(), extra: self.extra(start, rows), rows, order }
    }

    /// The draws of all rows of such a run.
    pub fn total(&self, start: u64, rows: u64) -> u64 {
        self.each() * rows + self.extra(start, rows)
    }

    fn each(&self) -> u64 {
        self.draws / self.rows.max(1)
    }

    /// The rows of a run with one draw more than the others.
    fn extra(&self, start: u64, rows: u64) -> u64 {
        let total = u128::from(self.rows.max(1));
        let until = |rows: u64| (u128::from(rows) * (u128::from(self.draws) % total) + u128::from(self.offset)) / total;
        // At most `rows`.
        (until(start + rows) - until(start)) as u64
    }
}

// === impl RunDraws ===

impl RunDraws {
    /// The draws of the i-th row.
    pub fn of(&self, index: u64) -> u64 {
        // All or none have one more where a permutation is not needed.
        let has_extra = match self.extra {
            0 => false,
            extra if extra == self.rows => true,
            extra => self.order.at(index) < extra,
        };
        self.each + u64::from(has_extra)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_are_within_one() {
        for (total, rows, weights) in [
            (100, vec![90, 10], vec![1.0, 1.0]),
            (101, vec![90, 10, 1], vec![1.0, 1.0, 1.0]),
            (7, vec![1, 0, 5, 1], vec![1.0, 9.0, 0.25, 0.0]),
            (1 << 40, vec![3, 1 << 39], vec![1e-9, 1.0]),
        ] {
            let found = shares(total, &rows, &weights).unwrap();
            let sum: f64 = rows.iter().zip(&weights).filter(|(rows, _)| **rows > 0).map(|(_, weight)| weight).sum();
            assert_eq!(found.iter().sum::<u64>(), total);
            for ((share, rows), weight) in found.iter().zip(&rows).zip(&weights) {
                let exact = if *rows == 0 { 0.0 } else { weight / sum * total as f64 };
                assert!((*share as f64 - exact).abs() <= 1.0, "{share} {exact}");
            }
        }
        assert_eq!(shares(5, &[0, 3], &[1.0, 0.0]), None);
        assert_eq!(shares(6, &[1, 2, 3], &[f64::MAX; 3]), Some(vec![2, 2, 2]));
        assert_eq!(shares(5, &[], &[]), None);
    }

    #[test]
    fn runs_have_all_draws_of_their_class() {
        for (rows, draws) in [(1, 0), (1, 1), (1, 1000), (97, 96), (97, 97), (97, 98), (97, 5), (1000, 12_345)] {
            for epoch in 0..20 {
                let class = ClassDraws::new(rows, draws, (7, epoch, 1));
                let (mut start, mut found, mut run_rows) = (0, 0, 1);
                while start < rows {
                    let count = run_rows.min(rows - start);
                    let run = class.run(start, count);
                    let of_rows: Vec<u64> = (0..count).map(|row| run.of(row)).collect();
                    let total = class.total(start, count);
                    assert_eq!(of_rows.iter().sum::<u64>(), total);
                    assert!(of_rows.iter().all(|of| (draws / rows..=draws.div_ceil(rows)).contains(of)));
                    let exact = (draws % rows) as f64 * count as f64 / rows as f64;
                    assert!((total as f64 - (draws / rows * count) as f64 - exact).abs() < 1.0);
                    (start, found, run_rows) = (start + count, found + total, run_rows * 2 + 1);
                }
                assert_eq!(found, draws);
            }
        }
    }

    #[test]
    fn epochs_draw_all_rows_evenly() {
        let (rows, draws, epochs) = (200, 50, 4000);
        let mut drawn = vec![0_u64; rows as usize];
        for epoch in 0..epochs {
            let class = ClassDraws::new(rows, draws, (3, epoch, 0));
            for start in [0, 120] {
                let count = if start == 0 { 120 } else { 80 };
                let run = class.run(start, count);
                (0..count).for_each(|row| drawn[(start + row) as usize] += run.of(row));
            }
        }
        let expected = epochs as f64 * draws as f64 / rows as f64;
        // Six deviations.
        let bound = 6.0 * (expected * 0.75).sqrt();
        assert!(drawn.iter().all(|count| (*count as f64 - expected).abs() < bound), "{drawn:?}");
        let of = |seed, epoch, class| {
            let run = ClassDraws::new(rows, draws, (seed, epoch, class)).run(0, rows);
            (0..rows).map(|row| run.of(row)).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 2, 3), of(1, 2, 3));
        assert!([of(2, 2, 3), of(1, 3, 3), of(1, 2, 4), of(2, 1, 3)].iter().all(|other| *other != of(1, 2, 3)));
    }
}

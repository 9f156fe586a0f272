//! How often an epoch draws each row in proportion to its weight: systematic sampling.
//!
//! The rows are put one after another on a line, each as long as its weight. Points at equal distances, as many as rows are drawn
//! and shifted by the seed and the epoch, draw the rows that they fall on: a row is drawn as often as its share of the weights says,
//! rounded down or up. The draws of a row follow from the weights before it and its own.

use crate::permutation::split_mix;

/// The draws of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct WeightedDraws {
    total: f64,
    draws: u64,
    /// The place of the first point between those of two draws, at least 0 and less than 1.
    offset: f64,
}

impl WeightedDraws {
    /// `draws` draws of rows whose weights add up to `total`, which is above 0.
    pub fn new(total: f64, draws: u64, (seed, epoch): (u64, u64)) -> Self {
        let mut state = seed;
        state = split_mix(&mut state) ^ epoch;
        let offset = (split_mix(&mut state) >> 11) as f64 / (1_u64 << 53) as f64;
        Self { total, draws, offset }
    }

    /// The draws of the rows whose weights add up to `weight`, from the first row on. Rises with the weight, so that the draws of a
    /// row are the difference of those with it and before it.
    pub fn before(&self, weight: f64) -> u64 {
        if weight >= self.total {
            return self.draws;
        }
        // At least 0 and at most the number of draws.
        let points = (weight / self.total * self.draws as f64 - self.offset).ceil();
        (points.max(0.0) as u64).min(self.draws)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn draws(weights: &[f64], count: u64, epoch: u64) -> Vec<u64> {
        let total = weights.iter().fold(0.0, |sum, weight| sum + weight);
        let drawn = WeightedDraws::new(total, count, (7, epoch));
        let mut sum = 0.0;
        let rows = weights.iter().map(|weight| {
            let before = drawn.before(sum);
            sum += weight;
            drawn.before(sum) - before
        });
        rows.collect()
    }

    #[test]
    fn rows_of_no_weight_are_not_drawn_and_epochs_draw_others() {
        let of_epoch = |epoch| draws(&[0.0, 1.0, 0.0, 2.0, 0.5, 0.0], 4, epoch);
        let epochs: Vec<Vec<u64>> = (0..64).map(of_epoch).collect();
        assert!(epochs.iter().all(|rows| [rows[0], rows[2], rows[5]] == [0; 3]));
        assert!(epochs.iter().any(|rows| *rows != epochs[0]));
        let last: u64 = epochs.iter().map(|rows| rows[4]).sum();
        assert!((30..=44).contains(&last), "{last} draws of a share of 4 / 7 in 64 epochs");
    }

    proptest! {
        #[test]
        fn draws_add_up_and_are_within_one_of_their_share(
            weights in prop::collection::vec(prop_oneof![Just(0.0), 1e-9..1e9], 1..200),
            count in 0_u64..5_000,
            epoch in 0_u64..9,
        ) {
            let total: f64 = weights.iter().sum();
            prop_assume!(total > 0.0);
            let found = draws(&weights, count, epoch);
            prop_assert_eq!(found.iter().sum::<u64>(), count);
            for (drawn, weight) in found.iter().zip(&weights) {
                let share = weight / total * count as f64;
                prop_assert!((*drawn as f64 - share).abs() < 1.0 + 1e-6, "{} {}", drawn, share);
            }
        }
    }
}

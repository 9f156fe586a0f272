//! The steps of an epoch in which every batch has rows of one bucket, and every rank those of the same bucket.
//!
//! Each bucket is an [`Epoch`] of its rows, with its batch size. Step k of the Tₖ steps of a bucket in which every rank
//! has a full batch is at ⌊(k · 2⁶⁴ + u) / Tₖ⌋ of 2⁶⁴; steps are in that order, and those of equal places in the order of their
//! buckets. So the first steps of an epoch have of each bucket its share, to within a few, and where a step is follows from
//! arithmetic. In file order, u is 2⁶⁴ − 1: a step follows the rows that it needs. Shuffled, u is drawn for the seed, the epoch, the
//! bucket and k, from the last s of 2⁶⁴ numbers, where s is the rows of the bucket's windows divided by those of a step, at most 1:
//! a step is at most a window before the rows that it needs, so that all buckets read about the same rows at a time. The steps
//! with the rows that are left, one a bucket at most, are the last ones, those with the most rows first: a rank without a batch in one
//! has none in any later one.

use std::{cmp::Reverse, ops::Range};

use super::{Epoch, Remainder, Share, permutation::split_mix};

/// 2⁶⁴.
const WHOLE: u128 = 1 << u64::BITS;

/// The steps of an epoch of buckets.
#[derive(Clone, Debug)]
pub struct Buckets {
    epochs: Vec<Epoch>,
    /// Steps of each bucket in which every rank has a full batch.
    full: Vec<u64>,
    /// The buckets with another step, in its order.
    partial: Vec<usize>,
    /// None: in file order.
    key: Option<u64>,
}

/// A step of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketStep {
    /// The index of the bucket.
    pub bucket: usize,
    /// Its steps before this one.
    pub index: u64,
}

impl Buckets {
    /// Creates the steps of buckets, which are [parts](Epoch::of_part) of an epoch: they have the same ranks, and treat the rows
    /// that are left alike.
    pub fn new(epochs: Vec<Epoch>) -> Self {
        let full: Vec<u64> = epochs.iter().map(|epoch| epoch.shortest() / epoch.batch_size).collect();
        let left = |bucket: usize| epochs[bucket].row_count - full[bucket] * epochs[bucket].step_rows();
        let mut partial: Vec<usize> =
            (0..epochs.len()).filter(|bucket| epochs[*bucket].step_count_max() > full[*bucket]).collect();
        partial.sort_by_key(|bucket| Reverse(left(*bucket)));
        let key = epochs.iter().find_map(Epoch::shuffle).map(|shuffle| {
            let mut state = shuffle.seed;
            state = split_mix(&mut state) ^ shuffle.epoch;
            split_mix(&mut state)
        });
        Self { epochs, full, partial, key }
    }

    /// Returns the epoch of each bucket.
    pub fn epochs(&self) -> &[Epoch] {
        &self.epochs
    }

    /// Returns the steps of all ranks together.
    pub fn step_count(&self) -> u64 {
        self.full_steps() + self.partial.len() as u64
    }

    /// Returns the first steps in which every rank has a batch: all others are the last ones.
    pub fn common_steps(&self) -> u64 {
        let is_common = |bucket: &&usize| {
            let epoch = &self.epochs[**bucket];
            epoch.remainder == Remainder::Pad || epoch.shortest() > self.full[**bucket] * epoch.batch_size
        };
        self.full_steps() + self.partial.iter().take_while(is_common).count() as u64
    }

    /// Returns the rows that all ranks send, including repeats.
    pub fn sent_row_count(&self) -> u64 {
        self.epochs.iter().map(Epoch::sent_row_count).fold(0, u64::saturating_add)
    }

    /// Returns the steps from one on, with their numbers.
    pub fn steps(&self, steps: Range<u64>) -> impl Iterator<Item = (u64, BucketStep)> {
        let mut before = self.before(steps.start);
        steps.map_while(move |step| {
            let bucket = if step < self.full_steps() {
                // Buckets without another step are at no place.
                let next = |bucket: &usize| (self.place(*bucket, before[*bucket]), *bucket);
                (0..self.epochs.len()).filter(|bucket| before[*bucket] < self.full[*bucket]).min_by_key(next)?
            } else {
                *self.partial.get(usize::try_from(step - self.full_steps()).ok()?)?
            };
            before[bucket] += 1;
            Some((step, BucketStep { bucket, index: before[bucket] - 1 }))
        })
    }

    /// Returns those of these steps in which a rank has a batch: the first ones.
    pub fn steps_of(&self, rank: u64, steps: Range<u64>) -> impl Iterator<Item = (u64, BucketStep)> {
        self.steps(steps).take_while(move |(_, step)| self.rank_rows(rank, *step) > 0)
    }

    /// Returns the steps of each bucket before a step.
    pub fn before(&self, step: u64) -> Vec<u64> {
        let count = self.full_steps();
        if step >= count {
            let mut before = self.full.clone();
            let partial = usize::try_from(step - count).unwrap_or(usize::MAX);
            self.partial.iter().take(partial).for_each(|bucket| before[*bucket] += 1);
            return before;
        }
        let before = |place: u128| (0..self.epochs.len()).map(move |bucket| self.count_before(bucket, place));
        // The last place with at most so many steps before it.
        let (mut low, mut high) = (0, WHOLE);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if before(middle).sum::<u64>() <= step { low = middle } else { high = middle }
        }
        let mut found: Vec<u64> = before(low).collect();
        let mut rest = step - found.iter().sum::<u64>();
        for (bucket, found) in found.iter_mut().enumerate() {
            let here = (self.count_before(bucket, low + 1) - *found).min(rest);
            (*found, rest) = (*found + here, rest - here);
        }
        found
    }

    /// Returns what a rank sends of a bucket in the steps from one on: before them, each bucket has had `before`, and after them
    /// `after`.
    pub fn share(&self, bucket: usize, rank: u64, (before, after): (&[u64], &[u64])) -> Share {
        let epoch = &self.epochs[bucket];
        let share = epoch.share_from(rank, before[bucket].saturating_mul(epoch.batch_size));
        share.first_steps(after[bucket] - before[bucket], epoch.batch_size)
    }

    /// Returns the rows that a rank sends in a step, including repeats; 0 if it has no batch.
    pub fn rank_rows(&self, rank: u64, step: BucketStep) -> u64 {
        let epoch = &self.epochs[step.bucket];
        let share = epoch.share(rank);
        share.end.saturating_sub(step.index.saturating_mul(epoch.batch_size)).min(epoch.batch_size)
    }

    fn full_steps(&self) -> u64 {
        self.full.iter().sum()
    }

    /// The place of a full step of a bucket.
    fn place(&self, bucket: usize, index: u64) -> u64 {
        let epoch = &self.epochs[bucket];
        let within = self.key.zip(epoch.shuffle()).map_or(u64::MAX, |(key, shuffle)| {
            let mut state = key ^ bucket as u64;
            state = split_mix(&mut state) ^ index;
            let (windows, step) = (shuffle.lanes * shuffle.window_rows, epoch.step_rows());
            let before = u128::from(split_mix(&mut state)) * u128::from(windows.min(step)) / u128::from(step);
            // At most the number that was drawn.
            u64::MAX - before as u64
        });
        // Below 2⁶⁴: the index is below the number of steps.
        (((u128::from(index) << u64::BITS) + u128::from(within)) / u128::from(self.full[bucket])) as u64
    }

    /// The full steps of a bucket at places before one.
    fn count_before(&self, bucket: usize, place: u128) -> u64 {
        let steps = self.full[bucket];
        // Steps before this one are before the place, and those after it are not.
        let index = ((place * u128::from(steps)) >> u64::BITS) as u64;
        if index >= steps {
            return steps;
        }
        index + u64::from(u128::from(self.place(bucket, index)) < place)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{OrderVersion, Shuffle};

    fn buckets(of: &[(u64, u64)], world_size: u64, remainder: Remainder, seed: Option<u64>) -> Buckets {
        let shuffle = seed.map(|seed| Shuffle {
            seed,
            epoch: 3,
            lanes: 2 * world_size,
            window_rows: 5,
            version: OrderVersion::LATEST,
        });
        let epoch = |(rows, batch_size): &(u64, u64)| {
            let passing = Arc::new(vec![rows / 3, 0, rows - rows / 3]);
            Epoch::new(passing, world_size, *batch_size, remainder, shuffle).of_part()
        };
        Buckets::new(of.iter().map(epoch).collect())
    }

    #[test]
    fn steps_alternate_in_proportion() {
        let found = buckets(&[(8000, 8), (800, 8), (80, 8)], 1, Remainder::Keep, Some(1));
        assert_eq!(found.step_count(), 1110);
        for step in (0..1110).step_by(37) {
            let before = found.before(step);
            for (count, steps) in before.iter().zip([1000.0, 100.0, 10.0]) {
                assert!((*count as f64 - step as f64 * steps / 1110.0).abs() < 5.0, "{step}: {before:?}");
            }
        }
        let of = |seed| buckets(&[(800, 8), (800, 8)], 1, Remainder::Keep, seed).steps(0..200).collect::<Vec<_>>();
        assert_ne!(of(Some(1)), of(Some(2)));
        assert!(of(None).chunks(2).all(|pair| pair[0].1.bucket != pair[1].1.bucket));
    }

    #[test]
    fn the_order_of_steps_is_unchanged() {
        for (seed, expected) in [(Some(1), "0101101011101010101203"), (None, "1010110101011010101203")] {
            let found = buckets(&[(70, 4), (44, 2), (9, 8), (5, 8)], 2, Remainder::Keep, seed);
            let steps: String = found.steps(0..found.step_count()).map(|(_, step)| step.bucket.to_string()).collect();
            assert_eq!(steps, expected);
        }
    }

    #[test]
    fn the_rows_that_are_left_are_the_last_steps() {
        let found = buckets(&[(17, 4), (8, 4), (3, 4), (0, 4), (23, 4)], 2, Remainder::Keep, Some(1));
        let last: Vec<_> = found.steps(0..found.step_count()).skip(5).collect();
        let step = |bucket, index| BucketStep { bucket, index };
        assert_eq!(last, [(5, step(4, 2)), (6, step(2, 0)), (7, step(0, 2))]);
        assert_eq!((found.step_count(), found.common_steps()), (8, 7));
        let rows = |rank| last.iter().map(|(_, step)| found.rank_rows(rank, *step)).collect::<Vec<_>>();
        assert_eq!((rows(0), rows(1)), (vec![4, 2, 1], vec![3, 1, 0]));
        for (remainder, steps) in [(Remainder::Drop, 5), (Remainder::Pad, 8)] {
            let found = buckets(&[(17, 4), (8, 4), (3, 4), (0, 4), (23, 4)], 2, remainder, Some(1));
            assert_eq!((found.step_count(), found.common_steps()), (steps, steps));
        }
        let none = buckets(&[(0, 4)], 2, Remainder::Pad, Some(1));
        assert_eq!((none.step_count(), none.steps(0..9).count()), (0, 0));
    }

    proptest! {
        #[test]
        fn every_row_is_in_one_step_from_any_step_on(
            of in prop::collection::vec((0_u64..400, 1_u64..9), 1..6),
            world_size in 1_u64..4,
            remainder in prop_oneof![Just(Remainder::Keep), Just(Remainder::Drop), Just(Remainder::Pad)],
            seed in prop::option::of(0_u64..9),
        ) {
            let found = buckets(&of, world_size, remainder, seed);
            let steps: Vec<_> = found.steps(0..found.step_count()).collect();
            prop_assert_eq!(steps.len() as u64, found.step_count());
            let mut before = vec![0; of.len()];
            let (mut sent, mut last_ranks) = (0, usize::MAX);
            for (number, step) in &steps {
                prop_assert_eq!(&found.before(*number), &before);
                prop_assert_eq!(found.steps(*number..number + 1).next(), Some((*number, *step)));
                prop_assert_eq!(step.index, before[step.bucket]);
                let ranks: Vec<u64> = (0..world_size).map(|rank| found.rank_rows(rank, *step)).collect();
                if *number < found.common_steps() {
                    prop_assert!(ranks.iter().all(|rows| *rows > 0));
                } else {
                    prop_assert!(ranks.contains(&0));
                }
                let with_rows = ranks.iter().take_while(|rows| **rows > 0).count();
                prop_assert!(ranks[with_rows..].iter().all(|rows| *rows == 0));
                last_ranks = last_ranks.min(with_rows);
                prop_assert_eq!(last_ranks, with_rows, "a rank skips a step");
                sent += ranks.iter().sum::<u64>();
                before[step.bucket] += 1;
            }
            let expected: Vec<u64> = found.epochs().iter().map(Epoch::step_count_max).collect();
            prop_assert_eq!(&before, &expected);
            prop_assert_eq!(sent, found.sent_row_count());
            if remainder == Remainder::Keep {
                prop_assert_eq!(sent, of.iter().map(|(rows, _)| rows).sum::<u64>());
            }
        }
    }
}

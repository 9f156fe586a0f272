//! Random numbers from a seed, the only source of randomness in a run.

use std::{
    ops::RangeInclusive,
    sync::{Mutex, PoisonError},
};

use rand::{Rng, SeedableRng, rngs::SmallRng};

/// Random numbers that depend only on the seed and the purpose.
#[derive(Debug)]
pub(crate) struct Chance(Mutex<SmallRng>);

impl Chance {
    /// The numbers of a seed for one purpose, independent of other purposes.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        let key = xxhash_rust::xxh3::xxh3_64_with_seed(purpose.as_bytes(), seed);
        Self(Mutex::new(SmallRng::seed_from_u64(key)))
    }

    /// A number in the range.
    pub(crate) fn within(&self, range: RangeInclusive<u64>) -> u64 {
        self.lock().random_range(range)
    }

    /// Whether an event of this probability occurs.
    pub(crate) fn happens(&self, probability: f64) -> bool {
        self.lock().random_bool(probability)
    }

    /// One of the choices.
    pub(crate) fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.lock().random_range(0..choices.len())]
    }

    /// A number in 0..1.
    pub(crate) fn fraction(&self) -> f64 {
        self.lock().random()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SmallRng> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The memory of aggregates: limited by the engine's own pool, and reserved from the server's budget.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use datafusion_common::DataFusionError;
use datafusion_execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use forebay_runtime::budget::{Budget, BudgetError, Reservation};

/// Part of the limit that is given to DataFusion's pool. A GROUP BY that spills sorts a copy of its groups, which
/// DataFusion does not account for: with a pool of the whole limit a fit of 50 million strings used 2.2 times as much.
pub(super) const POOL_SHARE: (usize, usize) = (2, 5);

/// Begins the errors of a budget that other work has exhausted.
const BUDGET_ERROR: &str = "the memory budget is exhausted: ";

/// DataFusion's fair pool, whose consumers also reserve from the server's budget.
#[derive(Debug)]
pub(super) struct BudgetPool {
    fair: FairSpillPool,
    held: Mutex<Held>,
}

/// The bytes of all consumers.
#[derive(Debug)]
struct Held {
    /// Bytes of consumers that spill.
    spillable: u64,
    /// Bytes of the others.
    fixed: u64,
    reservation: Reservation,
}

impl BudgetPool {
    /// A pool of `pool_bytes` as its consumers count them.
    pub(super) fn new(pool_bytes: usize, budget: &Budget) -> Self {
        let held = Held { spillable: 0, fixed: 0, reservation: budget.empty() };
        Self { fair: FairSpillPool::new(pool_bytes), held: Mutex::new(held) }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an error is of the budget rather than of the pool's own limit.
pub(super) fn is_of_budget(reason: &str) -> bool {
    reason.contains(BUDGET_ERROR)
}

/// The error of a budget that other work has exhausted.
pub(super) fn exhausted(error: &BudgetError) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!(
        "{BUDGET_ERROR}needs {} bytes, {} of {} are reserved by others: wait for streams and fits to end, or raise \
         --memory-limit-bytes",
        error.bytes(),
        error.reserved(),
        error.limit()
    ))
}

// === impl Held ===

impl Held {
    /// The bytes that the consumers of this one's kind hold.
    fn of(&mut self, reservation: &MemoryReservation) -> &mut u64 {
        if reservation.consumer().can_spill() { &mut self.spillable } else { &mut self.fixed }
    }

    /// The bytes to reserve from the budget: consumers that spill sort a copy that they do not count.
    fn budget_bytes(&self) -> u64 {
        let (pool, whole) = (POOL_SHARE.0 as u64, POOL_SHARE.1 as u64);
        self.fixed.saturating_add(self.spillable.saturating_mul(whole).div_ceil(pool))
    }
}

// === impl BudgetPool ===

impl fmt::Display for BudgetPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.fair, formatter)
    }
}

impl MemoryPool for BudgetPool {
    fn name(&self) -> &'static str {
        "budget"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.fair.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.fair.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.fair.grow(reservation, additional);
        let mut held = self.held();
        *held.of(reservation) += additional as u64;
        let bytes = held.budget_bytes();
        held.reservation.resize(bytes);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.fair.shrink(reservation, shrink);
        let mut held = self.held();
        *held.of(reservation) -= shrink as u64;
        let bytes = held.budget_bytes();
        held.reservation.resize(bytes);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<(), DataFusionError> {
        self.fair.try_grow(reservation, additional)?;
        let mut held = self.held();
        *held.of(reservation) += additional as u64;
        let bytes = held.budget_bytes();
        held.reservation.try_resize(bytes).map_err(|error| {
            *held.of(reservation) -= additional as u64;
            self.fair.shrink(reservation, additional);
            exhausted(&error)
        })
    }

    fn reserved(&self) -> usize {
        self.fair.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.fair.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn consumers_reserve_from_the_budget_and_release_it() {
        let budget = Budget::new(1000);
        let pool: Arc<dyn MemoryPool> = Arc::new(BudgetPool::new(400, &budget));
        let spilling = MemoryConsumer::new("spilling").with_can_spill(true).register(&pool);
        let fixed = MemoryConsumer::new("fixed").register(&pool);
        spilling.try_grow(101).unwrap();
        fixed.try_grow(50).unwrap();
        // 101 x 5/2, rounded up, and 50.
        assert!(budget.reserve(1000 - 303 + 1).is_err());
        let stream = budget.reserve(1000 - 303).unwrap();
        let error = fixed.try_grow(10).unwrap_err().to_string();
        assert!(is_of_budget(&error) && error.contains("313 bytes, 697 of 1000 are reserved"), "{error}");
        assert_eq!(pool.reserved(), 151);
        drop(stream);
        let error = fixed.try_grow(300).unwrap_err().to_string();
        assert!(!is_of_budget(&error), "{error}");
        for _ in 0..101 {
            spilling.shrink(1);
        }
        drop(fixed);
        assert!(budget.reserve(1000).is_ok());
    }
}

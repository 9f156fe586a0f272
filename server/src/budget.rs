//! The memory budget of streams, fits and descriptions: reserved before use, released when the reservation is dropped.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::metrics;

/// The server's memory budget in bytes.
#[derive(Clone, Debug)]
pub struct Budget {
    account: Arc<Account>,
}

/// Reserved bytes, released on drop.
#[derive(Debug)]
pub struct Reservation {
    account: Arc<Account>,
    bytes: u64,
}

/// A reservation that exceeds the budget.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "needs {bytes} bytes of memory, {reserved} of {limit} are reserved: request smaller batches or windows, \
     wait for other streams to end, or raise --memory-limit-bytes"
)]
pub struct BudgetError {
    bytes: u64,
    reserved: u64,
    limit: u64,
}

impl BudgetError {
    /// The bytes that were asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes that other reservations hold.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// The most bytes that may be reserved in total.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether it would fit if other reservations were released.
    pub fn may_pass(&self) -> bool {
        self.bytes <= self.limit
    }
}

#[derive(Debug)]
struct Account {
    limit: u64,
    reserved: AtomicU64,
    idle: Idle,
}

/// What releases the memory that no request uses.
#[derive(Default)]
struct Idle(Mutex<Vec<Box<dyn Fn() + Send + Sync>>>);

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Idle")
    }
}

impl Idle {
    fn release(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|release| release());
    }
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        metrics::memory_limit(limit);
        metrics::memory_reserved(0);
        Self { account: Arc::new(Account { limit, reserved: AtomicU64::new(0), idle: Idle::default() }) }
    }

    /// The most bytes that may be reserved in total.
    pub fn limit(&self) -> u64 {
        self.account.limit
    }

    /// Reserves bytes if they fit.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, BudgetError> {
        let mut reservation = self.empty();
        reservation.try_resize(bytes).map(|()| reservation)
    }

    /// Calls `release` when a reservation does not fit: it drops the reservations of memory that no request uses.
    pub fn on_shortage(&self, release: impl Fn() + Send + Sync + 'static) {
        self.account.idle.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(release));
    }

    /// A reservation without bytes, to be resized.
    pub fn empty(&self) -> Reservation {
        Reservation { account: Arc::clone(&self.account), bytes: 0 }
    }
}

// === impl Reservation ===

impl Reservation {
    /// The reserved bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the reserved bytes, if they fit. An error counts them all, as waiting releases none of them.
    pub fn try_resize(&mut self, bytes: u64) -> Result<(), BudgetError> {
        let Some(more) = bytes.checked_sub(self.bytes) else {
            self.resize(bytes);
            return Ok(());
        };
        let account = &self.account;
        let fits = |reserved: u64| reserved.checked_add(more).filter(|sum| *sum <= account.limit);
        let update = || account.reserved.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits);
        let updated = update().or_else(|_| {
            account.idle.release();
            update()
        });
        match updated {
            Ok(before) => {
                metrics::memory_reserved(before + more);
                self.bytes = bytes;
                Ok(())
            }
            // What it holds itself is not released by waiting.
            Err(reserved) => {
                let reserved = reserved.saturating_sub(self.bytes);
                Err(BudgetError { bytes, reserved, limit: account.limit })
            }
        }
    }

    /// Changes the reserved bytes, even beyond the limit: for memory that is already in use.
    pub fn resize(&mut self, bytes: u64) {
        let account = &self.account;
        let reserved = if bytes >= self.bytes {
            let more = bytes - self.bytes;
            account.reserved.fetch_add(more, Ordering::AcqRel) + more
        } else {
            let less = self.bytes - bytes;
            account.reserved.fetch_sub(less, Ordering::AcqRel) - less
        };
        metrics::memory_reserved(reserved);
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::Budget;

    #[test]
    fn idle_memory_gives_way() {
        let budget = Budget::new(10);
        let idle = Arc::new(Mutex::new(Some(budget.reserve(6).unwrap())));
        budget.on_shortage({
            let idle = Arc::clone(&idle);
            move || drop(idle.lock().unwrap().take())
        });
        let first = budget.reserve(4).unwrap();
        assert!(idle.lock().unwrap().is_some());
        let second = budget.reserve(5).unwrap();
        assert!(idle.lock().unwrap().is_none());
        assert_eq!(budget.reserve(2).unwrap_err().reserved(), 9);
        drop((first, second));
    }

    #[test]
    fn dropping_releases_bytes() {
        let budget = Budget::new(10);
        let first = budget.reserve(7).unwrap();
        assert!(budget.reserve(4).unwrap_err().to_string().contains("--memory-limit-bytes"));
        assert!(budget.reserve(u64::MAX).is_err());
        drop(first);
        assert!(budget.reserve(10).is_ok());
    }

    #[test]
    fn a_reservation_is_resized_within_the_limit_or_beyond_it() {
        let budget = Budget::new(10);
        let mut first = budget.empty();
        first.try_resize(6).unwrap();
        let error = first.try_resize(11).unwrap_err();
        assert_eq!((error.bytes(), error.reserved(), error.limit()), (11, 0, 10));
        assert!(!error.may_pass());
        let error = budget.reserve(5).unwrap_err();
        assert_eq!((error.bytes(), error.reserved(), error.may_pass()), (5, 6, true));
        first.try_resize(2).unwrap();
        let second = budget.reserve(8).unwrap();
        first.resize(20);
        assert!(budget.reserve(0).is_err());
        drop((first, second));
        assert!(budget.reserve(10).is_ok());
    }
}

//! The memory budget of streams, fits and descriptions: reserved before use, released when the reservation is dropped.
//!
//! Bytes are accounted to the tenant that reserves them. One tenant alone may have all of them, but releases what
//! `revocable` says when another one needs memory.

mod revocable;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time};

use crate::{metrics, tenant::Tenant};
use revocable::Lent;

pub use revocable::Revocable;

/// Time for which a reservation waits for memory that other tenants were requested to release: longer than they need to
/// stop computing.
const RECALL_TIME: Duration = Duration::from_secs(10);

/// The server's memory budget in bytes.
#[derive(Clone, Debug)]
pub struct Budget {
    account: Arc<Account>,
}

/// Reserved bytes, released on drop.
#[derive(Debug)]
pub struct Reservation {
    account: Arc<Account>,
    tenant: Tenant,
    bytes: u64,
}

/// A reservation that exceeds the budget.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "needs {bytes} bytes of memory, and {reserved} of {limit} are reserved: request smaller batches or windows, \
     wait for other streams to end, or raise --memory-limit-bytes"
)]
pub struct BudgetError {
    bytes: u64,
    reserved: u64,
    limit: u64,
}

impl BudgetError {
    /// The requested bytes.
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
    ledger: Mutex<Ledger>,
    idle: Idle,
    /// Wakes the claims when bytes are released.
    released: Notify,
}

/// The reservations, and the callers that wait.
#[derive(Debug, Default)]
struct Ledger {
    reserved: u64,
    by_tenant: HashMap<Tenant, u64>,
    lent: Lent,
    claims: Vec<ClaimedBytes>,
    /// The number of the next claim.
    next_claim: u64,
}

/// Bytes that a tenant waits for.
#[derive(Debug)]
struct ClaimedBytes {
    number: u64,
    tenant: Tenant,
    bytes: u64,
    /// The bytes that the tenant would have.
    total: u64,
}

/// A place among those that wait for memory, until it is dropped.
struct Claim<'a> {
    account: &'a Account,
    number: u64,
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
        let (ledger, idle, released) = (Mutex::default(), Idle::default(), Notify::new());
        Self { account: Arc::new(Account { limit, ledger, idle, released }) }
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

    /// Reserves bytes. If they do not fit, asks other tenants to release revocable memory, and waits for it.
    pub async fn reserve_fairly(&self, bytes: u64) -> Result<Reservation, BudgetError> {
        self.reserve_within(bytes, Duration::ZERO).await
    }

    /// The same, but waits at least for this time until other reservations are released.
    pub async fn reserve_within(&self, bytes: u64, patience: Duration) -> Result<Reservation, BudgetError> {
        let account = self.account.as_ref();
        let tenant = Tenant::current();
        let refused = match self.reserve_behind(&tenant, bytes) {
            Ok(reservation) => return Ok(reservation),
            Err(refused) => refused,
        };
        let (claim, patience) = {
            let mut ledger = account.lock();
            let total = ledger.of(&tenant).saturating_add(bytes);
            let short = ledger.reserved.saturating_add(bytes).saturating_sub(account.limit);
            let comes = refused.may_pass() && ledger.lent.recall(&ledger.by_tenant, &tenant, total, short);
            let patience = if comes { RECALL_TIME.max(patience) } else { patience };
            if !refused.may_pass() || patience.is_zero() {
                return Err(refused);
            }
            (account.claim(&mut ledger, ClaimedBytes { number: 0, tenant: tenant.clone(), bytes, total }), patience)
        };
        let wait = async {
            loop {
                let released = account.released.notified();
                if let Ok(reservation) = self.reserve_behind(&tenant, bytes) {
                    return reservation;
                }
                released.await;
            }
        };
        let waited = time::timeout(patience, wait).await;
        drop(claim);
        waited.map_err(|_| refused)
    }

    /// Reserves bytes, unless others wait for them whose tenants would have less.
    fn reserve_behind(&self, tenant: &Tenant, bytes: u64) -> Result<Reservation, BudgetError> {
        let account = &self.account;
        let refused = {
            let ledger = account.lock();
            let total = ledger.of(tenant).saturating_add(bytes);
            let before = |claim: &&ClaimedBytes| claim.tenant != *tenant && claim.total < total;
            let claimed: u64 = ledger.claims.iter().filter(before).map(|claim| claim.bytes).sum();
            let reserved = ledger.reserved.saturating_add(claimed);
            let is_free = claimed == 0 || reserved.saturating_add(bytes) <= account.limit;
            (!is_free).then_some(BudgetError { bytes, reserved, limit: account.limit })
        };
        refused.map_or_else(|| tenant.run(|| self.reserve(bytes)), Err)
    }

    /// Revocable memory of the current tenant, without bytes.
    pub fn revocable(&self) -> Arc<Revocable> {
        let revocable = Arc::new(Revocable::new());
        self.account.lock().lent.add(&revocable);
        revocable
    }

    /// Calls `release` when a reservation does not fit: it drops the reservations of memory that no request uses.
    pub fn on_shortage(&self, release: impl Fn() + Send + Sync + 'static) {
        self.account.idle.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(release));
    }

    /// A reservation of the current tenant without bytes, to be resized.
    pub fn empty(&self) -> Reservation {
        Reservation { account: Arc::clone(&self.account), tenant: Tenant::current(), bytes: 0 }
    }
}

// === impl Account ===

impl Account {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim(&self, ledger: &mut Ledger, claimed: ClaimedBytes) -> Claim<'_> {
        let number = ledger.next_claim;
        ledger.next_claim += 1;
        ledger.claims.push(ClaimedBytes { number, ..claimed });
        Claim { account: self, number }
    }

    /// Adds bytes of a tenant if they fit.
    fn try_add(&self, tenant: &Tenant, bytes: u64) -> Result<(), BudgetError> {
        let mut ledger = self.lock();
        let reserved = ledger.reserved;
        if reserved.checked_add(bytes).is_none_or(|sum| sum > self.limit) {
            return Err(BudgetError { bytes, reserved, limit: self.limit });
        }
        ledger.add(tenant, bytes);
        Ok(())
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.account.lock().claims.retain(|claim| claim.number != self.number);
        // Others may have waited for it.
        self.account.released.notify_waiters();
    }
}

// === impl Ledger ===

impl Ledger {
    fn of(&self, tenant: &Tenant) -> u64 {
        self.by_tenant.get(tenant).copied().unwrap_or(0)
    }

    fn add(&mut self, tenant: &Tenant, bytes: u64) {
        self.reserved += bytes;
        if let Some(own) = self.by_tenant.get_mut(tenant) {
            *own += bytes;
        } else if bytes > 0 {
            self.by_tenant.insert(tenant.clone(), bytes);
        }
        metrics::memory_reserved(self.reserved);
    }

    fn remove(&mut self, tenant: &Tenant, bytes: u64) {
        self.reserved -= bytes;
        if let Some(own) = self.by_tenant.get_mut(tenant) {
            *own -= bytes;
            if *own == 0 {
                self.by_tenant.remove(tenant);
            }
        }
        metrics::memory_reserved(self.reserved);
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
        let added = account.try_add(&self.tenant, more).or_else(|_| {
            account.idle.release();
            account.try_add(&self.tenant, more)
        });
        // What it holds itself is not released by waiting.
        let others = |refused: BudgetError| refused.reserved.saturating_sub(self.bytes);
        added.map_err(|refused| BudgetError { bytes, reserved: others(refused), limit: account.limit })?;
        self.bytes = bytes;
        Ok(())
    }

    /// Changes the reserved bytes, even beyond the limit: for memory that is already in use.
    pub fn resize(&mut self, bytes: u64) {
        let account = &self.account;
        if bytes >= self.bytes {
            account.lock().add(&self.tenant, bytes - self.bytes);
        } else {
            account.lock().remove(&self.tenant, self.bytes - bytes);
            account.released.notify_waiters();
        }
        self.bytes = bytes;
    }

    /// Adds the bytes of another reservation of the same tenant.
    pub fn merge(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.resize(0);
        }
    }
}

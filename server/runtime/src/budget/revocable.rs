//! Memory that its holder releases on request, and whose memory it is that others wait for.

use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::tenant::Tenant;

/// The time for which memory must be unused before it is given to a tenant that would have less, even if its holder then
/// has less than that tenant: longer than a training loop usually is between two batches.
const UNUSED_MIN: Duration = Duration::from_secs(1);

/// The value of [`Revocable::unused_since`] while the memory is used.
const USED: u64 = u64::MAX;

/// Reserved bytes that their holder releases when it is [recalled](Self::recalled).
#[derive(Debug)]
pub struct Revocable {
    tenant: Tenant,
    bytes: AtomicU64,
    /// Nanoseconds after `created`.
    unused_since: AtomicU64,
    created: Instant,
    is_recalled: AtomicBool,
    recall: Notify,
}

/// All revocable memory of a budget.
#[derive(Debug, Default)]
pub(super) struct Lent(Vec<Weak<Revocable>>);

// === impl Revocable ===

impl Revocable {
    /// Memory of the current tenant that is unused from now on; no bytes yet.
    pub(super) fn new() -> Self {
        Self {
            tenant: Tenant::current(),
            bytes: AtomicU64::new(0),
            unused_since: AtomicU64::new(0),
            created: Instant::now(),
            is_recalled: AtomicBool::new(false),
            recall: Notify::new(),
        }
    }

    /// Sets the bytes that can be released. An earlier recall is settled.
    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Release);
        self.is_recalled.store(false, Ordering::Release);
    }

    /// Sets whether the memory is in use: whether a reader waits for what is computed in it.
    pub fn set_used(&self, is_used: bool) {
        let since = if is_used { USED } else { self.created.elapsed().as_nanos() as u64 };
        self.unused_since.store(since, Ordering::Release);
    }

    /// The time for which it has been unused.
    pub fn unused_for(&self) -> Duration {
        match self.unused_since.load(Ordering::Acquire) {
            USED => Duration::ZERO,
            since => self.created.elapsed().saturating_sub(Duration::from_nanos(since)),
        }
    }

    /// Waits until the memory has been unused for this time; zero: indefinitely.
    pub async fn unused(&self, time: Duration) {
        if time.is_zero() {
            return std::future::pending().await;
        }
        loop {
            let left = time.saturating_sub(self.unused_for());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    /// Waits until another tenant needs the memory.
    pub async fn recalled(&self) {
        while !self.is_recalled.load(Ordering::Acquire) {
            self.recall.notified().await;
        }
    }

    fn recall(&self) {
        self.is_recalled.store(true, Ordering::Release);
        self.recall.notify_one();
    }
}

// === impl Lent ===

impl Lent {
    pub(super) fn add(&mut self, revocable: &Arc<Revocable>) {
        self.0.retain(|known| known.strong_count() > 0);
        self.0.push(Arc::downgrade(revocable));
    }

    /// Recalls memory so that `short` bytes more are free, for a tenant that would then have `total` bytes. Returns whether
    /// they will be.
    ///
    /// A tenant releases memory that it leaves unused if it has more than the other would, and any memory if it still
    /// has as much as the other afterwards. The tenant with the most gives first, and what was unused for longest.
    pub(super) fn recall(&self, reserved: &HashMap<Tenant, u64>, tenant: &Tenant, total: u64, short: u64) -> bool {
        let known: Vec<Arc<Revocable>> = self.0.iter().filter_map(Weak::upgrade).collect();
        let of_others = known.iter().filter(|revocable| revocable.tenant != *tenant);
        let (recalled, mut lent): (Vec<_>, Vec<_>) =
            of_others.partition(|revocable| revocable.is_recalled.load(Ordering::Acquire));
        let bytes = |revocable: &Arc<Revocable>| revocable.bytes.load(Ordering::Acquire);
        let coming: u64 = recalled.into_iter().map(bytes).sum();
        let mut short = short.saturating_sub(coming);
        let mut left = reserved.clone();
        let of = |left: &HashMap<Tenant, u64>, tenant: &Tenant| left.get(tenant).copied().unwrap_or(0);
        let mut chosen = Vec::new();
        lent.sort_by_cached_key(|revocable| Reverse((of(&left, &revocable.tenant), revocable.unused_for())));
        for revocable in lent {
            if short == 0 {
                break;
            }
            let bytes = bytes(revocable);
            let rest = of(&left, &revocable.tenant).saturating_sub(bytes);
            let is_unused = of(reserved, &revocable.tenant) > total && revocable.unused_for() >= UNUSED_MIN;
            let may = rest >= total || is_unused;
            if may && bytes > 0 {
                short = short.saturating_sub(bytes);
                left.insert(revocable.tenant.clone(), rest);
                chosen.push(revocable);
            }
        }
        if short == 0 {
            for revocable in chosen {
                revocable.recall();
            }
        }
        short == 0
    }
}

//! The blocks on disk, by plan, and which of them make room for others.

use std::collections::{BTreeMap, HashMap};

/// Plans without blocks that are remembered, so that their second streams are known as such.
const EMPTY_PLANS_MAX: usize = 64;

/// The blocks of a directory.
#[derive(Debug)]
pub(super) struct DiskIndex {
    capacity: u64,
    used: u64,
    /// The number of times that plans were opened.
    openings: u64,
    plans: HashMap<String, PlanOnDisk>,
}

/// A block of a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockOnDisk {
    pub rows: u64,
    /// A digest of the state of the row group's file.
    pub state: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// The place of a block: its row group and its number there.
pub(super) type BlockPlace = (usize, usize);

#[derive(Debug, Default)]
struct PlanOnDisk {
    blocks: BTreeMap<BlockPlace, BlockOnDisk>,
    bytes: u64,
    /// Streams that read its rows.
    readers: usize,
    /// Streams that opened it since the start of the server.
    opened: u64,
    /// Orders plans by their last use.
    last_used: u64,
}

impl DiskIndex {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, used: 0, openings: 0, plans: HashMap::new() }
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Adds a plan that an earlier server used, after those that it used before.
    pub(super) fn add_plan(&mut self, plan: &str) {
        self.openings += 1;
        self.plans.entry(plan.to_owned()).or_default().last_used = self.openings;
    }

    pub(super) fn open(&mut self, plan: &str) {
        self.openings += 1;
        let opened = self.plans.entry(plan.to_owned()).or_default();
        opened.readers += 1;
        opened.opened += 1;
        opened.last_used = self.openings;
    }

    pub(super) fn close(&mut self, plan: &str) {
        if let Some(closed) = self.plans.get_mut(plan) {
            closed.readers = closed.readers.saturating_sub(1);
        }
        self.forget_plans();
    }

    pub(super) fn block(&self, plan: &str, place: BlockPlace) -> Option<BlockOnDisk> {
        self.plans.get(plan)?.blocks.get(&place).copied()
    }

    /// Whether this many bytes of a plan fit, if necessary after evicting others.
    pub(super) fn has_room(&self, plan: &str, bytes: u64) -> bool {
        let evictable = if self.may_evict(plan) { self.idle(plan).iter().map(|(_, _, bytes)| bytes).sum() } else { 0 };
        bytes <= self.capacity.saturating_sub(self.used - evictable)
    }

    /// Removes blocks of idle plans, longest unused first, until this many bytes of a plan fit. Returns them; none if
    /// they cannot fit.
    pub(super) fn make_room(&mut self, plan: &str, bytes: u64) -> Option<Vec<(String, BlockPlace, BlockOnDisk)>> {
        if !self.has_room(plan, bytes) {
            return None;
        }
        let mut evicted = Vec::new();
        for (_, idle, _) in self.idle(plan) {
            while bytes > self.capacity.saturating_sub(self.used)
                && let Some((place, block)) = self.remove_last(&idle)
            {
                evicted.push((idle.clone(), place, block));
            }
        }
        Some(evicted)
    }

    /// Adds a block. Returns the one of another state of the file that it replaces.
    pub(super) fn insert(&mut self, plan: &str, place: BlockPlace, block: BlockOnDisk) -> Option<BlockOnDisk> {
        let added_to = self.plans.entry(plan.to_owned()).or_default();
        let replaced = added_to.blocks.insert(place, block);
        let freed = replaced.map_or(0, |replaced| replaced.bytes);
        added_to.bytes = added_to.bytes + block.bytes - freed;
        self.used = self.used + block.bytes - freed;
        replaced
    }

    pub(super) fn remove(&mut self, plan: &str, place: BlockPlace) -> Option<BlockOnDisk> {
        let removed_from = self.plans.get_mut(plan)?;
        let removed = removed_from.blocks.remove(&place)?;
        removed_from.bytes -= removed.bytes;
        self.used -= removed.bytes;
        Some(removed)
    }

    fn remove_last(&mut self, plan: &str) -> Option<(BlockPlace, BlockOnDisk)> {
        let place = *self.plans.get(plan)?.blocks.keys().next_back()?;
        self.remove(plan, place).map(|removed| (place, removed))
    }

    /// Forgets plans without blocks and readers, except those used last.
    fn forget_plans(&mut self) {
        let is_empty = |plan: &PlanOnDisk| plan.readers == 0 && plan.blocks.is_empty();
        let mut empty: Vec<u64> =
            self.plans.values().filter(|plan| is_empty(plan)).map(|plan| plan.last_used).collect();
        if empty.len() > EMPTY_PLANS_MAX {
            empty.sort_unstable();
            let oldest_kept = empty[empty.len() - EMPTY_PLANS_MAX];
            self.plans.retain(|_, plan| !is_empty(plan) || plan.last_used >= oldest_kept);
        }
    }

    /// Whether a second stream has opened a plan: rows that are read once evict nothing.
    fn may_evict(&self, plan: &str) -> bool {
        self.plans.get(plan).is_none_or(|plan| plan.opened > 1)
    }

    /// The plans that no stream reads, longest unused first.
    fn idle(&self, except: &str) -> Vec<(u64, String, u64)> {
        let is_idle = |(name, plan): &(&String, &PlanOnDisk)| *name != except && plan.readers == 0 && plan.bytes > 0;
        let idle = self.plans.iter().filter(is_idle);
        let mut idle: Vec<_> = idle.map(|(name, plan)| (plan.last_used, name.clone(), plan.bytes)).collect();
        idle.sort_unstable();
        idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockOnDisk = BlockOnDisk { rows: 5, state: 1, bytes: 10 };

    fn filled(index: &mut DiskIndex, plan: &str, blocks: usize) -> Vec<bool> {
        let add = |number| {
            let has_room = index.make_room(plan, BLOCK.bytes).is_some();
            if has_room {
                index.insert(plan, (0, number), BLOCK);
            }
            has_room
        };
        (0..blocks).map(add).collect()
    }

    #[test]
    fn idle_plans_give_way_to_rows_that_are_read_again() {
        let mut index = DiskIndex::new(30);
        index.open("a");
        assert_eq!(filled(&mut index, "a", 4), [true, true, true, false]);
        index.open("b");
        index.open("b");
        assert_eq!(filled(&mut index, "b", 1), [false]);
        index.close("a");
        index.open("c");
        assert_eq!(filled(&mut index, "c", 1), [false]);
        assert_eq!(filled(&mut index, "b", 2), [true, true]);
        assert_eq!((index.plans["a"].bytes, index.plans["b"].bytes, index.used()), (10, 20, 30));
        assert!(index.block("a", (0, 0)).is_some() && index.block("a", (0, 2)).is_none());
    }

    #[test]
    fn a_chunk_of_another_state_is_replaced() {
        let mut index = DiskIndex::new(30);
        assert_eq!(index.insert("a", (0, 0), BLOCK), None);
        let other = BlockOnDisk { state: 2, bytes: 12, ..BLOCK };
        assert_eq!(index.insert("a", (0, 0), other), Some(BLOCK));
        assert_eq!((index.used(), index.block("a", (0, 0))), (12, Some(other)));
        assert_eq!((index.remove("a", (0, 0)), index.remove("a", (0, 0)), index.used()), (Some(other), None, 0));
    }
}

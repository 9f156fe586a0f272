//! Lookup tables in the device's layout: boundaries, and vocabularies of numbers.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use super::layout::Blob;
use crate::ops::{hash, vocab_index::VocabIndex};

/// The tables so far, in the fixed part of a program. Chains that share a vocabulary share its table.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) blob: Blob,
    vocabularies: HashMap<usize, [u64; 5]>,
}

impl Tables {
    /// Adds a list of numbers, by their bits, and returns its offset.
    pub(super) fn numbers(&mut self, bits: impl Iterator<Item = u64>) -> u64 {
        self.blob.push_words(bits)
    }

    /// Adds a vocabulary's table. Returns the offsets of its keys and slots, the mask of the slots, and the factor and
    /// the shift that map a hash to its first slot. The layout is that of the CPU's index: slots hold entry numbers +
    /// 1, and 0 marks an empty slot; at most half of the slots are in use.
    pub(super) fn vocabulary(&mut self, index: &Arc<VocabIndex>) -> [u64; 5] {
        if let Some(known) = self.vocabularies.get(&Arc::as_ptr(index).addr()) {
            return *known;
        }
        let keys = index.number_keys();
        let bits = (2 * keys.len()).next_power_of_two().max(2).ilog2();
        let (mask, shift) = ((1_u64 << bits) - 1, u64::BITS - bits);
        // Random per process, which prevents vocabularies crafted to collide.
        let factor = RandomState::new().hash_one(keys.len()) | 1;
        let mut slots = vec![0_u32; 1 << bits];
        for (entry, key) in keys.iter().enumerate() {
            let mut slot = hash::word(*key, 0).wrapping_mul(factor) >> shift;
            while slots[slot as usize] != 0 {
                slot = (slot + 1) & mask;
            }
            slots[slot as usize] = entry as u32 + 1;
        }
        let slots: Vec<u8> = slots.into_iter().flat_map(u32::to_le_bytes).collect();
        let table =
            [self.blob.push_words(keys.iter().copied()), self.blob.push(&slots), mask, factor, u64::from(shift)];
        self.vocabularies.insert(Arc::as_ptr(index).addr(), table);
        table
    }
}

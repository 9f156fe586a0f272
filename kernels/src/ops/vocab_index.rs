//! The index of a vocabulary: value → position in the list, as an open-addressing hash table.
//!
//! The hash is the one that `vocab` needs for unseen values anyway: XXH3-64 with seed 0 of the bytes that `hash_bucket`
//! defines. Text is stored end to end in one buffer, so a value costs its bytes, 8 bytes for its end, and 12 to 24
//! bytes of table: slots have 8 bytes, and one third to two thirds of them are in use.

use std::hash::{BuildHasher, RandomState};

use super::hash;
use crate::vector::simd;

/// Values of one kind, each with its position.
#[derive(Debug)]
pub(crate) struct VocabIndex {
    keys: VocabKeys,
    table: HashTable,
}

#[derive(Debug)]
enum VocabKeys {
    /// i64, u64 and floats by their bits.
    Bits(Vec<u64>),
    Bytes {
        bytes: Vec<u8>,
        ends: Vec<usize>,
    },
}

/// Each slot holds an entry number + 1 and the upper half of the entry's hash; 0 is an empty slot. At most two thirds
/// of the slots are in use.
#[derive(Debug)]
struct HashTable {
    slots: Vec<u64>,
    /// Multiply-shift with a random odd factor per process: the slot of a hash affects no result, and the factor
    /// prevents vocabularies crafted to collide.
    factor: u64,
    shift: u32,
}

/// The bits of a slot that hold the entry.
const ENTRY: u64 = u32::MAX as u64;

/// A list that cannot be indexed.
#[derive(Debug, PartialEq)]
pub(crate) enum IndexProblem {
    /// The entry at this position repeats an earlier one.
    Duplicate(usize),
    /// The list exceeds [`MAX_VALUES`].
    TooLong,
}

/// The largest number of values in an index: entry numbers are u32, and 0 marks empty slots.
pub(crate) const MAX_VALUES: usize = u32::MAX as usize - 1;

impl VocabIndex {
    /// Indexes numbers by their bits.
    pub(crate) fn of_bits(bits: impl ExactSizeIterator<Item = u64>) -> Result<Self, IndexProblem> {
        let keys = VocabKeys::Bits(bits.collect());
        Self::build(keys)
    }

    /// Indexes text.
    pub(crate) fn of_strings(strings: &[String]) -> Result<Self, IndexProblem> {
        Self::of_texts(strings.iter().map(String::as_str))
    }

    /// Indexes text from any storage.
    pub(crate) fn of_texts<'a>(texts: impl ExactSizeIterator<Item = &'a str> + Clone) -> Result<Self, IndexProblem> {
        let mut bytes = Vec::with_capacity(texts.clone().map(str::len).sum());
        let mut ends = Vec::with_capacity(texts.len());
        for text in texts {
            bytes.extend_from_slice(text.as_bytes());
            ends.push(bytes.len());
        }
        Self::build(VocabKeys::Bytes { bytes, ends })
    }

    fn build(keys: VocabKeys) -> Result<Self, IndexProblem> {
        let len = keys.len();
        if len > MAX_VALUES {
            return Err(IndexProblem::TooLong);
        }
        let mut table = HashTable::new(len);
        for entry in 0..len {
            let hash = match &keys {
                VocabKeys::Bits(bits) => hash::word(bits[entry], 0),
                VocabKeys::Bytes { bytes, ends } => hash::bytes(word(bytes, ends, entry), 0),
            };
            if !table.insert(hash, entry, |other| keys.equal(entry, other)) {
                return Err(IndexProblem::Duplicate(entry));
            }
        }
        Ok(Self { keys, table })
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The bits of the numbers, in index order; empty for a list of text.
    #[cfg(feature = "cuda")]
    pub(crate) fn number_keys(&self) -> &[u64] {
        match &self.keys {
            VocabKeys::Bits(bits) => bits,
            VocabKeys::Bytes { .. } => &[],
        }
    }

    /// The position of a number, given its bits; its hash if it is absent.
    pub(crate) fn find_bits(&self, value: u64) -> Result<usize, u64> {
        let hash = hash::word(value, 0);
        match &self.keys {
            VocabKeys::Bits(bits) => self.table.find(hash, |entry| bits[entry] == value).ok_or(hash),
            VocabKeys::Bytes { .. } => Err(hash),
        }
    }

    /// The position of a text, given its bytes; their hash if it is absent.
    pub(crate) fn find_bytes(&self, value: &[u8]) -> Result<usize, u64> {
        self.find_hashed(value, hash::bytes(value, 0))
    }

    /// Prefetches what [`Self::find_hashed`] reads for a block of hashes: the slots of all, then the ends of the texts
    /// found there, then the texts. Each step waits for the memory of the one before, so the values of a block share the
    /// waits.
    pub(crate) fn prefetch(&self, hashes: &[i64]) {
        let VocabKeys::Bytes { bytes, ends } = &self.keys else { return };
        let entries = || hashes.iter().filter_map(|hash| self.table.first_entry(*hash as u64));
        for hash in hashes {
            simd::prefetch(self.table.first_slot(*hash as u64), size_of::<u64>());
        }
        for entry in entries() {
            simd::prefetch(ends.as_ptr().wrapping_add(entry), size_of::<usize>());
        }
        for entry in entries() {
            simd::prefetch(bytes.as_ptr().wrapping_add(start_of(ends, entry)), size_of::<u64>());
        }
    }

    /// Like [`Self::find_bytes`], given the hash.
    #[inline(always)]
    pub(crate) fn find_hashed(&self, value: &[u8], hash: u64) -> Result<usize, u64> {
        match &self.keys {
            VocabKeys::Bytes { bytes, ends } => {
                self.table.find(hash, |entry| is_same(word(bytes, ends, entry), value)).ok_or(hash)
            }
            VocabKeys::Bits(_) => Err(hash),
        }
    }
}

impl VocabKeys {
    fn len(&self) -> usize {
        match self {
            Self::Bits(bits) => bits.len(),
            Self::Bytes { ends, .. } => ends.len(),
        }
    }

    fn equal(&self, one: usize, other: usize) -> bool {
        match self {
            Self::Bits(bits) => bits[one] == bits[other],
            Self::Bytes { bytes, ends } => word(bytes, ends, one) == word(bytes, ends, other),
        }
    }
}

fn word<'a>(bytes: &'a [u8], ends: &[usize], entry: usize) -> &'a [u8] {
    &bytes[start_of(ends, entry)..ends[entry]]
}

#[inline(always)]
fn start_of(ends: &[usize], entry: usize) -> usize {
    entry.checked_sub(1).map_or(0, |before| ends[before])
}

/// Whether two values are equal; without a call to memcmp for 4 to 16 bytes.
#[inline(always)]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match a.len() {
        8..=16 => a.first_chunk::<8>() == b.first_chunk::<8>() && a.last_chunk::<8>() == b.last_chunk::<8>(),
        4..=7 => a.first_chunk::<4>() == b.first_chunk::<4>() && a.last_chunk::<4>() == b.last_chunk::<4>(),
        _ => a == b,
    }
}

impl HashTable {
    fn new(len: usize) -> Self {
        let bits = (len + len / 2 + 1).next_power_of_two().max(2).ilog2();
        let factor = RandomState::new().hash_one(len) | 1;
        Self { slots: vec![0; 1 << bits], factor, shift: u64::BITS - bits }
    }

    #[inline(always)]
    fn first(&self, hash: u64) -> usize {
        (hash.wrapping_mul(self.factor) >> self.shift) as usize
    }

    /// The address of the slot in which a search begins.
    #[inline(always)]
    fn first_slot(&self, hash: u64) -> *const u64 {
        self.slots.as_ptr().wrapping_add(self.first(hash))
    }

    /// The entry in that slot, if it may have the hash.
    #[inline(always)]
    fn first_entry(&self, hash: u64) -> Option<usize> {
        let found = self.slots[self.first(hash)];
        (found != 0 && (found ^ hash) & !ENTRY == 0).then(|| (found & ENTRY) as usize - 1)
    }

    #[inline(always)]
    fn find(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut slot = self.first(hash);
        // At least a third of the slots is empty, so the loop ends.
        loop {
            let found = self.slots[slot & mask];
            if found == 0 {
                return None;
            }
            if (found ^ hash) & !ENTRY == 0 {
                let entry = (found & ENTRY) as usize - 1;
                if is_it(entry) {
                    return Some(entry);
                }
            }
            slot += 1;
        }
    }

    /// Inserts an entry; returns false if an equal one exists.
    fn insert(&mut self, hash: u64, entry: usize, is_it: impl Fn(usize) -> bool) -> bool {
        if self.find(hash, is_it).is_some() {
            return false;
        }
        let mask = self.slots.len() - 1;
        let mut slot = self.first(hash) & mask;
        while self.slots[slot] != 0 {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = (hash & !ENTRY) | (entry as u64 + 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of an index without its text, in bytes.
    fn overhead(index: &VocabIndex) -> usize {
        let ends = match &index.keys {
            VocabKeys::Bytes { ends, .. } => ends.capacity() * size_of::<usize>(),
            VocabKeys::Bits(_) => 0,
        };
        ends + index.table.slots.capacity() * size_of::<u64>()
    }

    #[test]
    fn an_entry_costs_at_most_32_bytes_besides_its_text() {
        // Table sizes are powers of two: entries cost the most just after a doubling.
        for len in [1_000, 10_922, 10_923, 21_845, 21_846, 100_000] {
            let words: Vec<String> = (0..len).map(|word| format!("w{word}")).collect();
            let index = VocabIndex::of_strings(&words).unwrap();
            assert!(overhead(&index) <= 32 * len, "{len} words: {} bytes each", overhead(&index) / len);
            let taken = index.table.slots.iter().filter(|slot| **slot != 0).count();
            assert!(taken == len && taken * 3 <= index.table.slots.len() * 2);
        }
    }

    #[test]
    fn distinguishes_words_of_equal_length() {
        for len in 0..40 {
            let word = "x".repeat(len);
            let mut words = vec![word.clone()];
            words.extend((0..len).map(|place| format!("{}y{}", &word[..place], &word[place + 1..])));
            let index = VocabIndex::of_strings(&words).unwrap();
            for (place, word) in words.iter().enumerate() {
                assert_eq!(index.find_bytes(word.as_bytes()).ok(), Some(place));
            }
            assert!(index.find_bytes(format!("{word}z").as_bytes()).is_err());
        }
    }
}

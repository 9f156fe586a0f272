//! A vocabulary's index: value → place in the list, as an open-addressing table over the values' hashes.
//!
//! The hash is the one that `vocab` needs for values outside of the vocabulary anyway: XXH3-64 with seed 0 of the bytes that
//! `hash_bucket` takes. Text lies end to end in one buffer, so a word costs its bytes, 8 for its end, and 12 to 24 of table: slots
//! are 8 bytes, and a third to two thirds of them are taken.

use std::hash::{BuildHasher, RandomState};

use super::hash;

/// Values of one kind, each with its place.
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

/// Slots of entry numbers + 1 beside the upper half of their hashes; 0 is an empty slot. At most two thirds of them are taken.
#[derive(Debug)]
struct HashTable {
    slots: Vec<u64>,
    /// Multiply-shift with a random odd factor of this process: which slot a hash goes to changes no result, and nobody can
    /// write a vocabulary whose values all go to one.
    factor: u64,
    shift: u32,
}

/// The bits of a slot that hold the entry.
const ENTRY: u64 = u32::MAX as u64;

/// Why a list is no vocabulary.
#[derive(Debug, PartialEq)]
pub(crate) enum IndexProblem {
    /// The entry is there twice.
    Duplicate(usize),
    /// The list is longer than an index can be.
    TooLong,
}

/// Values that one index can hold: entry numbers are u32 and 0 is taken.
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

    /// The same of text that is stored elsewhere.
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

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The bits of its numbers, in index order; none of a list of text.
    #[cfg(feature = "cuda")]
    pub(crate) fn number_keys(&self) -> &[u64] {
        match &self.keys {
            VocabKeys::Bits(bits) => bits,
            VocabKeys::Bytes { .. } => &[],
        }
    }

    /// The place of a number's bits; its hash if it has none.
    pub(crate) fn find_bits(&self, value: u64) -> Result<usize, u64> {
        let hash = hash::word(value, 0);
        match &self.keys {
            VocabKeys::Bits(bits) => self.table.find(hash, |entry| bits[entry] == value).ok_or(hash),
            VocabKeys::Bytes { .. } => Err(hash),
        }
    }

    /// The place of a text's bytes; their hash if they have none.
    pub(crate) fn find_bytes(&self, value: &[u8]) -> Result<usize, u64> {
        self.find_hashed(value, hash::bytes(value, 0))
    }

    /// The same where the hash is known.
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
    let start = entry.checked_sub(1).map_or(0, |before| ends[before]);
    &bytes[start..ends[entry]]
}

/// Whether two values are the same; up to 16 bytes without a call.
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

    #[inline(always)]
    fn find(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut slot = self.first(hash);
        // A third of the slots are empty, so this ends.
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

    /// Whether the entry was new.
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

    /// Bytes of an index beside its words.
    fn overhead(index: &VocabIndex) -> usize {
        let ends = match &index.keys {
            VocabKeys::Bytes { ends, .. } => ends.capacity() * size_of::<usize>(),
            VocabKeys::Bits(_) => 0,
        };
        ends + index.table.slots.capacity() * size_of::<u64>()
    }

    #[test]
    fn an_entry_costs_at_most_32_bytes_beside_its_text() {
        // HashTable sizes double: just behind a doubling an entry costs most.
        for len in [1_000, 10_922, 10_923, 21_845, 21_846, 100_000] {
            let words: Vec<String> = (0..len).map(|word| format!("w{word}")).collect();
            let index = VocabIndex::of_strings(&words).unwrap();
            assert!(overhead(&index) <= 32 * len, "{len} words: {} bytes each", overhead(&index) / len);
            let taken = index.table.slots.iter().filter(|slot| **slot != 0).count();
            assert!(taken == len && taken * 3 <= index.table.slots.len() * 2);
        }
    }

    #[test]
    fn words_of_one_length_are_told_apart() {
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

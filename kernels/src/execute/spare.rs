//! Memory of earlier matrices, which is written again once nobody reads the earlier one: new memory would be cleared
//! twice, by the system and here.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow::buffer::{Buffer, MutableBuffer};
use bytes::Bytes;

/// The free memory of the builders that share a workspace. At any time, free memory and memory in use together are at
/// most what was once in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpareMemory(Arc<Mutex<Vec<MutableBuffer>>>);

/// Memory that is free again when its last reader drops it.
#[derive(Debug)]
struct LentMemory {
    memory: Option<MutableBuffer>,
    owner: Weak<Mutex<Vec<MutableBuffer>>>,
}

impl SpareMemory {
    /// Free memory with room for exactly this number of bytes. Its content is arbitrary.
    pub(crate) fn take(&self, capacity: usize) -> Option<MutableBuffer> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Batches of other sizes are rare: the last one of an epoch, and the windows at the ends of lanes.
        free.retain(|memory| memory.capacity() == capacity);
        free.pop()
    }

    /// The first `len` bytes of the memory for readers, the last of whom returns it.
    pub(crate) fn lend(&self, memory: MutableBuffer, len: usize) -> Buffer {
        let owner = Arc::downgrade(&self.0);
        Buffer::from(Bytes::from_owner(LentMemory { memory: Some(memory), owner })).slice_with_length(0, len)
    }
}

impl AsRef<[u8]> for LentMemory {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], MutableBuffer::as_slice)
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        if let (Some(owner), Some(memory)) = (self.owner.upgrade(), self.memory.take()) {
            owner.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_free_once_its_last_reader_drops_it() {
        let spare = SpareMemory::default();
        assert!(spare.take(64).is_none());
        let mut memory = MutableBuffer::with_capacity(64);
        memory.resize(64, 7);
        let lent = spare.lend(memory, 48);
        let reader = lent.slice(16);
        drop(lent);
        assert!(spare.take(64).is_none());
        assert_eq!(reader.as_slice(), [7; 32]);
        drop(reader);
        assert!(spare.take(64).is_some_and(|memory| memory.as_slice() == [7; 64]));
        assert!(spare.take(64).is_none());
    }

    #[test]
    fn memory_of_another_size_is_released() {
        let spare = SpareMemory::default();
        drop(spare.lend(MutableBuffer::with_capacity(64), 0));
        assert!(spare.take(128).is_none() && spare.take(64).is_none());
    }

    #[test]
    fn readers_outlive_the_workspace() {
        let spare = SpareMemory::default();
        let mut memory = MutableBuffer::with_capacity(64);
        memory.resize(64, 3);
        let lent = spare.lend(memory, 64);
        drop(spare);
        assert_eq!(lent.as_slice(), [3; 64]);
    }
}

//! Memory of received bodies: aligned, filled once, and used again after its last view is dropped.

use std::{
    collections::TryReserveError,
    mem,
    sync::{Arc, Mutex},
};

/// Alignment of a body: the most that a reader of Arrow arrays wants.
const ALIGNMENT: usize = 64;

/// Unused buffers that are kept. A loop that drops its batches needs one or two.
const SPARES: usize = 3;

/// A spare buffer serves bodies down to this fraction of its size, so that memory is not wasted.
const WASTE_MAX: usize = 4;

/// The Arrow body of a message.
#[derive(Debug)]
pub struct Body {
    /// Bytes before an aligned address, then the body.
    bytes: Vec<u8>,
    length: usize,
    address: usize,
    pool: Arc<BodyPool>,
}

/// Buffers of bodies that were dropped.
#[derive(Debug, Default)]
pub(crate) struct BodyPool {
    spares: Mutex<Spares>,
}

#[derive(Debug, Default)]
struct Spares {
    buffers: Vec<Vec<u8>>,
    is_closed: bool,
}

// === impl Body ===

impl Body {
    /// The address of its first byte, a multiple of 64. The reader may write there until the body is dropped.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends bytes, at most those that are missing.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes so far.
    #[cfg(test)]
    pub(crate) fn received(&self) -> &[u8] {
        &self.bytes[self.address - self.bytes.as_ptr() as usize..]
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.pool.give_back(mem::take(&mut self.bytes));
    }
}

// === impl BodyPool ===

impl BodyPool {
    /// An empty body with memory for this many bytes.
    pub(crate) fn take(self: &Arc<Self>, length: usize) -> Result<Body, TryReserveError> {
        let needed = length + ALIGNMENT;
        let mut bytes = self.spare(needed).unwrap_or_default();
        bytes.try_reserve_exact(needed)?;
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        bytes.resize(start, 0);
        // Another language writes to it, through its address.
        let address = bytes.as_mut_ptr().expose_provenance() + start;
        Ok(Body { bytes, length, address, pool: Arc::clone(self) })
    }

    /// Frees the spare buffers, and those of bodies that are dropped from now on.
    pub(crate) fn close(&self) {
        if let Ok(mut spares) = self.spares.lock() {
            spares.is_closed = true;
            spares.buffers.clear();
        }
    }

    fn spare(&self, needed: usize) -> Option<Vec<u8>> {
        let mut spares = self.spares.lock().ok()?;
        let fits = |buffer: &Vec<u8>| (needed..=needed * WASTE_MAX).contains(&buffer.capacity());
        let found = spares.buffers.iter().rposition(fits)?;
        Some(spares.buffers.swap_remove(found))
    }

    /// Keeps a buffer, or frees it. Never waits: a forked process may have inherited a locked pool.
    fn give_back(&self, mut bytes: Vec<u8>) {
        let Ok(mut spares) = self.spares.try_lock() else { return };
        if spares.is_closed {
            return;
        }
        bytes.clear();
        if spares.buffers.len() >= SPARES {
            spares.buffers.remove(0);
        }
        spares.buffers.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_aligned_and_their_memory_serves_the_next_one() {
        let pool = Arc::new(BodyPool::default());
        let mut address = None;
        for length in [100_000, 99_000, 100_000, 50_000] {
            let mut body = pool.take(length).unwrap();
            body.append(&vec![7; length]);
            assert_eq!((body.address() % ALIGNMENT, body.len(), body.received().len()), (0, length, length));
            assert_eq!(body.address(), body.received().as_ptr() as usize);
            assert_eq!(*address.get_or_insert(body.address()), body.address());
        }
    }

    #[test]
    fn large_buffers_do_not_serve_small_bodies_and_few_are_kept() {
        let pool = Arc::new(BodyPool::default());
        let large = pool.take(1 << 20).unwrap();
        let address = large.address();
        drop(large);
        assert_ne!(pool.take(1 << 10).unwrap().address(), address);
        drop((0..10).map(|_| pool.take(1 << 20).unwrap()).collect::<Vec<_>>());
        assert_eq!(pool.spares.lock().unwrap().buffers.len(), SPARES);
        let last = pool.take(1 << 20).unwrap();
        pool.close();
        drop(last);
        assert!(pool.spares.lock().unwrap().buffers.is_empty());
    }

    #[test]
    fn dropping_a_body_never_waits_for_the_pool() {
        let pool = Arc::new(BodyPool::default());
        let body = pool.take(10).unwrap();
        let locked = pool.spares.lock().unwrap();
        drop(body);
        drop(locked);
    }
}

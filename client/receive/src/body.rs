//! Memory of received bodies: aligned, filled once, and used again after its last view is dropped.
//!
//! A reader may keep a buffer's memory: it is then not freed before the reader releases it. A GPU's driver needs that
//! for memory that it locked in place.

use std::{
    collections::TryReserveError,
    mem,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

/// Alignment of a body: a page, the unit of memory that is locked in place. Readers of Arrow arrays want 64 at most.
const PAGE: usize = 4096;

/// Unused buffers that are kept. A loop that drops its batches needs one or two.
const SPARES: usize = 3;

/// Unused buffers that are kept if a reader keeps their memory: batches are then copied to a GPU from several.
const KEPT_SPARES: usize = 8;

/// A spare buffer serves bodies down to this fraction of its size, so that memory is not wasted.
const WASTE_MAX: usize = 4;

/// Attempts to return a buffer while another thread has the pool.
const ATTEMPTS: usize = 1000;

/// The Arrow body of a message.
#[derive(Debug)]
pub struct Body {
    buffer: Buffer,
    length: usize,
    address: usize,
    pool: Arc<BodyPool>,
}

/// The memory that a body is in, which later bodies may use, too.
#[derive(Debug)]
pub struct BodyBuffer {
    mark: Arc<Mark>,
    pool: Arc<BodyPool>,
}

/// Buffers of bodies that were dropped.
#[derive(Debug, Default)]
pub(crate) struct BodyPool {
    buffers: Mutex<Buffers>,
}

#[derive(Debug, Default)]
struct Buffers {
    spares: Vec<Buffer>,
    /// Buffers that are not used again, but were not released.
    retired: Vec<Buffer>,
    is_closed: bool,
}

/// Bytes before an aligned address, then a body, and at least a page after it.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    mark: Arc<Mark>,
}

/// What identifies a buffer, and whether its memory is kept.
#[derive(Debug)]
struct Mark {
    number: u64,
    start: usize,
    length: usize,
    is_kept: AtomicBool,
}

// === impl Body ===

impl Body {
    /// The address of its first byte, a multiple of 4096. The reader may write there until the body is dropped.
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

    /// The memory that it is in.
    pub fn buffer(&self) -> BodyBuffer {
        BodyBuffer { mark: Arc::clone(&self.buffer.mark), pool: Arc::clone(&self.pool) }
    }

    /// Appends bytes, at most those that are missing.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.buffer.bytes.extend_from_slice(bytes);
    }

    /// The bytes so far.
    #[cfg(test)]
    pub(crate) fn received(&self) -> &[u8] {
        let bytes = &self.buffer.bytes;
        &bytes[self.address - bytes.as_ptr() as usize..]
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let empty = Buffer { bytes: Vec::new(), mark: Arc::clone(&self.buffer.mark) };
        self.pool.give_back(mem::replace(&mut self.buffer, empty));
    }
}

// === impl BodyBuffer ===

impl BodyBuffer {
    /// A number that no other buffer of this process has.
    pub fn number(&self) -> u64 {
        self.mark.number
    }

    /// The address of its first whole page. Bodies begin there.
    pub fn address(&self) -> usize {
        self.mark.start
    }

    /// The length of its whole pages in bytes, a multiple of 4096. No other memory is in them.
    pub fn len(&self) -> usize {
        self.mark.length
    }

    /// Whether it has no whole page.
    pub fn is_empty(&self) -> bool {
        self.mark.length == 0
    }

    /// Keeps the memory until [`Self::release`], even if no body is in it, and after the call's end.
    pub fn keep(&self) {
        self.mark.is_kept.store(true, Ordering::Release);
    }

    /// Whether its memory is there only because it was kept.
    pub fn is_retired(&self) -> bool {
        let buffers = self.pool.attempt();
        buffers.is_some_and(|buffers| buffers.retired.iter().any(|buffer| Arc::ptr_eq(&buffer.mark, &self.mark)))
    }

    /// Ends [`Self::keep`]. Frees the memory if it is retired.
    pub fn release(&self) {
        self.mark.is_kept.store(false, Ordering::Release);
        if let Some(mut buffers) = self.pool.attempt() {
            buffers.retired.retain(|buffer| !Arc::ptr_eq(&buffer.mark, &self.mark));
        }
    }
}

// === impl BodyPool ===

impl BodyPool {
    /// An empty body with memory for this many bytes.
    pub(crate) fn take(self: &Arc<Self>, length: usize) -> Result<Body, TryReserveError> {
        let needed = length.saturating_add(2 * PAGE);
        let mut buffer = match self.spare(needed) {
            Some(buffer) => buffer,
            None => Buffer::new(needed)?,
        };
        let address = buffer.mark.start;
        buffer.bytes.resize(address - buffer.bytes.as_ptr() as usize, 0);
        Ok(Body { buffer, length, address, pool: Arc::clone(self) })
    }

    /// Frees the spare buffers, and those of bodies that are dropped from now on.
    pub(crate) fn close(&self) {
        if let Ok(mut buffers) = self.buffers.lock() {
            buffers.is_closed = true;
            for buffer in mem::take(&mut buffers.spares) {
                buffers.retire(buffer);
            }
        }
    }

    fn spare(&self, needed: usize) -> Option<Buffer> {
        let mut buffers = self.buffers.lock().ok()?;
        let fits = |buffer: &Buffer| (needed..=needed.saturating_mul(WASTE_MAX)).contains(&buffer.bytes.capacity());
        let found = buffers.spares.iter().rposition(fits)?;
        Some(buffers.spares.swap_remove(found))
    }

    /// Takes a buffer back, or frees it.
    fn give_back(&self, mut buffer: Buffer) {
        let Some(mut buffers) = self.attempt() else {
            if buffer.mark.is_kept.load(Ordering::Acquire) {
                // Rather than free memory that a driver uses.
                mem::forget(buffer.bytes);
            }
            return;
        };
        if buffers.is_closed {
            return buffers.retire(buffer);
        }
        buffer.bytes.clear();
        buffers.spares.push(buffer);
        let is_kept = |buffer: &Buffer| buffer.mark.is_kept.load(Ordering::Acquire);
        let most = if buffers.spares.iter().any(is_kept) { KEPT_SPARES } else { SPARES };
        if buffers.spares.len() > most {
            let oldest = buffers.spares.remove(0);
            buffers.retire(oldest);
        }
    }

    /// The buffers. Never waits for long: a forked process may have inherited a locked pool.
    fn attempt(&self) -> Option<MutexGuard<'_, Buffers>> {
        for _ in 0..ATTEMPTS {
            if let Ok(buffers) = self.buffers.try_lock() {
                return Some(buffers);
            }
            thread::yield_now();
        }
        None
    }
}

impl Buffers {
    /// Frees a buffer, once it is released.
    fn retire(&mut self, buffer: Buffer) {
        if buffer.mark.is_kept.load(Ordering::Acquire) {
            self.retired.push(buffer);
        }
    }
}

impl Buffer {
    fn new(capacity: usize) -> Result<Self, TryReserveError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let mut bytes = Vec::<u8>::new();
        bytes.try_reserve_exact(capacity)?;
        // Another language writes to it, through its address.
        let first = bytes.as_mut_ptr().expose_provenance();
        let start = first.next_multiple_of(PAGE);
        let end = first + bytes.capacity();
        let mark = Mark {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            start,
            length: end / PAGE * PAGE - start,
            is_kept: AtomicBool::new(false),
        };
        Ok(Self { bytes, mark: Arc::new(mark) })
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
            assert_eq!((body.address() % PAGE, body.len(), body.received().len()), (0, length, length));
            assert_eq!(body.address(), body.received().as_ptr() as usize);
            assert_eq!(*address.get_or_insert(body.address()), body.address());
            let buffer = body.buffer();
            assert_eq!((buffer.address(), buffer.len() % PAGE), (body.address(), 0));
            assert!(length <= buffer.len() && buffer.len() <= body.buffer.bytes.capacity());
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
        assert_eq!(pool.buffers.lock().unwrap().spares.len(), SPARES);
        let last = pool.take(1 << 20).unwrap();
        pool.close();
        drop(last);
        assert!(pool.buffers.lock().unwrap().spares.is_empty());
    }

    #[test]
    fn dropping_a_body_never_waits_for_the_pool() {
        let pool = Arc::new(BodyPool::default());
        let (body, kept) = (pool.take(10).unwrap(), pool.take(10).unwrap());
        kept.buffer().keep();
        let locked = pool.buffers.lock().unwrap();
        drop(body);
        drop(kept);
        drop(locked);
    }

    #[test]
    fn kept_memory_is_freed_when_it_is_released() {
        let pool = Arc::new(BodyPool::default());
        let bodies: Vec<Body> = (0..10).map(|_| pool.take(1 << 20).unwrap()).collect();
        let kept: Vec<BodyBuffer> = bodies.iter().map(Body::buffer).collect();
        kept.iter().for_each(BodyBuffer::keep);
        drop(bodies);
        let retired = |pool: &BodyPool| pool.buffers.lock().unwrap().retired.len();
        assert_eq!(retired(&pool), 10 - KEPT_SPARES);
        let last = pool.take(1 << 20).unwrap();
        assert!(kept.iter().any(|buffer| buffer.number() == last.buffer().number()), "memory is used again");
        pool.close();
        assert_eq!(retired(&pool), 9);
        drop(last);
        assert!(kept.iter().all(BodyBuffer::is_retired));
        kept[0].release();
        assert_eq!((retired(&pool), kept[0].is_retired(), kept[1].is_retired()), (9, false, true));
        kept.iter().for_each(BodyBuffer::release);
        assert_eq!(retired(&pool), 0);
    }
}

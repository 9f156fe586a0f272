//! Unused buffers for decompressed pages.
//!
//! Pages are about as large as the allocator's largest cached blocks: without spares, every page would be fresh memory
//! that the system clears.

use std::{
    mem,
    sync::{Mutex, PoisonError},
};

/// The most bytes that are kept.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Larger buffers are freed: few pages need them.
const BUFFER_BYTES_MAX: usize = 4 << 20;

static SPARE: Mutex<Spare> = Mutex::new(Spare { buffers: Vec::new(), bytes: 0 });

#[derive(Debug)]
struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// A buffer that returns to the spare ones when it is dropped. Its bytes are arbitrary.
#[derive(Debug, Default)]
pub(crate) struct PageBuffer(Vec<u8>);

impl PageBuffer {
    /// The first `size` bytes, which are arbitrary.
    pub(crate) fn sized(&mut self, size: usize) -> &mut [u8] {
        if self.0.len() < size {
            self.give_back();
            self.0 = take(size);
            if self.0.len() < size {
                self.0.resize(size, 0);
            }
        }
        &mut self.0[..size]
    }

    pub(crate) fn bytes(&self, size: usize) -> &[u8] {
        self.0.get(..size).unwrap_or_default()
    }

    fn give_back(&mut self) {
        let buffer = mem::take(&mut self.0);
        if buffer.is_empty() || buffer.len() > BUFFER_BYTES_MAX {
            return;
        }
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.bytes + buffer.len() <= KEPT_BYTES_MAX {
            spare.bytes += buffer.len();
            spare.buffers.push(buffer);
        }
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The spare buffer that was returned last and is large enough; an empty one if there is none.
fn take(size: usize) -> Vec<u8> {
    /// Buffers of which one is chosen.
    const LAST: usize = 8;
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    let found = spare.buffers.iter().rev().take(LAST).position(|buffer| buffer.len() >= size);
    let Some(from_end) = found else { return Vec::new() };
    let at = spare.buffers.len() - 1 - from_end;
    let buffer = spare.buffers.swap_remove(at);
    spare.bytes -= buffer.len();
    buffer
}

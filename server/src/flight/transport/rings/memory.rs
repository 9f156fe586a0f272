//! The memory of a ring: a sealed memfd that is written by `pwritev`, and never mapped.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use arrow::buffer::Buffer;
use forebay_runtime::budget::Reservation;
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create},
    io::{Errno, pwritev},
};
use tokio::task;

/// Slots begin at multiples of this many bytes, a page.
const SLOT_ALIGNMENT: u64 = 4096;

/// Bytes that are written at once: some 200 µs, during which the thread moves no other data.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// Buffers that the system accepts at once (`IOV_MAX`).
const WRITE_BUFFERS_MAX: usize = 1024;

/// The slots of a ring. Their memory is reserved as long as this is kept.
#[derive(Debug)]
pub(super) struct RingMemory {
    file: OwnedFd,
    slot_bytes: u64,
    _reserved: Reservation,
}

/// Bytes of a slot for bodies like the first one, with room for larger ones, whose pages take no memory until they are
/// used. Bodies that exceed it are sent in their frames.
pub(super) fn slot_bytes(first_body_bytes: usize) -> u64 {
    let bytes = first_body_bytes as u64;
    (bytes + bytes / 4).next_multiple_of(SLOT_ALIGNMENT)
}

// === impl RingMemory ===

impl RingMemory {
    /// Slots without contents. `reserved` covers all of them.
    pub(super) fn create(slots: u16, slot_bytes: u64, reserved: Reservation) -> io::Result<Self> {
        let file = memfd_create("forebay-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, u64::from(slots) * slot_bytes)?;
        // A client that maps it can rely on its size: no SIGBUS.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { file, slot_bytes, _reserved: reserved })
    }

    /// Whether a body fits a slot.
    pub(super) fn fits(&self, body_bytes: usize) -> bool {
        body_bytes as u64 <= self.slot_bytes
    }

    /// Writes a body to the start of a slot.
    pub(super) async fn write(&self, slot: u16, body: &[Buffer]) -> io::Result<()> {
        let start = u64::from(slot) * self.slot_bytes;
        let mut done = 0;
        loop {
            let slices = part(body, done);
            let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
            if bytes == 0 {
                return Ok(());
            }
            self.write_all(slices, start + done as u64)?;
            done += bytes;
            if bytes >= WRITE_BYTES_MAX {
                task::yield_now().await;
            }
        }
    }

    fn write_all(&self, mut slices: Vec<IoSlice<'_>>, mut offset: u64) -> io::Result<()> {
        let mut slices = slices.as_mut_slice();
        while !slices.is_empty() {
            match pwritev(&self.file, slices, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut slices, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The next part of a body, after its first `done` bytes; empty at its end.
fn part(body: &[Buffer], mut done: usize) -> Vec<IoSlice<'_>> {
    let (mut slices, mut bytes) = (Vec::new(), 0);
    for buffer in body {
        let buffer = buffer.as_slice();
        let begun = done.min(buffer.len());
        done -= begun;
        let rest = &buffer[begun..];
        let rest = &rest[..rest.len().min(WRITE_BYTES_MAX - bytes)];
        if !rest.is_empty() {
            bytes += rest.len();
            slices.push(IoSlice::new(rest));
        }
        if bytes == WRITE_BYTES_MAX || slices.len() == WRITE_BUFFERS_MAX {
            break;
        }
    }
    slices
}

impl AsFd for RingMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::FileExt};

    use forebay_runtime::budget::Budget;
    use rustix::fs::fcntl_get_seals;

    use super::*;

    #[test]
    fn slots_have_room_for_larger_bodies() {
        for (bytes, expected) in [(0, 0), (1, 4096), (4096, 8192), (1_000_000, 1_253_376)] {
            assert_eq!(slot_bytes(bytes), expected, "{bytes}");
        }
    }

    #[tokio::test]
    async fn bodies_are_written_to_their_slots() {
        let budget = Budget::new(1 << 30);
        let bytes = 4 << 20;
        let memory = RingMemory::create(4, bytes, budget.reserve(4 * bytes).unwrap()).unwrap();
        let filled = |length: usize, byte: u8| Buffer::from(vec![byte; length]);
        // More buffers than the system accepts at once, and one that is written in parts.
        let body: Vec<Buffer> = (0..1500)
            .map(|number| filled(number % 7, number as u8))
            .chain([filled(3 << 20, 9), filled(5, 1)])
            .collect();
        memory.write(2, &body).await.unwrap();
        let expected: Vec<u8> = body.iter().flat_map(|buffer| buffer.as_slice().to_vec()).collect();
        assert!(memory.fits(expected.len()) && !memory.fits((4 << 20) + 1));
        let file = File::from(memory.file.try_clone().unwrap());
        let mut found = vec![0; expected.len()];
        file.read_exact_at(&mut found, 2 * bytes).unwrap();
        assert!(found == expected);
        assert_eq!(file.metadata().unwrap().len(), 4 * bytes);
    }

    #[test]
    fn the_size_is_sealed() {
        let budget = Budget::new(1 << 20);
        let memory = RingMemory::create(4, 4096, budget.reserve(4 * 4096).unwrap()).unwrap();
        let seals = fcntl_get_seals(&memory).unwrap();
        assert_eq!(seals, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
        assert!(ftruncate(&memory, 0).is_err());
    }
}

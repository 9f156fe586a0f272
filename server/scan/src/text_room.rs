//! Memory for the texts of one column, which may be many times as large as their pages.

use std::sync::{Arc, Mutex, PoisonError};

use forebay_pages::{Held, Room};
use forebay_runtime::budget::Reservation;

use super::decode_memory::{DecodeError, DecodeMemory};

/// Reserves the most that the values of one call take, and keeps it for the later ones.
#[derive(Debug)]
pub(super) struct TextRoom {
    memory: Arc<DecodeMemory>,
    used: Arc<Mutex<Used>>,
}

#[derive(Debug, Default)]
struct Used {
    bytes: u64,
    /// The most bytes so far.
    granted: u64,
    reservations: Vec<Reservation>,
}

/// Bytes that are free again when it is dropped.
struct Taken {
    bytes: u64,
    used: Arc<Mutex<Used>>,
}

impl TextRoom {
    pub(super) fn new(memory: &Arc<DecodeMemory>) -> Self {
        Self { memory: Arc::clone(memory), used: Arc::default() }
    }
}

impl Room for TextRoom {
    fn take(&self, bytes: usize) -> Result<Held, String> {
        let bytes = bytes as u64;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let peak = used.bytes.saturating_add(bytes);
        let more = peak.saturating_sub(used.granted);
        if more > 0 {
            match self.memory.reserve(more) {
                Ok(reservation) => used.reservations.extend(reservation),
                Err(source) => return Err(self.memory.fail(DecodeError::Memory(source)).to_string()),
            }
            used.granted = peak;
        }
        used.bytes = peak;
        Ok(Box::new(Taken { bytes, used: Arc::clone(&self.used) }))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.bytes = used.bytes.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_runtime::budget::Budget;

    #[test]
    fn the_most_bytes_at_once_are_reserved() {
        const MIB: usize = 1 << 20;
        let budget = Budget::new(100 << 20);
        // 64 MiB are expected of every row group.
        let room = TextRoom::new(&Arc::new(DecodeMemory::new(budget.clone(), 8)));
        let is_free = |mib: u64| budget.reserve(mib << 20).is_ok();
        let first = room.take(60 * MIB).unwrap();
        assert!(is_free(100));
        let second = room.take(14 * MIB).unwrap();
        assert!(is_free(90) && !is_free(91));
        drop((first, second));
        let third = room.take(70 * MIB).unwrap();
        assert!(is_free(90) && !is_free(91));
        assert!(room.take(120 * MIB).is_err());
        drop(third);
        drop(room);
        assert!(is_free(100));
    }
}

//! Which slots the client has, and waiting for one that it does not have.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The fewest and the most slots of a ring. With two, server and client wait for each other; many leave the CPU's caches.
/// The returns of the most slots fit the socket's buffer, so that a client never waits to return one.
pub(super) const SLOTS_MIN: u32 = 4;
const SLOTS_MAX: u32 = 64;

/// The slots of one ring.
#[derive(Debug)]
pub(super) struct Slots {
    state: Mutex<SlotState>,
    returned: Notify,
}

#[derive(Debug)]
struct SlotState {
    /// The one that was returned last is used next: its memory is in the caches.
    free: Vec<u16>,
    /// Whether the client has each slot.
    is_out: Vec<bool>,
}

/// A return of a slot that the client does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring: slot {slot} was returned, but the client does not have it")]
pub(super) struct ForeignSlot {
    slot: u32,
}

// === impl Slots ===

impl Slots {
    /// No slots.
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(SlotState { free: Vec::new(), is_out: Vec::new() }), returned: Notify::new() }
    }

    /// Adds as many slots as a client requests, within the bounds. Returns their number.
    pub(super) fn allocate(&self, wanted: u32) -> u16 {
        let count = wanted.clamp(SLOTS_MIN, SLOTS_MAX) as u16;
        *self.state() = SlotState { free: (0..count).rev().collect(), is_out: vec![false; usize::from(count)] };
        count
    }

    /// Waits for a free slot and marks it as out.
    pub(super) async fn take(&self) -> u16 {
        loop {
            if let Some(slot) = self.try_take() {
                return slot;
            }
            self.returned.notified().await;
        }
    }

    fn try_take(&self) -> Option<u16> {
        let mut state = self.state();
        let slot = state.free.pop()?;
        state.is_out[usize::from(slot)] = true;
        Some(slot)
    }

    /// Takes a slot back from the client.
    pub(super) fn put_back(&self, number: u32) -> Result<(), ForeignSlot> {
        let foreign = || ForeignSlot { slot: number };
        let slot = u16::try_from(number).map_err(|_| foreign())?;
        let mut state = self.state();
        match state.is_out.get_mut(usize::from(slot)) {
            Some(is_out) if *is_out => *is_out = false,
            _ => return Err(foreign()),
        }
        state.free.push(slot);
        drop(state);
        self.returned.notify_one();
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn slots_are_within_bounds() {
        for (wanted, expected) in [(0, 4), (3, 4), (7, 7), (64, 64), (u32::MAX, 64)] {
            assert_eq!(Slots::new().allocate(wanted), expected);
        }
    }

    #[test]
    fn the_slot_returned_last_is_taken_next() {
        let slots = Slots::new();
        slots.allocate(4);
        assert_eq!([0; 4].map(|_| slots.take().now_or_never()), [0, 1, 2, 3].map(Some));
        assert_eq!(slots.take().now_or_never(), None);
        slots.put_back(1).unwrap();
        slots.put_back(3).unwrap();
        assert_eq!([0; 3].map(|_| slots.take().now_or_never()), [Some(3), Some(1), None]);
    }

    #[test]
    fn double_and_foreign_returns_are_errors() {
        let slots = Slots::new();
        assert!(slots.put_back(0).is_err());
        slots.allocate(4);
        let slot = u32::from(slots.take().now_or_never().unwrap());
        for foreign in [slot + 1, 4, 1 << 16, u32::MAX] {
            assert_eq!(slots.put_back(foreign), Err(ForeignSlot { slot: foreign }));
        }
        slots.put_back(slot).unwrap();
        let error = slots.put_back(slot).unwrap_err();
        assert_eq!(error.to_string(), "ring: slot 0 was returned, but the client does not have it");
    }

    #[tokio::test]
    async fn a_return_wakes_the_stream() {
        let slots = Slots::new();
        slots.allocate(4);
        for _ in 0..4 {
            slots.take().await;
        }
        let (taken, ()) = tokio::join!(slots.take(), async { slots.put_back(2).unwrap() });
        assert_eq!(taken, 2);
    }
}

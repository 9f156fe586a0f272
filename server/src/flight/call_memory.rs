//! The memory of requests and answers: reserved from the budget of streams before it is used.
//!
//! Small ones have a fixed room in addition to the budget, so that a server whose budget is in use still answers, and a stream
//! whose memory just fits is not refused for its request. Requests whose caller is not authenticated have a separate room,
//! so that they take nothing from those of others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_runtime::budget::{Budget, Reservation};
use forebay_stream::StreamError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::status;

/// Bytes of a small request or answer: a plan of some dozen columns, decoded.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// The room for small ones, and that for requests before authentication, in permits.
const ROOM_PERMITS: usize = 16 << 10;

/// Bytes of a permit.
const PERMIT_BYTES: u64 = 1 << 10;

/// When the room may be free again.
const RETRY_MS: u64 = 1000;

/// The memory of all requests and answers. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct CallBudget {
    budget: Budget,
    small: Arc<Semaphore>,
    unauthenticated: Arc<Semaphore>,
}

/// Memory of a request or an answer, released on drop.
#[derive(Debug)]
pub(super) struct CallReservation {
    room: Arc<Semaphore>,
    in_room: Option<OwnedSemaphorePermit>,
    /// None if only the room may be used.
    reserved: Option<Reservation>,
}

/// The memory of one call's request: the bytes that have arrived, and the message that they decode to. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct RequestMemory(Arc<Mutex<HeldRequest>>);

#[derive(Debug)]
struct HeldRequest {
    arrived: u64,
    decoded: u64,
    reservation: CallReservation,
}

// === impl CallBudget ===

impl CallBudget {
    /// Room in the budget of streams, and in addition for small requests and answers.
    pub(super) fn new(budget: &Budget) -> Self {
        let room = || Arc::new(Semaphore::new(ROOM_PERMITS));
        Self { budget: budget.clone(), small: room(), unauthenticated: room() }
    }

    /// Reserves bytes if they fit.
    pub(super) fn reserve(&self, bytes: u64) -> Result<CallReservation, Status> {
        let mut reservation = self.empty();
        reservation.try_resize(bytes)?;
        Ok(reservation)
    }

    /// Counts bytes that are in use already, even beyond the limit.
    pub(super) fn count(&self, bytes: u64) -> CallReservation {
        let mut reservation = self.empty();
        if reservation.try_resize(bytes).is_err()
            && let Some(reserved) = &mut reservation.reserved
        {
            reserved.resize(bytes);
        }
        reservation
    }

    /// The memory of a request of which nothing has arrived.
    pub(super) fn request(&self) -> RequestMemory {
        RequestMemory::new(self.empty())
    }

    /// The same for a request whose caller is not authenticated.
    pub(super) fn unauthenticated_request(&self) -> RequestMemory {
        RequestMemory::new(CallReservation { room: Arc::clone(&self.unauthenticated), in_room: None, reserved: None })
    }

    fn empty(&self) -> CallReservation {
        CallReservation { room: Arc::clone(&self.small), in_room: None, reserved: Some(self.budget.empty()) }
    }
}

// === impl CallReservation ===

impl CallReservation {
    fn try_resize(&mut self, bytes: u64) -> Result<(), Status> {
        let is_for_room = bytes <= SMALL_BYTES_MAX || self.reserved.is_none();
        let has_room = is_for_room && self.resize_in_room(bytes.div_ceil(PERMIT_BYTES) as u32);
        match &mut self.reserved {
            Some(reserved) if has_room => reserved.resize(0),
            Some(reserved) => {
                reserved.try_resize(bytes).map_err(|error| status::of(&StreamError::Budget(error)))?;
                self.in_room = None;
            }
            None if has_room => {}
            None => {
                let room = ROOM_PERMITS as u64 * PERMIT_BYTES;
                let text = format!(
                    "requests of callers that are not authenticated take {room} bytes together at most: try again in \
                     {RETRY_MS} ms"
                );
                return Err(status::overloaded(&text, RETRY_MS));
            }
        }
        Ok(())
    }

    /// Takes this many permits in all, if the room has them.
    fn resize_in_room(&mut self, wanted: u32) -> bool {
        let held = self.in_room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) as u32;
        let Some(more) = wanted.checked_sub(held) else {
            self.in_room = self.in_room.take().and_then(|mut permit| permit.split(wanted as usize));
            return true;
        };
        let Ok(taken) = Arc::clone(&self.room).try_acquire_many_owned(more) else { return false };
        match &mut self.in_room {
            Some(permit) => permit.merge(taken),
            None => self.in_room = Some(taken),
        }
        true
    }
}

// === impl RequestMemory ===

impl RequestMemory {
    fn new(reservation: CallReservation) -> Self {
        Self(Arc::new(Mutex::new(HeldRequest { arrived: 0, decoded: 0, reservation })))
    }

    /// Reserves what has arrived and is not yet released.
    pub(super) fn arrived(&self, bytes: u64) -> Result<(), Status> {
        let mut held = self.held();
        held.arrived = bytes;
        held.update()
    }

    /// Reserves a message that is going to be decoded.
    pub(super) fn decoded(&self, bytes: u64) -> Result<(), Status> {
        let mut held = self.held();
        held.decoded = bytes;
        held.update()
    }

    /// Releases all: the message has been dropped.
    pub(super) fn release(&self) {
        let mut held = self.held();
        (held.arrived, held.decoded) = (0, 0);
        // Less always fits.
        let _ = held.update();
    }

    fn held(&self) -> MutexGuard<'_, HeldRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldRequest {
    fn update(&mut self) -> Result<(), Status> {
        self.reservation.try_resize(self.arrived.saturating_add(self.decoded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_requests_have_their_room_beside_the_budget() {
        let budget = Budget::new(1 << 20);
        let calls = CallBudget::new(&budget);
        let request = calls.request();
        request.arrived(SMALL_BYTES_MAX).unwrap();
        assert!(budget.reserve(1 << 20).is_ok());
        request.decoded(1).unwrap();
        assert!(budget.reserve(1 << 20).is_err());
        assert_eq!(calls.small.available_permits(), ROOM_PERMITS);
        request.arrived(5000).unwrap();
        assert_eq!(calls.small.available_permits(), ROOM_PERMITS - 5);
        request.arrived(1500).unwrap();
        assert_eq!(calls.small.available_permits(), ROOM_PERMITS - 2);
        assert!(request.decoded(2 << 20).is_err());
        request.release();
        assert!(budget.reserve(1 << 20).is_ok());
        assert_eq!(calls.small.available_permits(), ROOM_PERMITS);
    }

    #[test]
    fn many_small_requests_are_part_of_the_budget() {
        let budget = Budget::new(1 << 20);
        let calls = CallBudget::new(&budget);
        let held: Vec<_> = (0..).map_while(|_| calls.reserve(SMALL_BYTES_MAX).ok()).collect();
        let room = ROOM_PERMITS as u64 * PERMIT_BYTES + budget.limit();
        assert_eq!(held.len() as u64 * SMALL_BYTES_MAX, room);
        // Requests before authentication have their room, and only that.
        let before: Vec<_> = (0..)
            .map(|_| calls.unauthenticated_request())
            .map_while(|request| request.arrived(1 << 20).ok().map(|()| request))
            .collect();
        assert_eq!(before.len(), 16);
        drop(held);
        assert!(calls.unauthenticated_request().arrived(1).is_err());
        assert!(budget.reserve(1 << 20).is_ok());
    }
}

//! An open device, and whether it can be used.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{backend::Backend, error::DeviceError};

/// Called when a device fails: see [`Device`].
pub type Report = fn(&Device, &DeviceError);

/// An open device.
///
/// What fails on it is computed on the CPU. After a batch or program for which it had no memory the next one is tried,
/// and the lack of memory is reported at most once a minute. After any other failure it is lost, which is reported, and
/// not used again: a driver's errors last as long as the process.
#[derive(Debug)]
pub struct Device {
    pub(super) backend: Box<dyn Backend>,
    name: String,
    state: Mutex<State>,
    report: Report,
}

#[derive(Debug, Default)]
struct State {
    is_lost: bool,
    reported: Option<Instant>,
}

/// The time between reports of a lack of memory.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

impl Device {
    pub(super) fn new(name: String, backend: Box<dyn Backend>, report: Report) -> Arc<Self> {
        Arc::new(Self { backend, name, state: Mutex::default(), report })
    }

    /// The device's name, as in "NVIDIA H200".
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has failed, and is not used again.
    pub fn is_lost(&self) -> bool {
        self.state().is_lost
    }

    /// Whether it ever failed.
    pub(super) fn has_failed(&self) -> bool {
        self.state().reported.is_some()
    }

    /// Records a failure. A program that the compiler rejects is not a failure of the device.
    pub(super) fn fail(&self, error: &DeviceError) {
        if matches!(error, DeviceError::Compiler(_)) {
            return;
        }
        let mut state = self.state();
        if state.is_lost {
            return;
        }
        state.is_lost = !matches!(error, DeviceError::Memory { .. });
        if state.is_lost || state.reported.is_none_or(|last| last.elapsed() >= REPORT_INTERVAL) {
            state.reported = Some(Instant::now());
            drop(state);
            (self.report)(self, error);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Wall time and CPU time of a pass. CPU time excludes other processes on the same core.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// The nanoseconds of each pass.
#[derive(Default, Serialize)]
pub(crate) struct Times {
    wall_ns: Vec<u64>,
    cpu_ns: Vec<u64>,
}

impl Times {
    /// Runs a pass and records its times.
    pub(crate) fn record<T>(&mut self, pass: impl FnOnce() -> T) -> T {
        let (wall, cpu) = (Instant::now(), cpu_time());
        let result = pass();
        let (cpu, wall) = (cpu_time().saturating_sub(cpu), wall.elapsed());
        self.wall_ns.push(wall.as_nanos() as u64);
        self.cpu_ns.push(cpu.as_nanos() as u64);
        result
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // CPU time starts at zero, and its nanoseconds are below a second.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

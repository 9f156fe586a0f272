//! What a pass takes: by the wall, and of this process's CPU time. The second leaves out what else had the core meanwhile.

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
    /// Does a pass and notes what it took.
    pub(crate) fn note<T>(&mut self, pass: impl FnOnce() -> T) -> T {
        let (wall, cpu) = (Instant::now(), cpu_time());
        let made = pass();
        let (cpu, wall) = (cpu_time().saturating_sub(cpu), wall.elapsed());
        self.wall_ns.push(wall.as_nanos() as u64);
        self.cpu_ns.push(cpu.as_nanos() as u64);
        made
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // A clock of CPU time starts at zero and its nanoseconds are below a second.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

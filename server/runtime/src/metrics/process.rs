//! Metrics that are read when the page is rendered: the process, and thread pools.

use std::{fs, time::Duration};

use super::{
    page::Page,
    stages::{ALL_STREAMS, Stage},
    streams,
};

/// Clock ticks per second in /proc: a constant of the kernel's user-space interface.
const TICKS_A_SECOND: f64 = 100.0;

/// Bytes of a memory page in /proc.
const PAGE_BYTES: u64 = 4096;

/// Indices of fields in /proc/…/stat, counted from 0 after the name: see proc(5).
const USER: usize = 11;
const SYSTEM: usize = 12;
const THREADS: usize = 17;
const START: usize = 19;
const RESIDENT: usize = 21;

/// The current state of a thread pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolFigures {
    /// Number of threads.
    pub threads: usize,
    /// Number of jobs or tasks that wait for a thread.
    pub waiting: usize,
    /// The longest time that one of them has waited; zero where it is not measured.
    pub longest_wait: Duration,
}

/// Thread pools, and readiness of the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pools {
    /// Whether new streams are accepted.
    pub is_ready: bool,
    /// The threads that decode and compute.
    pub cpu: PoolFigures,
    /// Prefix of their names.
    pub cpu_thread_name: &'static str,
    /// The threads that move data.
    pub runtime: PoolFigures,
    /// Number of tasks on those threads.
    pub tasks: usize,
    /// Time that those threads were busy.
    pub runtime_busy: Duration,
}

/// Renders the metrics that are read on request.
pub(super) fn render(pools: &Pools) -> String {
    let mut page = Page::default();
    page.head("forebay_stage_seconds_total");
    for stage in Stage::ALL {
        let labels = format!("stage=\"{}\"", stage.label());
        page.series("forebay_stage_seconds_total", &labels, ALL_STREAMS.seconds(stage));
    }
    streams::render(&mut page);
    page.single("forebay_ready", f64::from(u8::from(pools.is_ready)));
    page.single("forebay_cpu_threads", pools.cpu.threads as f64);
    page.single("forebay_cpu_jobs_waiting", pools.cpu.waiting as f64);
    page.single("forebay_cpu_wait_seconds", pools.cpu.longest_wait.as_secs_f64());
    page.single("forebay_cpu_busy_seconds_total", thread_seconds(pools.cpu_thread_name));
    page.single("forebay_runtime_workers", pools.runtime.threads as f64);
    page.single("forebay_runtime_tasks", pools.tasks as f64);
    page.single("forebay_runtime_queue_depth", pools.runtime.waiting as f64);
    page.single("forebay_runtime_busy_seconds_total", pools.runtime_busy.as_secs_f64());
    for (name, value) in process() {
        page.single(name, value);
    }
    page.into_text()
}

/// Returns the metrics of this process; those that the system does not provide are left out.
fn process() -> Vec<(&'static str, f64)> {
    let mut figures = Vec::new();
    if let Ok(stat) = fs::read_to_string("/proc/self/stat") {
        let (_, fields) = name_and_fields(&stat);
        let field = |index: usize| fields.get(index).copied().unwrap_or(0.0);
        figures.push(("forebay_process_cpu_seconds_total", (field(USER) + field(SYSTEM)) / TICKS_A_SECOND));
        figures.push(("forebay_process_resident_memory_bytes", field(RESIDENT) * PAGE_BYTES as f64));
        figures.push(("forebay_process_threads", field(THREADS)));
        if let Some(booted) = boot_seconds() {
            figures.push(("forebay_process_start_time_seconds", booted + field(START) / TICKS_A_SECOND));
        }
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // Not counting the descriptor that reads this directory.
        figures.push(("forebay_process_open_fds", open.count().saturating_sub(1) as f64));
    }
    if let Some(most) = descriptors_max() {
        figures.push(("forebay_process_max_fds", most));
    }
    figures
}

/// Returns the name in a line of /proc/…/stat, and the fields after it.
fn name_and_fields(stat: &str) -> (&str, Vec<f64>) {
    let (before, fields) = stat.rsplit_once(')').unwrap_or_default();
    let name = before.split_once('(').map_or("", |(_, name)| name);
    (name, fields.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect())
}

/// Returns the CPU seconds of this process's threads whose names start with `name`.
fn thread_seconds(name: &str) -> f64 {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return 0.0 };
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    let seconds = stats.map(|stat| match name_and_fields(&stat) {
        (found, fields) if found.starts_with(name) => {
            (fields.get(USER).unwrap_or(&0.0) + fields.get(SYSTEM).unwrap_or(&0.0)) / TICKS_A_SECOND
        }
        _ => 0.0,
    });
    seconds.sum()
}

/// Returns the boot time in seconds since 1970.
fn boot_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

fn descriptors_max() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn process_metrics_are_plausible() {
        let figures = process();
        let of = |name: &str| figures.iter().find(|(other, _)| *other == name).map_or(0.0, |(_, value)| *value);
        assert_eq!(figures.len(), 6);
        assert!(of("forebay_process_resident_memory_bytes") > 1e6);
        assert!(of("forebay_process_threads") >= 1.0);
        assert!(of("forebay_process_open_fds") >= 3.0);
        assert!(of("forebay_process_max_fds") >= of("forebay_process_open_fds"));
        // After 2020, before 2100.
        assert!((1.577e9..4.1e9).contains(&of("forebay_process_start_time_seconds")));
    }
}

//! What is read when the page is asked for: the process, and the pools of threads.

use std::{fs, time::Duration};

use super::{
    page::Page,
    stages::{ALL_STREAMS, Stage},
    streams,
};

/// Clock ticks of /proc a second: the kernel's constant for programs.
const TICKS_A_SECOND: f64 = 100.0;

/// Bytes of a page of memory, as /proc counts them.
const PAGE_BYTES: u64 = 4096;

/// Of the fields behind the name in /proc/…/stat, counted from 0: see proc(5).
const USER: usize = 11;
const SYSTEM: usize = 12;
const THREADS: usize = 17;
const START: usize = 19;
const RESIDENT: usize = 21;

/// A pool of threads, now.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolFigures {
    /// Its threads.
    pub threads: usize,
    /// What waits for one of them.
    pub waiting: usize,
}

/// The pools of threads, and whether the server takes streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pools {
    /// Whether new streams are taken.
    pub is_ready: bool,
    /// The threads that decode and compute.
    pub cpu: PoolFigures,
    /// What their names begin with.
    pub cpu_thread_name: &'static str,
    /// The threads that move data.
    pub runtime: PoolFigures,
    /// Tasks that live on those.
    pub tasks: usize,
    /// The time that those were busy.
    pub runtime_busy: Duration,
}

/// All that is read when it is asked for.
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

/// Figures of this process; those that the system does not tell are left out.
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
        // The folder itself is open meanwhile.
        figures.push(("forebay_process_open_fds", open.count().saturating_sub(1) as f64));
    }
    if let Some(most) = descriptors_max() {
        figures.push(("forebay_process_max_fds", most));
    }
    figures
}

/// The name in a line of /proc/…/stat, and the fields behind it.
fn name_and_fields(stat: &str) -> (&str, Vec<f64>) {
    let (before, fields) = stat.rsplit_once(')').unwrap_or_default();
    let name = before.split_once('(').map_or("", |(_, name)| name);
    (name, fields.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect())
}

/// CPU seconds of this process's threads whose name begins so.
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

/// When the machine started, in seconds since 1970.
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
    fn the_process_is_told_of() {
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

"""Rows of the overview that show what a server uses: storage, memory, CPU, and what the system gives its process."""

from __future__ import annotations

from panels import Panel, Row
from promql import INSTANCE, by, each, rate, ratio, series, total


def busy(seconds: str, threads: str) -> dict[str, str]:
    """Draw the part of the time in which threads worked."""
    return {INSTANCE: f"{total(rate(seconds), by='instance')} / clamp_min({total(series(threads), by='instance')}, 1)"}


STORAGE = Row(
    "Storage",
    [
        Panel(
            "Requests",
            "Requests to storage per second, by operation.",
            "reqps",
            by("operation", rate("forebay_storage_requests_total")),
        ),
        Panel("Read", "Bytes read from storage per second.", "Bps", each(rate("forebay_storage_read_bytes_total"))),
        Panel(
            "Failed requests",
            "Part of the requests to storage that failed for good.",
            "percentunit",
            {
                INSTANCE: ratio(
                    rate("forebay_storage_requests_total", 'status="error"'),
                    rate("forebay_storage_requests_total"),
                    by="instance",
                )
            },
        ),
        Panel(
            "Retries",
            "Attempts per second that storage answered with an error that is tried again, such as a throttled one.",
            "cps",
            each(rate("forebay_storage_retries_total")),
        ),
        Panel(
            "Cache hits",
            "Part of the look-ups that found what they wanted in memory, by cache. 0 while nothing is looked up.",
            "percentunit",
            {
                "{{cache}}": ratio(
                    rate("forebay_cache_requests_total", 'result="hit"'),
                    rate("forebay_cache_requests_total"),
                    by="cache",
                )
            },
            max=1,
        ),
    ],
)

MEMORY = Row(
    "Memory",
    [
        Panel(
            "Budget",
            "Bytes of the memory budget that streams hold, and the budget (--memory-limit-bytes).",
            "bytes",
            {
                "reserved {{instance}}": total(series("forebay_memory_reserved_bytes"), by="instance"),
                "limit {{instance}}": total(series("forebay_memory_limit_bytes"), by="instance"),
            },
        ),
        Panel(
            "Reserved",
            "Part of the memory budget that streams hold.",
            "percentunit",
            {
                INSTANCE: f"{total(series('forebay_memory_reserved_bytes'), by='instance')} / "
                f"clamp_min({total(series('forebay_memory_limit_bytes'), by='instance')}, 1)"
            },
            max=1,
        ),
        Panel(
            "Resident",
            "Memory of the process that is in RAM. It is more than the budget counts: code, caches, sockets' buffers.",
            "bytes",
            each(series("forebay_process_resident_memory_bytes")),
        ),
    ],
)

CPU = Row(
    "CPU and runtime",
    [
        Panel(
            "CPU pool",
            "Part of the time in which the threads that decode and compute worked.",
            "percentunit",
            busy("forebay_cpu_busy_seconds_total", "forebay_cpu_threads"),
        ),
        Panel(
            "Jobs waiting for the CPU pool",
            "Jobs that wait for one of its threads. Many for long: the CPU is the limit.",
            "short",
            each(series("forebay_cpu_jobs_waiting")),
        ),
        Panel(
            "Process CPU",
            "Seconds of CPU that the process uses per second: the cores that it keeps busy.",
            "s",
            each(rate("forebay_process_cpu_seconds_total")),
        ),
        Panel(
            "Runtime",
            "Part of the time in which the threads that move data worked. Near 100 % they are the limit.",
            "percentunit",
            busy("forebay_runtime_busy_seconds_total", "forebay_runtime_workers"),
        ),
        Panel("Tasks", "Tasks of the runtime that are alive.", "short", each(series("forebay_runtime_tasks"))),
        Panel(
            "Task queue",
            "Tasks that wait for a thread of the runtime.",
            "short",
            each(series("forebay_runtime_queue_depth")),
        ),
    ],
)

PROCESS = Row(
    "Process",
    [
        Panel(
            "File descriptors",
            "Part of the file descriptors that the process may open and has open: sockets and files.",
            "percentunit",
            {
                INSTANCE: f"{total(series('forebay_process_open_fds'), by='instance')} / "
                f"clamp_min({total(series('forebay_process_max_fds'), by='instance')}, 1)"
            },
            width=6,
        ),
        Panel(
            "Threads",
            "Threads of the process.",
            "short",
            each(series("forebay_process_threads")),
            width=6,
        ),
        Panel(
            "Uptime",
            "Time since the process started. A line that falls to 0 is a restart.",
            "s",
            {INSTANCE: f"time() - max by (instance) ({series('forebay_process_start_time_seconds')})"},
            width=6,
        ),
        Panel(
            "Versions",
            "Replicas of each version of the server.",
            "short",
            {"{{version}}": f"count by (version) ({series('forebay_build_info')})"},
            width=6,
        ),
    ],
)

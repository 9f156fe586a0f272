"""Rows of the overview about resources: storage, memory, CPU, process."""

from __future__ import annotations

from panels import Panel, Row
from promql import INSTANCE, TINY, by, each, rate, ratio, series, total


def busy(seconds: str, threads: str) -> dict[str, str]:
    """Return the share of time that threads are busy."""
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
            "Share of storage requests that failed after all retries.",
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
            "Failed attempts per second that are retried, for example because of throttling.",
            "cps",
            each(rate("forebay_storage_retries_total")),
        ),
        Panel(
            "Cache hits",
            "Share of lookups that hit, by cache. 0 without lookups.",
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
            "Share of the memory budget that streams hold.",
            "percentunit",
            {
                INSTANCE: f"{total(series('forebay_memory_reserved_bytes'), by='instance')} / "
                f"clamp_min({total(series('forebay_memory_limit_bytes'), by='instance')}, 1)"
            },
            max=1,
        ),
        Panel(
            "Resident",
            "Resident memory of the process. Includes code, caches and socket buffers, which the budget excludes.",
            "bytes",
            each(series("forebay_process_resident_memory_bytes")),
        ),
    ],
)


def _hit_share(hits: str, misses: str) -> str:
    found, missed = (total(rate(name), by="instance") for name in (hits, misses))
    return f"{found} / clamp_min({found} + {missed}, {TINY})"


CACHE = Row(
    "Cache of finished rows",
    [
        Panel(
            "Hits",
            "Share of the chunks of rows that streams copied from the cache (--cache-bytes) instead of computing them; "
            "of plans whose rows are not cached, the share of the column chunks whose decompressed pages it has.",
            "percentunit",
            {
                f"{INSTANCE} rows": _hit_share("forebay_cache_hits_total", "forebay_cache_misses_total"),
                f"{INSTANCE} pages": _hit_share("forebay_cache_page_hits_total", "forebay_cache_page_misses_total"),
            },
            max=1,
        ),
        Panel(
            "Size",
            "Bytes of the row groups and pages in the cache: in memory, and of the files in --cache-dir.",
            "bytes",
            {
                f"{INSTANCE} memory": total(series("forebay_cache_bytes"), by="instance"),
                f"{INSTANCE} disk": total(series("forebay_cache_disk_bytes"), by="instance"),
            },
        ),
        Panel(
            "Disk tier",
            "Chunks of rows per second that streams read from --cache-dir, those not written because it is full or "
            "slower than the streams, and damaged files, whose rows are computed again.",
            "cps",
            {
                f"{INSTANCE} read": total(rate("forebay_cache_disk_hits_total"), by="instance"),
                f"{INSTANCE} not written": total(rate("forebay_cache_disk_dropped_total"), by="instance"),
                f"{INSTANCE} damaged": total(rate("forebay_cache_disk_damaged_total"), by="instance"),
            },
        ),
        Panel(
            "Evictions",
            "Row groups in memory, and chunks on disk, per second that make room for others. If hits are few as well, "
            "the plans in use need more than --cache-bytes.",
            "cps",
            {
                f"{INSTANCE} memory": total(rate("forebay_cache_evictions_total"), by="instance"),
                f"{INSTANCE} disk": total(rate("forebay_cache_disk_evictions_total"), by="instance"),
            },
        ),
    ],
)

CPU = Row(
    "CPU and runtime",
    [
        Panel(
            "CPU pool",
            "Share of time that the threads that decode and compute are busy.",
            "percentunit",
            busy("forebay_cpu_busy_seconds_total", "forebay_cpu_threads"),
        ),
        Panel(
            "Jobs waiting for the CPU pool",
            "Jobs that wait for a thread of the pool. If many wait for long, the CPU is the bottleneck.",
            "short",
            each(series("forebay_cpu_jobs_waiting")),
        ),
        Panel(
            "Longest wait for the CPU pool",
            "The time that the oldest of those jobs has waited. Clients share the threads: if it stays at seconds, the "
            "server is overloaded, or one client has many jobs.",
            "s",
            each(series("forebay_cpu_wait_seconds")),
        ),
        Panel(
            "Process CPU",
            "CPU seconds per second of the process: the number of busy cores.",
            "s",
            each(rate("forebay_process_cpu_seconds_total")),
        ),
        Panel(
            "Runtime",
            "Share of time that the threads that move data are busy. Near 100 % they are the bottleneck.",
            "percentunit",
            busy("forebay_runtime_busy_seconds_total", "forebay_runtime_workers"),
        ),
        Panel("Tasks", "Tasks of the async runtime.", "short", each(series("forebay_runtime_tasks"))),
        Panel(
            "Task queue",
            "Runtime tasks that wait for a thread.",
            "short",
            each(series("forebay_runtime_queue_depth")),
        ),
    ],
)

STATE = Row(
    "State and certificates",
    [
        Panel(
            "Stored state",
            "Bytes of files under --state, without those that running fits spill. Fitted plans stay until "
            "`forebay plans rm` removes them.",
            "bytes",
            each(series("forebay_state_bytes")),
        ),
        Panel(
            "Stored plans",
            "Plans stored under --state, by fits and for the tickets of large plans.",
            "short",
            each(series("forebay_state_plans")),
        ),
        Panel(
            "Certificate expires in",
            "Time until the first certificate of the server's chain (--tls-cert) expires. Empty without TLS.",
            "s",
            {INSTANCE: f"min by (instance) ({series('forebay_tls_certificate_expiry_timestamp_seconds')}) - time()"},
        ),
    ],
)

PROCESS = Row(
    "Process",
    [
        Panel(
            "File descriptors",
            "Share of the file descriptor limit in use by sockets and files.",
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

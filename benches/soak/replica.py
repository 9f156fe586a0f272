"""A server that can be killed, drained, restarted on the same port, and sampled (Linux)."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.benches.processes import process_cpu_seconds

START_SECONDS = 60.0
SCRAPE_SECONDS = 5.0
# Below the ephemeral ports, so that no client connection takes the port while its server is down.
PORTS = range(20_000, 30_000)
KEPT_LINES_MAX = 20
METRIC = re.compile(r"^forebay_(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
GAUGES = ("streams_active", "exchanges_active", "fits_active", "connections_active", "memory_reserved_bytes")


@dataclass(frozen=True)
class Sample:
    """Resources that a server holds at one moment."""

    rss_bytes: int
    descriptors: int
    threads: int
    tasks: int
    memory_reserved_bytes: int
    streams_active: int
    exchanges_active: int
    fits_active: int
    connections_active: int

    @property
    def is_idle(self) -> bool:
        """Whether no stream, exchange, fit or connection is open and no memory is reserved."""
        return not any(getattr(self, name) for name in GAUGES)


class Replica:
    """A server at a fixed address that ends with this process."""

    def __init__(self, name: str, program: Path, datasets: Mapping[str, str], state: Path, *flags: str) -> None:
        self.name = name
        port, metrics_port = free_port(), free_port()
        self.url = f"grpc://127.0.0.1:{port}"
        self.metrics_url = f"http://127.0.0.1:{metrics_port}"
        self._command = [str(program), "--listen", f"127.0.0.1:{port}", "--metrics-listen", f"127.0.0.1:{metrics_port}"]
        self._command += ["--exit-with-stdin", "--state", str(state), *flags]
        for dataset, url in datasets.items():
            self._command += ["--dataset", f"{dataset}={url}"]
        self.starts = 0
        self.levels: Counter[str] = Counter()
        """Number of log lines by level."""
        self.alarms: list[str] = []
        """Log lines that contain "panic" or have the level ERROR."""
        self.codes: dict[str, float] = {}
        """Calls by name and code, of processes that have ended."""
        self._codes_now: dict[str, float] = {}
        self._log_tail: deque[str] = deque(maxlen=KEPT_LINES_MAX)
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Process id, or None while the server is down."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> float:
        """Start the server; return the seconds until it listens."""
        began = time.monotonic()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            self._command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True, env=environment
        )
        ready = threading.Event()
        threading.Thread(target=self._read_log, args=(process, ready), name=f"log-{self.name}", daemon=True).start()
        if not ready.wait(START_SECONDS) or process.poll() is not None:
            process.kill()
            raise SystemExit("\n  ".join([f"replica {self.name} does not start; last log lines:", *self._log_tail]))
        self._process = process
        self.starts += 1
        return time.monotonic() - began

    def kill(self) -> int:
        """Send SIGKILL; return the exit code."""
        return self._end(signal.SIGKILL, 10)

    def drain(self, seconds: float) -> int:
        """Send SIGTERM and wait; return the exit code."""
        return self._end(signal.SIGTERM, seconds)

    def stop(self) -> None:
        """Kill the server if it is running."""
        if self.pid is not None:
            self.kill()

    def sample(self) -> Sample | None:
        """Return the resources held, or None while the server is down."""
        pid = self.pid
        if pid is None:
            return None
        try:
            with urllib.request.urlopen(f"{self.metrics_url}/metrics", timeout=SCRAPE_SECONDS) as answer:
                page = answer.read().decode()
            status = Path(f"/proc/{pid}/status").read_text()
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            return None
        plain: dict[str, float] = {}
        codes: Counter[str] = Counter()
        for name, labels, value in METRIC.findall(page):
            if not labels:
                plain[name] = float(value)
            elif name == "requests_total" and float(value):
                call, code = (re.search(rf'{key}="(\w+)"', labels) for key in ("call", "code"))
                if call and code:
                    codes[f"{call[1]} {code[1]}"] += int(float(value))
        with self._lock:
            self._codes_now = dict(codes)
        return Sample(
            rss_bytes=_number(status, "VmRSS") * 1024,
            # Includes the connection of this scrape, which may linger.
            descriptors=descriptors,
            threads=_number(status, "Threads"),
            tasks=int(plain["runtime_tasks"]),
            **{name: int(plain[name]) for name in GAUGES},
        )

    def answered(self) -> dict[str, int]:
        """Return calls by name and code, of all processes of this replica, as of the last sample."""
        with self._lock:
            both = Counter(self.codes)
            both.update(self._codes_now)
        return {code: int(count) for code, count in sorted(both.items())}

    def _end(self, how: signal.Signals, seconds: float) -> int:
        process = self._process
        assert process is not None
        self.sample()
        with self._lock:
            both = Counter(self.codes)
            both.update(self._codes_now)
            self.codes, self._codes_now = dict(both), {}
        process.send_signal(how)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.alarms.append(f"did not end within {seconds} s of {how.name}")
            return process.returncode

    def _read_log(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        """Read the log to its end, so that the server never blocks on the pipe."""
        assert process.stderr is not None
        for line in process.stderr:
            if "listening on grpc" in line:
                ready.set()
            level = _level(line)
            self.levels[level] += 1
            self._log_tail.append(line.strip()[:500])
            if (level == "ERROR" or "panic" in line) and len(self.alarms) < KEPT_LINES_MAX:
                self.alarms.append(line.strip()[:500])
        process.stderr.close()
        ready.set()


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, or 0 if it has ended."""
    try:
        return process_cpu_seconds(pid)
    except OSError:
        return 0.0


_used: set[int] = set()


def free_port() -> int:
    """Return a port that is not in use and was not returned before."""
    for port in PORTS:
        if port in _used:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _used.add(port)
        return port
    raise SystemExit("no free port")


def _number(status: str, key: str) -> int:
    found = re.search(rf"^{key}:\s+(\d+)", status, re.MULTILINE)
    assert found is not None
    return int(found[1])


def _level(line: str) -> str:
    try:
        return str(json.loads(line).get("level", "none"))
    except (ValueError, AttributeError):
        return "none"

"""A forebay-server on loopback for a bench, with figures from /proc and its metrics (Linux)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import pyarrow.flight as fl

from harness.benches.processes import stat_cpu_seconds
from harness.repository import ROOT

T = TypeVar("T")
DATASET = "criteo"
# By default gRPC channels of one process to one address share a connection.
OWN_CONNECTION: list[tuple[str, int | str]] = [("grpc.use_local_subchannel_pool", 1)]
START_SECONDS = 60.0
STOP_SECONDS = 10.0
# Channels of one process to the same address share a connection by default.
OWN_CONNECTION: list[tuple[str, int | str]] = [("grpc.use_local_subchannel_pool", 1)]
# Prefix of the names of the CPU pool's threads.
POOL_THREAD = "cpu-"
LISTENING = re.compile(r"listening on (grpc://\S+)")
METRICS = re.compile(r"metrics on (http://\S+)")
STAGE = re.compile(r'^forebay_stage_seconds_total\{stage="(\w+)"\} (\S+)$', re.MULTILINE)
# Written to /proc/PID/clear_refs, resets the peak of resident memory (VmHWM) to the current value; see proc(5).
RESET_PEAK = "5"


def server_program() -> Path:
    """Return the program to measure: FOREBAY_SERVER_BIN, or the release build of this checkout."""
    program = Path(os.environ.get("FOREBAY_SERVER_BIN") or ROOT / "target" / "release" / "forebay-server").absolute()
    if not os.access(program, os.X_OK):
        raise SystemExit(f"{program} does not exist: set FOREBAY_SERVER_BIN or run make build")
    if "debug" in program.parts:
        print(f"{program}: looks like a debug build, whose numbers are meaningless", file=sys.stderr)
    return program


class RunningServer:
    """A server that ends with this process; `begun` and `listened` are times of the monotonic clock."""

    def __init__(self, program: Path, datasets: Mapping[str, Path], state: Path, *flags: str) -> None:
        self._log: deque[str] = deque(maxlen=20)
        self._ready = threading.Event()
        self.url = self.metrics_url = ""
        self.listened = 0.0
        command = [str(program), "--listen", "127.0.0.1:0", "--exit-with-stdin"]
        command += ["--drain-seconds", "0", "--state", str(state)]
        self._has_metrics = "--metrics-listen" not in flags
        if self._has_metrics:
            command += ["--metrics-listen", "127.0.0.1:0"]
        for name, folder in datasets.items():
            command += ["--dataset", f"{name}={folder.absolute()}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
        self.begun = time.monotonic()
        self._process = subprocess.Popen(
            [*command, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._log_reader = threading.Thread(target=self._read_log, name="server-log", daemon=True)
        self._log_reader.start()
        if not self._ready.wait(START_SECONDS) or not self.url:
            self.stop()
            raise SystemExit("\n  ".join(["the server does not start; last log lines:", *self._log]))

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the server."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log_reader.join()

    def cpu_seconds(self) -> float:
        """Return CPU seconds used so far, user and system, by all threads."""
        return stat_cpu_seconds(self._proc("stat"))

    def peak_rss_bytes(self) -> int:
        """Return peak resident bytes since the start, or since the peak was reset."""
        return self._status("VmHWM") * 1024

    def _status(self, key: str) -> int:
        match = re.search(rf"^{key}:\s+(\d+)", self._proc("status"), re.MULTILINE)
        assert match is not None
        return int(match[1])

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text()

    def _read_log(self) -> None:
        """Read stderr to its end, so that the server never blocks on the pipe."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.append(line.rstrip())
            if not self._ready.is_set():
                if found := LISTENING.search(line):
                    self.listened, self.url = time.monotonic(), found[1]
                if found := METRICS.search(line):
                    self.metrics_url = found[1]
                if self.url and (self.metrics_url or not self._has_metrics):
                    self._ready.set()
        self._ready.set()


class Server(RunningServer):
    """A server of the criteo-shaped data with temporary state."""

    def __init__(self, program: Path, data: Path, *flags: str) -> None:
        self._state = tempfile.TemporaryDirectory(prefix="forebay-bench-")
        super().__init__(program, {DATASET: data}, Path(self._state.name), *flags)

    def stop(self) -> None:
        """Stop the server and remove its state."""
        super().stop()
        self._state.cleanup()

    def fit(self, plan: dict[str, Any]) -> str:
        """Fit the plan and return its id."""
        action = fl.Action("fit", json.dumps({"dataset": DATASET, "plan": plan}).encode())
        with fl.connect(self.url) as client:
            *_, last = client.do_action(action)
        return json.loads(last.body.to_pybytes())["result"]["plan_id"]

    def pool_cpu_seconds(self) -> float:
        """Return the CPU seconds of the CPU pool, which decodes, transforms, assembles, encodes and hashes."""
        tasks = Path(f"/proc/{self._process.pid}/task")
        # Threads of the pool live as long as the server; others may end during this loop.
        pool = [task for task in tasks.iterdir() if _read_if_exists(task / "comm").startswith(POOL_THREAD)]
        return sum(stat_cpu_seconds((task / "stat").read_text()) for task in pool)

    @property
    def state(self) -> Path:
        """State directory, which includes spilled data."""
        return Path(self._state.name)

    def reset_peak_rss(self) -> bool:
        """Reset the peak; return False if the kernel denies it, so that the peak covers the time since the start."""
        try:
            Path(f"/proc/{self._process.pid}/clear_refs").write_text(RESET_PEAK)
        except OSError:
            return False
        return True

    def stage_seconds(self) -> dict[str, float]:
        """Return seconds by stage from the metrics, including waits for a core; empty without metrics."""
        if not self.metrics_url:
            return {}
        with urllib.request.urlopen(self.metrics_url) as answer:
            return {stage: float(seconds) for stage, seconds in STAGE.findall(answer.read().decode())}


def _read_if_exists(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""

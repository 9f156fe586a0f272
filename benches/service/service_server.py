"""A forebay-server with a state of the caller's, when it listened, and what /proc says of it (Linux)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow.flight as fl

START_SECONDS = 60.0
STOP_SECONDS = 10.0
LISTENING = re.compile(r"listening on (grpc://\S+)")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Channels of one process to one address share a connection, unless they are told not to.
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


class Server:
    """A running server, which ends with this process; `begun` and `listened` are of the monotonic clock."""

    def __init__(self, program: Path, datasets: Mapping[str, Path], state: Path, *flags: str) -> None:
        self._log: deque[str] = deque(maxlen=20)
        self._ready = threading.Event()
        self.url = ""
        self.listened = 0.0
        command = [str(program), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--exit-with-stdin"]
        command += ["--drain-seconds", "0", "--state", str(state)]
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
            raise SystemExit("\n  ".join(["the server does not start; its last lines:", *self._log]))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log_reader.join()

    def connect(self) -> fl.FlightClient:
        """Return a client with a connection of its own."""
        return fl.FlightClient(self.url, generic_options=OWN_CONNECTION)

    def fit(self, dataset: str, plan: dict[str, Any]) -> dict[str, Any]:
        """Fit the plan; return the result, with its id and the whole plan."""
        action = fl.Action("fit", json.dumps({"dataset": dataset, "plan": plan}).encode())
        with self.connect() as client:
            *_, last = client.do_action(action)
        return json.loads(last.body.to_pybytes())["result"]

    def cpu_seconds(self) -> float:
        """CPU seconds of all threads so far, user and system."""
        # The fields after the name, which ends with the last parenthesis, begin with the third: see proc(5).
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[14 - 3]) + int(fields[15 - 3])) / TICKS_PER_SECOND

    def rss_bytes(self) -> int:
        """Bytes that are resident."""
        return self._status("VmRSS") * 1024

    def peak_rss_bytes(self) -> int:
        """Most bytes that were resident since the start."""
        return self._status("VmHWM") * 1024

    def threads(self) -> int:
        """Threads that there are."""
        return self._status("Threads")

    def descriptors(self) -> int:
        """Open file descriptors."""
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def _status(self, key: str) -> int:
        match = re.search(rf"^{key}:\s+(\d+)", self._proc("status"), re.MULTILINE)
        assert match is not None
        return int(match[1])

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text()

    def _read_log(self) -> None:
        """Read stderr to its end, so that the server never waits for us."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if not self.url and (found := LISTENING.search(line)):
                self.listened, self.url = time.monotonic(), found[1]
                self._ready.set()
            self._log.append(line.rstrip())
        self._ready.set()

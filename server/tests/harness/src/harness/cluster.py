"""A real Ballista cluster on loopback ports: forebay-scheduler and executors as processes."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.daemon import environment, poll
from harness.prepare import prepare_binary

START_SECONDS = 60
# Virtual cores of an executor.
VCORES = 2
# The line that an executor logs when it begins a task.
TASK = "Execute task"
# A lost executor is noticed within seconds instead of minutes.
QUICK = {
    "--executor-timeout-seconds": "15",
    "--expire-dead-executor-interval-seconds": "1",
    "--no-executors-grace-period-seconds": "15",
}


def program(name: str) -> str:
    """A program of the cluster, next to forebay-prepare; a missing one is an error, never a skip."""
    path = Path(prepare_binary()).with_name(name)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: `make test-ballista` builds it")
    return str(path)


def free_ports(count: int) -> list[int]:
    """Different ports on which no process listens."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Process:
    """A running program; keeps its log lines."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(self.process.stderr)

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def logs(self, pattern: str) -> bool:
        """Whether a line of its log matches."""
        return any(re.search(pattern, line) for line in list(self.lines))

    def kill(self) -> None:
        """End it without warning."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.process.stderr is not None:
            self.process.stderr.close()


class Cluster:
    """A scheduler and its executors."""

    def __init__(self, folder: Path, *, executors: int = 2, before: Sequence[str] = (), memory: str = "512MiB") -> None:
        (self.port,) = free_ports(1)
        self.url = f"ballista://127.0.0.1:{self.port}"
        # Few partitions: each is a task.
        self.flags = ("--engine", self.url, "--cpu-threads", "4")
        self.executors: list[Process] = []
        self._folder = folder
        quick = [argument for flag in QUICK.items() for argument in flag]
        ready = ["--min-ready-executors", str(executors)]
        self.scheduler = Process([program("forebay-scheduler"), "--bind-port", str(self.port), *quick, *ready])
        try:
            self._wait(lambda: self._get("/healthz"))
            for _ in range(executors):
                self.add_executor(*before, memory=memory)
            self._wait(lambda: self._get("/readyz"))
        except BaseException:
            self.stop()
            raise

    def add_executor(self, *before: str, memory: str = "512MiB") -> Process:
        """Start another executor; `before` are a program and arguments that run it."""
        port, grpc_port, health_port = free_ports(3)
        folder = self._folder / f"executor-{len(self.executors)}"
        flags = {
            "--scheduler-host": "127.0.0.1",
            "--scheduler-port": str(self.port),
            "--bind-port": str(port),
            "--bind-grpc-port": str(grpc_port),
            "--bind-health-port": str(health_port),
            "--work-dir": str(folder),
            "--vcores": str(VCORES),
            "--memory-pool-size": memory,
            "--executor-heartbeat-interval-seconds": "1",
        }
        arguments = [argument for flag in flags.items() for argument in flag]
        executor = Process([*before, program("forebay-executor"), *arguments])
        self.executors.append(executor)
        return executor

    def _get(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def _wait(self, look: Callable[[], bool]) -> None:
        found = poll(lambda: look() or self._ended(), seconds=START_SECONDS)
        assert found, self.log
        assert not self._ended(), self.log

    def _ended(self) -> bool:
        return any(one.process.poll() is not None for one in (self.scheduler, *self.executors))

    def run_tasks(self) -> bool:
        """Whether every executor has begun a task."""
        return all(one.logs(TASK) for one in self.executors)

    def wait_for_tasks_of(self, run: subprocess.Popen[str]) -> None:
        """Wait until every executor has run tasks, while the run goes on."""
        assert poll(lambda: self.run_tasks() or run.poll() is not None, seconds=60), self.log
        assert run.poll() is None, run.communicate()

    def shuffled(self) -> list[Path]:
        """Files that executors hold of jobs."""
        return sorted(path for path in self._folder.rglob("*") if path.is_file())

    @property
    def log(self) -> str:
        """The logs of all its programs."""
        return "\n".join(one.log for one in (self.scheduler, *self.executors))

    def stop(self) -> None:
        for one in (*self.executors, self.scheduler):
            one.kill()

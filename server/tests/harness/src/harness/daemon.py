"""A forebay-server started with exactly the given arguments, for tests of its output and exit."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import TypeVar

from harness.serving import server_binary

START_SECONDS = 60
LOOPBACK = ("--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")

T = TypeVar("T")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without FOREBAY_* variables, plus `extra`."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    return {**plain, **(extra or {})}


def run_to_end(
    *arguments: str, env: Mapping[str, str] | None = None, seconds: float = 10
) -> subprocess.CompletedProcess[str]:
    """Run the program with arguments that make it exit."""
    command = [server_binary(), *arguments]
    return subprocess.run(
        command, env=environment(env), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
    )


def poll(look: Callable[[], T], *, seconds: float = 10) -> T:
    """Call `look` until it returns a true value; returns the last value."""
    deadline = time.monotonic() + seconds
    while not (seen := look()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return seen


class Daemon:
    """A running server; keeps its log lines."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        command = [server_binary(), "--exit-with-stdin", *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment(env), stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1
        )
        self.lines: list[str] = []
        self._written: str | None = None
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()
        self.metrics_url = self.wait_for(r"metrics on (http://\S+)")
        self.urls = [m[1] for line in self.lines if (m := re.match(r"listening on (\S+)", line))]

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def wait_for(self, pattern: str) -> str:
        """The first group of the first line that matches."""

        def look() -> re.Match[str] | None:
            ended = self.process.poll() is not None
            found = next((m for line in list(self.lines) if (m := re.search(pattern, line))), None)
            assert found or not ended, "the server ended:\n" + "".join(self.lines)
            return found

        found = poll(look, seconds=START_SECONDS)
        assert found, f"no line {pattern!r}:\n" + "".join(self.lines)
        return found[1]

    @property
    def url(self) -> str:
        return self.urls[0]

    def get(self, path: str) -> tuple[int, str, str]:
        """Status, content type and body of a GET."""
        try:
            with urllib.request.urlopen(self.metrics_url.removesuffix("/metrics") + path, timeout=10) as answer:
                return answer.status, answer.headers.get("Content-Type", ""), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("Content-Type", ""), error.read().decode()

    def drains(self) -> bool:
        """Whether the server starts to reject new streams."""
        return poll(lambda: self.get("/readyz")[0] == 503)

    def end(self, *, seconds: float = 10) -> int:
        """Wait for the exit code."""
        return self.process.wait(seconds)

    def stop(self) -> str:
        """Kill it if it still runs; returns what it wrote to stdout."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self._written is None:
            assert self.process.stdout is not None
            self._written = self.process.stdout.read()
            for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
                assert stream is not None
                stream.close()
        return self._written

"""Runs a forebay-server on free ports for the duration of a block."""

import re
import subprocess
import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from forebay._client.server_program import server_program

FREE_PORT = "127.0.0.1:0"

_READY = re.compile(r"listening on (?P<url>grpc\S*://\S+)")
_METRICS = re.compile(r"metrics on (?P<url>http://\S+)")
_STOP_SECONDS_MAX = 10
_LINES_KEPT = 100


@dataclass(frozen=True)
class Server:
    """A running server: its addresses, and what it logs."""

    url: str
    metrics_url: str
    pid: int
    log: deque[str] = field(repr=False)
    """Its last lines."""


def server_binary(bin_dir: Path | None) -> Path:
    """Return the program in a folder; without one, the program that `forebay.local` starts."""
    return Path(server_program()) if bin_dir is None else bin_dir / "forebay-server"


@contextmanager
def running_server(binary: Path, datasets: dict[str, Path], state: Path, *flags: str) -> Generator[Server, None, None]:
    """Start `binary` on free loopback ports, wait until it is ready, and stop it at the end of the block."""
    command = [str(binary), "--listen", FREE_PORT, "--metrics-listen", FREE_PORT, "--state", str(state), *flags]
    for name, folder in datasets.items():
        command += ["--dataset", f"{name}={folder}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        log = deque[str](maxlen=_LINES_KEPT)
        url, metrics_url = _ready(process.stderr, log)
        yield Server(url, metrics_url, process.pid, log)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(messages: IO[str], log: deque[str]) -> tuple[str, str]:
    """Read the server's messages up to both addresses, and the others in a thread."""
    url = metrics_url = None
    for line in messages:
        log.append(line)
        if found := _READY.search(line):
            url = found["url"]
        if found := _METRICS.search(line):
            metrics_url = found["url"]
        if url and metrics_url:
            # A full pipe would block the server.
            threading.Thread(target=log.extend, args=[messages], name="server-messages", daemon=True).start()
            return url, metrics_url
    raise SystemExit("forebay-server did not start:\n" + "".join(log))

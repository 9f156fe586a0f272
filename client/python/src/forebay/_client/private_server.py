"""A private server for this process, for reading Parquet files without a running server.

The server is a child process that exits when its standard input closes. This process holds the other end of the pipe,
so the server ends with it in any case, including SIGKILL. Makes no Flight calls.
"""

from __future__ import annotations

import atexit
import errno
import os
import re
import shutil
import subprocess
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from .server_program import server_program, system

START_SECONDS = 60.0
STOP_SECONDS = 5.0
# A process that ends closes its sockets before its parent learns of the end.
END_SECONDS = 0.5
# The path in sockaddr_un has 108 bytes on Linux and 104 on macOS, including the terminating zero.
SOCKET_PATH_MAX = 100
LOG_LINES_KEPT = 200
LOG_LINES_SHOWN = 20
READY = re.compile(r"listening on (grpc\S*://.+?)\s*$")
# A list of files or a table, with its version.
FORM = re.compile(r"(@|delta\+|iceberg\+)(.+?)(@(?:version|snapshot)=\d+)?", re.DOTALL)
# A file or folder of a split, by its name.
SPLIT = re.compile(r"(?P<split>train|test|validation|valid|val|dev)(?:[-_.]|$)", re.IGNORECASE)
SPLIT_FILES_MAX = 10_000

Location = str | os.PathLike[str]


def local(datasets: Mapping[str, Location] | None = None, /, **named: Location) -> str:
    """Start a private ``forebay-server`` for the datasets, NAME=path or URL, and return its URL.

    The server listens on a Unix socket (a loopback port if the platform has none), keeps its state in a temporary
    directory, which a killed process does not remove, and ends with this process. Calls with the same datasets return
    the same server. The program is ``FOREBAY_SERVER_BIN`` if set, else the one that was installed with this package,
    else ``forebay-server`` from the PATH, else the release build of the checkout that this package was installed from
    in editable mode. A path without files or directories raises FileNotFoundError.
    """
    roots = {name: _location(name, root) for name, root in {**(datasets or {}), **named}.items()}
    if not roots:
        raise TypeError('local requires a dataset: fb.local(flights="data/flights")')
    key = tuple(sorted(roots.items()))
    with _lock:
        server = _servers.get(key)
        if server is None or not server.alive:
            if server is not None:
                server.stop()
            server = _servers[key] = PrivateServer(server_program(), roots)
        return server.url


class PrivateServer:
    """A running ``forebay-server`` that belongs to this process."""

    def __init__(self, program: str, roots: Mapping[str, str]) -> None:
        self._owner = os.getpid()
        self._folder = tempfile.mkdtemp(prefix="forebay-")
        self._log: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        self._ready = threading.Event()
        self._url: str | None = None
        command = [program, "--listen", _listen(self._folder), "--metrics-listen", "127.0.0.1:0"]
        command += [
            "--state",
            os.path.join(self._folder, "state"),
            "--exit-with-stdin",
            "--drain-seconds",
            "0",
        ]
        for name, root in roots.items():
            command += ["--dataset", f"{name}={root}"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_environment(),
                # In a separate process group: a Ctrl-C in a terminal or notebook interrupts this process only.
                start_new_session=True,
            )
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            foreign = f"it is not a program for {system()}: " if error.errno == errno.ENOEXEC else ""
            raise RuntimeError(f"{program} does not start: {foreign}{error}") from error
        self._drain = threading.Thread(target=self._read_log, name="forebay-server-log", daemon=True)
        self._drain.start()
        in_time = self._ready.wait(START_SECONDS)
        if self._url is None:
            self.stop()
            problem = "did not start" if in_time else f"was not ready within {START_SECONDS:.0f} s"
            raise RuntimeError(f"{program} {problem}.\n{self.exit_report()}")
        self.url: str = self._url

    @property
    def alive(self) -> bool:
        """Whether the server is running."""
        return self._process.poll() is None

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end of the server; return whether it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def exit_report(self) -> str:
        """Return how the server ended, with the last lines of its log."""
        code = self._process.poll()
        ended = (
            "the private forebay-server is running" if code is None else f"the private forebay-server ended with {code}"
        )
        return "\n  ".join([f"{ended}; its last lines:", *list(self._log)[-LOG_LINES_SHOWN:]])

    def stop(self) -> None:
        """Stop the server and remove its state; does nothing in a forked child of the owner."""
        if os.getpid() != self._owner:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._drain.join(STOP_SECONDS)
        if self._process.stderr is not None and not self._drain.is_alive():
            self._process.stderr.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read_log(self) -> None:
        """Read stderr to its end, so that the server never blocks on a full pipe."""
        assert self._process.stderr is not None
        for raw in self._process.stderr:
            line = raw.decode(errors="replace").rstrip()
            self._log.append(line)
            match = READY.search(line)
            if match and self._url is None:
                self._url = match[1]
                self._ready.set()
        self._ready.set()


def exit_report(url: str) -> str | None:
    """Return how the private server at this URL ended; None if there is none or it is running."""
    for server in list(_servers.values()):
        if server.url == url and server.ends_within(END_SECONDS):
            return server.exit_report()
    return None


_servers: dict[tuple[tuple[str, str], ...], PrivateServer] = {}
_lock = threading.Lock()


@atexit.register
def _stop_all() -> None:
    for server in _servers.values():
        server.stop()


def _location(name: str, root: Location) -> str:
    """Return what the server reads, with an absolute path: a path, URL or glob, or one after ``@`` or ``delta+``."""
    text = os.fspath(root)
    form = FORM.fullmatch(text) if isinstance(root, str) else None
    prefix, text, version = form.groups(default="") if form else ("", text, "")
    if "://" in text:
        return prefix + text + version
    path = Path(text).expanduser().absolute()
    if not path.exists() and not any(sign in str(path) for sign in "*?["):
        raise FileNotFoundError(f"dataset {name!r}: there is no file or directory {path}")
    if not prefix:
        _warn_of_splits(name, path)
    return f"{prefix}{path}{version}"


def _warn_of_splits(name: str, path: Path) -> None:
    """Warn if a directory has the files of several splits, as a repository of the Hugging Face Hub has them."""
    found: dict[str, Path] = {}
    if path.is_dir():
        files = islice(path.rglob("*.parquet"), SPLIT_FILES_MAX)
        for file in files:
            for part in file.relative_to(path).parts:
                split = SPLIT.match(part)
                if split is not None:
                    found.setdefault(split["split"].lower(), path / part if part != file.name else file)
    if len(found) > 1:
        first, example = sorted(found.items())[0]
        pattern = example / "*.parquet" if example.is_dir() else example.with_name(f"{first}*.parquet")
        warnings.warn(
            f"dataset {name!r}: {path} has files of the splits {' and '.join(sorted(found))}, which one dataset mixes: "
            f"name each one, such as fb.local({first}={str(pattern)!r}, …)",
            stacklevel=4,
        )


def _listen(folder: str) -> str:
    path = os.path.join(folder, "flight.sock")
    return f"unix:{path}" if os.name == "posix" and len(os.fsencode(path)) <= SOCKET_PATH_MAX else "127.0.0.1:0"


def _environment() -> dict[str, str]:
    """Return the environment without server settings, which apply to other servers."""
    allowed = ("FOREBAY_SERVER_BIN",)
    return {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_") or name in allowed}

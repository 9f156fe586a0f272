"""The parent of the processes: passes each connection to an idle one, and replaces those that die or hang.

It never imports the functions and never reads a connection, so a function cannot stop it. A connection whose server is
gone while a function runs is closed after a grace period by killing the process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from . import frames
from .worker import DONE

# Accepted connections that wait for a process; further ones wait in the kernel's queue.
WAITING_MAX = 256
# Time in which a function may end after its server has ended, before its process is killed.
GRACE_SECONDS = 2.0
# A process that cannot start is started again after this time.
RESTART_SECONDS = 1.0
# Reads no message, so it may be called often.
TICK_MS = 100

_GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


@dataclass
class _Process:
    """A process of the pool."""

    child: subprocess.Popen[bytes]
    control: socket.socket
    ready: bool = False
    connection: socket.socket | None = None
    """The connection that it answers."""
    gone_since: float | None = None
    """When the server of that connection was found to be gone."""


@dataclass
class Pool:
    """Processes that serve functions on a Unix socket."""

    path: Path
    functions: Sequence[str]
    processes: int
    _members: list[_Process] = field(default_factory=list[_Process])
    _waiting: deque[socket.socket] = field(default_factory=deque[socket.socket])
    _restart_at: float = 0.0
    _stopped: bool = False

    def serve(self) -> int:
        """Serve until SIGTERM or SIGINT; returns the exit code."""
        listener = _listen(self.path)
        identity = os.stat(self.path).st_ino
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        try:
            return self._loop(listener)
        finally:
            listener.close()
            for member in self._members:
                member.child.kill()
                member.child.wait()
            # Another pool may have replaced the socket.
            with contextlib.suppress(FileNotFoundError):
                if os.stat(self.path).st_ino == identity:
                    self.path.unlink()

    def _loop(self, listener: socket.socket) -> int:
        announced = False
        while not self._stopped:
            self._replace()
            readable = self._poll(listener)
            for member in list(self._members):
                if member.control.fileno() in readable and not self._read(member) and not announced:
                    # Not one process has been able to load the functions.
                    return 1
            if not announced and any(member.ready for member in self._members):
                announced = True
                names = ", ".join(self.functions)
                print(f"forebay.udf: serving {names} on unix:{self.path}", file=sys.stderr, flush=True)
            if listener.fileno() in readable:
                self._accept(listener)
            self._assign()
            self._kill_abandoned()
        return 0

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._stopped = True

    def _replace(self) -> None:
        """Start the processes that are missing."""
        if time.monotonic() < self._restart_at:
            return
        while len(self._members) < self.processes:
            parent, child = socket.socketpair()
            with child:
                command = [sys.executable, "-m", "forebay.udf.worker"]
                arguments = [str(child.fileno()), str(self.processes), *self.functions]
                started = subprocess.Popen([*command, *arguments], pass_fds=[child.fileno()], stdin=subprocess.DEVNULL)
            self._members.append(_Process(started, parent))

    def _poll(self, listener: socket.socket) -> set[int]:
        """Wait for an event; return the descriptors to read. Notes the servers that are gone."""
        poll = select.poll()
        if len(self._waiting) < WAITING_MAX:
            poll.register(listener, select.POLLIN)
        served: dict[int, _Process] = {}
        for member in self._members:
            poll.register(member.control, select.POLLIN)
            if member.connection is not None and member.gone_since is None:
                served[member.connection.fileno()] = member
                poll.register(member.connection, getattr(select, "POLLRDHUP", 0))
        readable: set[int] = set()
        for descriptor, events in poll.poll(TICK_MS):
            if descriptor in served:
                if events & _GONE:
                    served[descriptor].gone_since = time.monotonic()
            else:
                readable.add(descriptor)
        return readable

    def _read(self, member: _Process) -> bool:
        """Read a message of a process. False if it is dead."""
        try:
            message = member.control.recv(1)
        except ConnectionError:
            message = b""
        if not message:
            self._bury(member)
            return False
        member.ready = True
        if message == DONE and member.connection is not None:
            member.connection.close()
            member.connection, member.gone_since = None, None
        return True

    def _bury(self, member: _Process) -> None:
        """Remove a dead process, and answer its connection."""
        self._members.remove(member)
        member.control.close()
        code = member.child.wait()
        if not member.ready:
            self._restart_at = time.monotonic() + RESTART_SECONDS
            self._refuse("the process of the functions cannot start: see the output of python -m forebay.udf")
        if member.connection is not None:
            _answer(member.connection, f"the process of the function died ({_described(code)})")

    def _refuse(self, message: str) -> None:
        """Answer the connections that wait, if no process can take them."""
        if any(member.ready for member in self._members):
            return
        while self._waiting:
            _answer(self._waiting.popleft(), message)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            connection, _ = listener.accept()
            connection.setblocking(True)
            self._waiting.append(connection)

    def _assign(self) -> None:
        """Pass waiting connections to idle processes."""
        for member in self._members:
            if not self._waiting:
                return
            if member.ready and member.connection is None:
                connection = self._waiting.popleft()
                # One that died meanwhile is buried, and its connection answered, when its end is read.
                member.connection = connection
                with contextlib.suppress(BrokenPipeError, ConnectionError):
                    socket.send_fds(member.control, [b"c"], [connection.fileno()])

    def _kill_abandoned(self) -> None:
        for member in self._members:
            if member.gone_since is not None and time.monotonic() - member.gone_since > GRACE_SECONDS:
                member.child.kill()


def _listen(path: Path) -> socket.socket:
    """Listen on a path; replace a socket that a dead pool left behind."""
    listener = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError):
        if path.is_socket() and not _is_served(path):
            path.unlink()
    try:
        listener.bind(str(path))
    except OSError as failure:
        raise SystemExit(f"forebay.udf: cannot listen on unix:{path}: {failure}") from None
    # The functions run with this user's rights: others must not call them.
    path.chmod(0o600)
    listener.listen(WAITING_MAX)
    listener.setblocking(False)
    return listener


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionError:
            return False
        return True


def _answer(connection: socket.socket, message: str) -> None:
    with connection, contextlib.suppress(OSError):
        frames.send(connection, frames.error("crashed", message))


def _described(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"

"""Forked processes: idle connections are dropped before a fork, and each process makes new ones when it needs them.

gRPC does not support forks: a child inherits its locks, but not its threads, and hangs in its first call. Once a
process has no channel, however, gRPC has shut down, and a child can start it. A fork therefore drops every channel that
no stream uses. If one stays in use, all calls of the child raise `ForkedInUse`. The first call of a child is watched,
because other users of gRPC in the process are not known.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

from forebay.errors import ForkedInUse

# Seconds for gRPC's threads to end after the last channel, which takes some milliseconds.
SHUTDOWN_SECONDS = 2.0
# Seconds for other native threads to pause; those of a computation may not.
SETTLE_SECONDS = 0.5
SETTLED_POLLS = 5
# Seconds for other threads to finish their imports, and how often calls that begin meanwhile are waited for.
IMPORT_SECONDS = 10.0
IMPORT_ROUNDS = 3
POLL_SECONDS = 0.001
TASKS = Path("/proc/self/task")
_bootstrap: Any = getattr(importlib, "_bootstrap", None)
# Names of gRPC's threads, cut to 15 characters.
# `grpc_shutdown` ends the others, with a lock.
GRPC_THREADS = ("event_engine", "grpc_global_tim", "grpc_shutdown", "lifeguard")
# Seconds for the first call of a child to end, in addition to its deadline, which does not end a call that hangs.
FIRST_CALL_SECONDS = 5.0


class Droppable(Protocol):
    """A connection that can connect again."""

    def drop_if_idle(self) -> None:
        """Drop the channel unless a stream uses it."""
        ...


class Closable(Protocol):
    """A stream that can be opened again."""

    def close(self) -> None:
        """End the stream."""
        ...


def register(connection: Droppable) -> None:
    """Drop this connection's channel before each fork."""
    _connections[next(_numbers)] = connection


def register_unused(stream: Closable) -> None:
    """Close this stream, which no loop reads yet, before each fork."""
    _unused[next(_numbers)] = stream


def note_channel(channel: object) -> None:
    """Record a channel that is open, or is being opened, until the object is deleted."""
    _channels[next(_numbers)] = channel


class Opening:
    """A channel that is being opened."""


def refuse_if_broken() -> None:
    """Raise if calls of this process would hang."""
    if _State.is_broken:
        raise ForkedInUse


def watch_first_call(call: Callable[[], object], deadline_seconds: float) -> None:
    """Make a call with a deadline if this process is a forked child that has made none; raise if it hangs.

    Its result and its errors are ignored: either shows that calls end.
    """
    if not _State.is_unproven:
        return

    def make() -> None:
        with contextlib.suppress(Exception):
            call()

    thread = threading.Thread(target=make, name="forebay-first-call", daemon=True)
    thread.start()
    thread.join(deadline_seconds + FIRST_CALL_SECONDS)
    _State.is_unproven = False
    _State.is_broken = thread.is_alive()
    refuse_if_broken()


def keeps(*owned: object) -> bool:
    """Return whether calls of this process would hang; if so, keep these objects, as their deletion would hang too."""
    if _State.is_broken:
        _kept.extend(owned)
    return _State.is_broken


class _State:
    is_in_use = False
    is_broken = False
    is_unproven = False
    """Whether this is a forked child that has not made a call."""


_numbers = itertools.count()
_kept: list[object] = []
_connections: weakref.WeakValueDictionary[int, Droppable] = weakref.WeakValueDictionary()
_unused: weakref.WeakValueDictionary[int, Closable] = weakref.WeakValueDictionary()
_channels: weakref.WeakValueDictionary[int, object] = weakref.WeakValueDictionary()
_threads_of_others: set[str] = set()
"""The threads of gRPC that did not end with pyarrow's: those of the package grpc."""


def _before() -> None:
    for _ in range(IMPORT_ROUNDS):
        _await_imports()
        _drop_idle()
        _State.is_in_use = _is_in_use()
        if not _is_importing():
            return


def _await_imports() -> None:
    """Wait until no other thread imports a module, such as pandas, which pyarrow imports when it needs it.

    A child inherits the lock of such a module, and waits for it in its own import.
    """
    deadline = time.monotonic() + IMPORT_SECONDS
    while _is_importing() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _is_importing() -> bool:
    """Return whether another thread imports a module."""
    locks = cast("dict[str, Callable[[], object]]", getattr(_bootstrap, "_module_locks", {}))
    # A copy in one step, as other threads add to it.
    owners = (getattr(reference(), "owner", None) for reference in list(locks.values()))
    return any(owner is not None and owner != threading.get_ident() for owner in owners)


def _drop_idle() -> None:
    # One step lists the references, so other threads cannot interfere.
    for reference in _unused.valuerefs():
        unused = reference()
        if unused is not None:
            unused.close()
    for reference in _connections.valuerefs():
        connection = reference()
        if connection is not None:
            connection.drop_if_idle()


def _is_in_use() -> bool:
    if _has_channels():
        # Cycles of objects that no one uses may keep some.
        gc.collect()
    if _has_channels() or not _await_shutdown():
        return True
    _settle()
    return False


def _await_shutdown() -> bool:
    """Wait until gRPC's threads have ended; return whether a child can start it."""
    deadline = time.monotonic() + SHUTDOWN_SECONDS
    while running := _grpc_threads() - _threads_of_others:
        if time.monotonic() > deadline:
            # Other users of pyarrow.flight share its gRPC. The package grpc has a separate one, with threads of the
            # same names: what did not end is assumed to be its, and the next fork does not wait for it.
            if "grpc" not in sys.modules:
                return False
            _threads_of_others.update(running)
        time.sleep(POLL_SECONDS)
    return True


def _settle() -> None:
    """Wait until no native thread runs: one that is ending may hold a lock, which the child would inherit."""
    if not TASKS.is_dir():
        return
    deadline = time.monotonic() + SETTLE_SECONDS
    idle_polls = 0
    while idle_polls < SETTLED_POLLS and time.monotonic() < deadline:
        idle_polls = 0 if _has_running_threads() else idle_polls + 1
        time.sleep(POLL_SECONDS)


def _has_running_threads() -> bool:
    own = {str(thread.native_id) for thread in threading.enumerate()}
    try:
        # The state follows the name, which is in parentheses.
        return any((task / "stat").read_text().rpartition(")")[2].split()[0] == "R" for task in _others(own))
    except OSError:
        return True


def _others(own: set[str]) -> list[Path]:
    return [task for task in TASKS.iterdir() if task.name not in own]


def _has_channels() -> bool:
    return any(reference() is not None for reference in _channels.valuerefs())


def _grpc_threads() -> set[str]:
    if not TASKS.is_dir():
        return set()
    return {task.name for task in TASKS.iterdir() if _thread_name(task) in GRPC_THREADS}


def _thread_name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:
        # It has just ended.
        return ""


def _in_child() -> None:
    # Another thread may have opened a channel after the check.
    _State.is_broken = _State.is_broken or _State.is_in_use or _has_channels()
    _State.is_unproven = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)

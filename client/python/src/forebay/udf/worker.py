"""One process of the pool: loads the functions, and answers one connection at a time.

The parent passes the connections over a control socket, and kills a process whose function does not return. Started by
`pool`; ends when the control socket is closed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa

from . import frames
from .declared import Function, ResultError

READY, DONE = b"r", b"d"
# A server that stops in the middle of a frame does not occupy the process for longer.
TRANSFER_SECONDS = 30.0


class _Running:
    """Whether a function is running."""

    now = False


def load(names: Sequence[str]) -> dict[str, Function]:
    """Import the functions named ``module:function``; raise ImportError with the reason if one is not declared."""
    functions: dict[str, Function] = {}
    for name in names:
        module_name, _, attribute = name.partition(":")
        if not module_name or not attribute:
            raise ImportError(f"{name!r} does not name a function: write module:function")
        found = getattr(importlib.import_module(module_name), attribute, None)
        if not isinstance(found, Function):
            raise ImportError(f"{name} is not a function declared with @forebay.udf.function(…)")
        if functions.setdefault(attribute, found) is not found:
            raise ImportError(f"two functions are named {attribute!r}: serve one of them in another process")
    return functions


def main(arguments: Sequence[str]) -> None:
    """Serve connections. The arguments are the control socket's descriptor, the size of the pool, and the functions."""
    control = socket.socket(fileno=int(arguments[0]))
    processes, names = int(arguments[1]), arguments[2:]
    try:
        functions = load(names)
        digests = {name: function.digest() for name, function in functions.items()}
    except Exception as failure:
        traceback.print_exc()
        print(f"forebay.udf: cannot load {', '.join(names)}: {failure}", file=sys.stderr, flush=True)
        sys.exit(1)
    sys.addaudithook(_refuse_forks)
    control.send(READY)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message or not descriptors:
            return
        with socket.socket(fileno=descriptors[0]) as connection:
            connection.settimeout(TRANSFER_SECONDS)
            # The server may be gone; the parent then expects this process to continue.
            with contextlib.suppress(OSError, frames.FrameError):
                _answer(connection, functions, digests, processes)
        control.send(DONE)


def _answer(connection: socket.socket, functions: dict[str, Function], digests: dict[str, str], processes: int) -> None:
    head, body = frames.receive(connection)
    name = str(head.get("describe") or head.get("call") or "")
    function = functions.get(name)
    if function is None:
        served = ", ".join(functions)
        frames.send(connection, frames.error("unknown", f"no function {name!r} is served here, only {served}"))
        return
    if "describe" in head:
        described = {"digest": digests[name], "arguments": len(function.arguments), "processes": processes}
        frames.send(connection, {"function": described}, memoryview(function.schema().serialize()))
        return
    if head.get("digest") != digests[name]:
        frames.send(connection, frames.error("digest", f"its digest is {digests[name]}"))
        return
    result, answer = _call(function, body)
    frames.send(connection, answer, result)


def _call(function: Function, body: memoryview) -> tuple[memoryview, frames.Json]:
    """Call a function; the answer is an error with its traceback if it raises."""
    owner = os.getpid()
    started = time.perf_counter()
    try:
        batch = pa.ipc.open_stream(pa.py_buffer(body)).read_next_batch()
        _Running.now = True
        try:
            values = function.apply(batch)
        finally:
            _Running.now = False
    except ResultError as failure:
        return memoryview(b""), frames.error("result", str(failure))
    except BaseException:
        _end_if_forked(owner)
        return memoryview(b""), frames.error("raised", _traceback(function))
    _end_if_forked(owner)
    sink = pa.BufferOutputStream()
    answer = pa.record_batch([values], names=["result"])
    with pa.ipc.new_stream(sink, answer.schema) as writer:
        cast(Any, writer).write_batch(answer)
    return memoryview(sink.getvalue()), {"ok": {"seconds": time.perf_counter() - started}}


def _traceback(function: Function) -> str:
    """Return the traceback of the current exception, from the function on."""
    kind, failure, frames_of = sys.exc_info()
    while frames_of is not None and frames_of.tb_frame.f_code is not getattr(function.body, "__code__", None):
        frames_of = frames_of.tb_next
    return "".join(traceback.format_exception(kind, failure, frames_of)).strip()


def _refuse_forks(event: str, _arguments: tuple[Any, ...]) -> None:
    """Raise within the function that forks: a copy of this process would answer the same connection."""
    if _Running.now and event in ("os.fork", "os.forkpty"):
        raise RuntimeError("a function must not fork: start threads, or more processes with --processes")


def _end_if_forked(owner: int) -> None:
    """End a copy of the process that an extension forked."""
    if os.getpid() != owner:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

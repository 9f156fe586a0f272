"""Reading a stream through the native module `forebay._native`, over TCP with or without TLS.

The module copies each batch once, into its final memory, for less CPU time than pyarrow's client. It is built by
`make build`; a package without it reads over Flight. `FOREBAY_NATIVE=off` disables it. The batches, headers and
errors are those of Flight.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa

from forebay.errors import BrokenStream, Cancelled, Unavailable, of_status

from .message_input import BatchReader, Chunk, Message, MessageInput

if TYPE_CHECKING:
    from forebay import _native

    from .connection import Connection
else:
    try:
        from forebay import _native
    except ImportError:
        _native = None

_log = logging.getLogger(__name__)

PLAIN, ENCRYPTED = ("grpc", "grpc+tcp"), "grpc+tls"
# gRPC's clients connect through the proxy that one of these names; the module does not.
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


def is_built() -> bool:
    """Whether the package has the module."""
    return "forebay._native" in sys.modules


def open_native(connection: Connection, ticket: bytes) -> NativeReader | None:
    """Begin a call through the module, without waiting; None if it is missing, disabled, or not for this connection."""
    if not is_built() or os.environ.get("FOREBAY_NATIVE", "").strip().lower() == "off":
        return None
    if any(os.environ.get(name) for name in PROXIES):
        return None
    parts = urlsplit(connection.url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or not port or parts.scheme not in (*PLAIN, ENCRYPTED):
        return None
    tls = None
    if parts.scheme == ENCRYPTED:
        options = connection.tls()
        authorities, chain, key = (options.get(name) for name in ("tls_root_certs", "cert_chain", "private_key"))
        if authorities is None:
            return None
        tls = authorities, None if chain is None or key is None else (chain, key)
    headers = [(name.decode(), value.decode()) for name, value in connection.headers]
    try:
        return NativeReader(_native.DoGet(host, port, tls, headers, ticket))
    except (_native.OptionsError, _native.UnreachedError) as error:
        _log.info("%s: reading over Flight: %s", connection.url, error)
        return None


class NativeReader:
    """The batches of one call. `close` may be called from another thread."""

    transport = "native"

    def __init__(self, call: _native.DoGet) -> None:
        self._process = os.getpid()
        self._call = call
        self._input = _CallInput(call)
        self._batches = BatchReader(self._input)
        _readers[next(_numbers)] = self

    @property
    def is_final(self) -> bool:
        """Whether an error would be the same over Flight: that of the server, or of a connection that broke."""
        return self._input.is_final

    def read(self) -> Chunk:
        """Wait for the next batch without holding the GIL; raise StopIteration at the end."""
        if os.getpid() != self._process:
            raise BrokenStream("the connection belongs to the process that this one was forked from")
        data = self._batches.next()
        return Chunk(data, pa.py_buffer(self._input.header), self._input.memory)

    def close(self) -> None:
        """Cancel the call, which also ends a pending read. Batches that were read stay valid."""
        self._call.close()

    def drop(self) -> None:
        """Close this process's copy of the connection: a forked child must not keep its parent's open."""
        number = self._call.socket
        if number is not None:
            with contextlib.suppress(OSError):
                os.close(number)


class _CallInput(MessageInput):
    """The messages of a call. Those without Arrow metadata have no batch, and are skipped."""

    def __init__(self, call: _native.DoGet) -> None:
        super().__init__("the server")
        self._call = call
        self.is_final = False
        self.memory: _native.BodyBuffer | None = None
        """The memory of the latest body."""

    def receive(self) -> Message | None:
        """Wait for the next message; None at the end."""
        handles_signals = threading.current_thread() is threading.main_thread()
        try:
            while (parts := self._call.read(handles_signals)) is not None:
                metadata, header, body = parts
                if metadata:
                    self.memory = None if body is None else body.buffer
                    lent = None if body is None else pa.foreign_buffer(body.address, body.size, base=body)
                    return Message(metadata, header, lent)
        except _native.StatusError as error:
            self.is_final = True
            code, message = error.args
            raise of_status(code, message) from error
        except _native.LostError as error:
            self.is_final = True
            raise Unavailable(f"the connection broke: {error}") from error
        except _native.UnreachedError as error:
            raise Unavailable(f"no connection: {error}") from error
        except _native.MalformedError as error:
            raise BrokenStream(f"cannot read a message: {error}") from error
        except _native.ClosedError as error:
            raise Cancelled("the stream is closed") from error
        return None


_numbers = itertools.count()
_readers: weakref.WeakValueDictionary[int, NativeReader] = weakref.WeakValueDictionary()


def _in_child() -> None:
    # The server must notice if the parent dies, also while this process runs.
    for reference in _readers.valuerefs():
        inherited = reference()
        if inherited is not None:
            inherited.drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

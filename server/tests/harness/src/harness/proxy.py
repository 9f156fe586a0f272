"""A TCP proxy on loopback in front of a server, which cuts connections at chosen bytes or refuses them."""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import threading
import time

# SO_LINGER with no time: closing sends a reset, as a host that dies or a balancer that gives up does.
RESET = struct.pack("ii", 1, 0)
PIECE_BYTES = 4096
HEARD_BYTES_MAX = 1 << 20


class Proxy:
    """Forwards bytes. Each connection takes one of `cuts`: server bytes before it is cut, or None for never.

    When the cuts are used up, connections run on uncut. `sever` cuts all that run; `refuse` closes the port.
    `bytes_per_second` limits the rate from the server.
    """

    def __init__(
        self,
        url: str,
        *cuts: int | None,
        reset: bool = True,
        corrupt: bool = False,
        bytes_per_second: float = math.inf,
    ) -> None:
        host, _, port = url.removeprefix("grpc://").rpartition(":")
        self._target = (host, int(port))
        self._cuts = list(cuts)
        self._reset = reset
        self._corrupt = corrupt
        self._bytes_per_second = bytes_per_second
        self.connections = 0
        self.heard = bytearray()
        """What went through, both ways, up to `HEARD_BYTES_MAX`."""
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *cuts: int | None) -> None:
        """Cut the next connections so."""
        with self._lock:
            self._cuts = list(cuts)

    def refuse(self) -> None:
        """Take no new connections, and cut those that run."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.sever()

    def sever(self) -> None:
        """Cut all connections."""
        with self._lock:
            running = list(self._open)
        for connection in running:
            self._end(connection)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()

    def _accept(self) -> None:
        while True:
            try:
                inner, _ = self._listener.accept()
            except OSError:
                return
            outer = socket.create_connection(self._target)
            with self._lock:
                self.connections += 1
                cut = self._cuts.pop(0) if self._cuts else None
                self._open |= {inner, outer}
            threading.Thread(target=self._pump, args=(inner, outer, None, math.inf), daemon=True).start()
            threading.Thread(target=self._pump, args=(outer, inner, cut, self._bytes_per_second), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, left: int | None, rate: float) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                if len(self.heard) < HEARD_BYTES_MAX:
                    self.heard += piece
                if left is not None and len(piece) > left:
                    sink.sendall(piece[:left])
                    if not self._corrupt:
                        break
                    # One byte of the stream turned over, and no more harm done.
                    sink.sendall(bytes([piece[left] ^ 0x40]) + piece[left + 1 :])
                    left = None
                    continue
                sink.sendall(piece)
                time.sleep(len(piece) / rate)
                left = None if left is None else left - len(piece)
        self._end(source)
        self._end(sink)

    def _end(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
        with contextlib.suppress(OSError):
            if self._reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

"""Everything at once that a hostile principal, and clients without a credential, can do to a server.

Each attack runs in a thread until the event `stop` is set, and ignores the answers. As a program, with the URLs
of a server and of its metrics, it attacks until its standard input closes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from harness import http2_peer
from harness.certificates import principal

BAD_TOKEN, GOOD_TOKEN = "token-of-bad-0123456789", "token-of-good-0123456789"
PRINCIPALS = principal("bad", BAD_TOKEN, "long") + principal("good", GOOD_TOKEN, "numbers")
DEEP_TYPE = "arrow_cast(x, '" + "List(" * 9000 + "Int32" + ")" * 9000 + "')"
MATRIX = {"outputs": [{"name": "m", "dtype": "FLOAT64", "parts": [{"columns": [f"c{i}" for i in range(10)]}]}]}
# What an attack may raise: every refusal of the server.
REFUSED = (pa.ArrowException, OSError, AssertionError)

Attack = Callable[[threading.Event], None]


def write_data(root: Path, rows: int = 200_000) -> dict[str, Path]:
    """The datasets of the two principals."""
    random = np.random.default_rng(7)
    numbers = pa.table({"x": np.arange(rows), **{f"c{i}": random.random(rows) for i in range(10)}})
    text = ["".join(chr(97 + (i * k) % 26) for k in range(3000)) for i in range(2000)]
    many = pa.table({"x": np.arange(2000), "s": text, **{f"c{i}": random.random(2000) for i in range(10)}})
    for name, table in (("numbers", numbers), ("long", many)):
        (root / name).mkdir()
        pq.write_table(table, root / name / "a.parquet", row_group_size=max(table.num_rows // 20, 100))
    (root / "principals.toml").write_text(PRINCIPALS)
    return {name: root / name for name in ("numbers", "long")}


def options(token: str) -> fl.FlightCallOptions:
    return fl.FlightCallOptions(timeout=60, headers=[(b"authorization", b"Bearer " + token.encode())])


def request(dataset: str, plan: dict[str, Any], **more: Any) -> fl.FlightDescriptor:
    return fl.FlightDescriptor.for_command(json.dumps({"dataset": dataset, "plan": plan, **more}).encode())


class Attacks:
    """The attacks on a server."""

    def __init__(self, url: str, metrics: str) -> None:
        self.url, self.metrics = url, metrics

    def all(self) -> dict[str, Attack]:
        return {
            "costly filters": self.costly_filters,
            "deep types and long names": self.refused_requests,
            "unread streams": self.unread_streams,
            "unread answers": self.unread_answers,
            "unfinished messages": self.unfinished_messages,
            "bodies without a credential": self.bodies_without_a_credential,
            "idle connections": self.idle_connections,
            "slow requests of metrics": self.slow_metrics,
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """All of them, until the block ends."""
        stop = threading.Event()
        threads = [threading.Thread(target=attack, args=(stop,), name=name) for name, attack in self.all().items()]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(90)
            assert not any(thread.is_alive() for thread in threads), [t.name for t in threads if t.is_alive()]

    def costly_filters(self, stop: threading.Event) -> None:
        """Distances of long strings, in several calls at once; each is left after a while."""

        def ask(number: int) -> None:
            plan = {**MATRIX, "filter": f"levenshtein(s, reverse(s)) > {number}"}
            with contextlib.suppress(*REFUSED), fl.connect(self.url) as client:
                headers = [(b"authorization", b"Bearer " + BAD_TOKEN.encode())]
                client.get_flight_info(request("long", plan), fl.FlightCallOptions(timeout=5, headers=headers))

        for number in itertools.count(step=3):
            threads = [threading.Thread(target=ask, args=(number + each,)) for each in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if stop.is_set():
                return

    def refused_requests(self, stop: threading.Event) -> None:
        name = "é" * 200_000
        derive = [{"name": f"d{i}", "expr": " + ".join(["x"] * 101)} for i in range(1000)]
        plans = [
            {**MATRIX, "filter": f"{DEEP_TYPE} IS NULL"},
            {"outputs": [{"name": "o", "parts": [{"columns": [name]}]}]},
            {**MATRIX, "derive": derive},
            {**MATRIX, "filter": "octet_length(arrow_cast(s, 'FixedSizeBinary(2147483647)')) > 1"},
        ]
        with fl.connect(self.url) as client:
            while not stop.is_set():
                for plan in plans:
                    with contextlib.suppress(*REFUSED):
                        client.get_flight_info(request("long", plan), options(BAD_TOKEN))

    def unread_streams(self, stop: threading.Event) -> None:
        clients: list[fl.FlightClient] = []
        readers: list[Any] = []
        for _ in range(30):
            with contextlib.suppress(*REFUSED):
                clients.append(fl.connect(self.url))
                info = clients[-1].get_flight_info(
                    request("long", MATRIX, shuffle=True, batch_size=500), options(BAD_TOKEN)
                )
                readers.append(clients[-1].do_get(info.endpoints[0].ticket, options(BAD_TOKEN)))
                readers[-1].read_chunk()
            if stop.wait(0.05):
                break
        stop.wait()
        for client in clients:
            client.close()

    def unread_answers(self, stop: threading.Event) -> None:
        """Answers with an endpoint for each of many ranks, to a client that takes nothing."""
        command = json.dumps({"dataset": "long", "plan": MATRIX, "world_size": 2000, "batch_size": 1}).encode()
        body = http2_peer.delimited(2, command)
        token = http2_peer.field("authorization", f"Bearer {BAD_TOKEN}")
        with contextlib.suppress(*REFUSED), http2_peer.Peer(self.url, window=0) as peer:
            for number in range(1, 61, 2):
                head = http2_peer.head("GetFlightInfo") + token
                message = http2_peer.message(b"\x08\x02" + body)
                peer.send(http2_peer.frame(http2_peer.Kind.HEADERS, number, head, http2_peer.END_HEADERS))
                peer.send(http2_peer.frame(http2_peer.Kind.DATA, number, message, http2_peer.END_STREAM))
            stop.wait()

    def unfinished_messages(self, stop: threading.Event) -> None:
        """Messages of exchanges of which the last byte never comes, as far as windows let them."""
        self._send_bodies(stop, "DoExchange", http2_peer.field("authorization", f"Bearer {BAD_TOKEN}"))

    def bodies_without_a_credential(self, stop: threading.Event) -> None:
        self._send_bodies(stop, "../grpc.health.v1.Health/Check", b"")

    def _send_bodies(self, stop: threading.Event, method: str, token: bytes) -> None:
        part = b"\0" * 16_000
        head = http2_peer.head(method)
        if method.startswith("../"):
            path = http2_peer.field(":path", http2_peer.SERVICE + method)
            head = head.replace(path, http2_peer.field(":path", method.removeprefix("..")))
        while not stop.is_set():
            with contextlib.suppress(*REFUSED), http2_peer.Peer(self.url) as peer:
                for number in range(1, 17, 2):
                    peer.send(http2_peer.frame(http2_peer.Kind.HEADERS, number, head + token, http2_peer.END_HEADERS))
                    start = b"\0" + (60 << 20).to_bytes(4, "big")
                    peer.send(http2_peer.frame(http2_peer.Kind.DATA, number, start + part))
                    for _ in range(2):
                        peer.send(http2_peer.frame(http2_peer.Kind.DATA, number, part))
                stop.wait(3)

    def idle_connections(self, stop: threading.Event) -> None:
        peers: list[http2_peer.Peer] = []
        while not stop.wait(0.05):
            if len(peers) < 100:
                with contextlib.suppress(*REFUSED):
                    peers.append(http2_peer.Peer(self.url))
        for peer in peers:
            peer.close()

    def slow_metrics(self, stop: threading.Event) -> None:
        host, _, port = self.metrics.removeprefix("http://").partition("/")[0].rpartition(":")
        held: list[socket.socket] = []
        while not stop.wait(0.01):
            if len(held) >= 200:
                held.pop(0).close()
            with contextlib.suppress(*REFUSED):
                held.append(socket.create_connection((host, int(port)), timeout=2))
                held[-1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\nA: ")
        for each in held:
            each.close()


if __name__ == "__main__":
    with Attacks(*sys.argv[1:]).running():
        sys.stdin.read()

"""An HTTP proxy that injects faults of stores, load balancers and networks into responses."""

from __future__ import annotations

import http.client
import math
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from harness.proxy import RESET

READING = {"GET", "HEAD"}
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True)
class Answer:
    """An answer of the store, and how it goes out."""

    status: int
    headers: dict[str, str]
    body: bytes
    # Requests the same object without a range.
    whole: Callable[[], Answer]
    # Bytes of the body that go out before the answer stops; None: all. Less than none: not even its head.
    stop_after: int | None = None
    # Pause in seconds before the rest; None resets the connection.
    stop_seconds: float | None = None


Fault = Callable[[Answer], Answer]


def error(status: int, code: str, detail: str = "", **headers: str) -> Fault:
    """An error document of S3, Google and Azure; the detail is that of an authentication failure of Azure."""
    more = f"<AuthenticationErrorDetail>{detail}</AuthenticationErrorDetail>" if detail else ""
    document = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code} on purpose.</Message>{more}</Error>"
    fields = {"Content-Type": "application/xml", **{name.replace("_", "-"): text for name, text in headers.items()}}
    return lambda answer: replace(answer, status=status, headers=fields, body=document.encode())


def cut(after: int) -> Fault:
    return lambda answer: replace(answer, stop_after=after)


def stall(after: int, seconds: float = math.inf) -> Fault:
    return lambda answer: replace(answer, stop_after=after, stop_seconds=seconds)


def another_tag(answer: Answer) -> Answer:
    return replace(answer, headers={**answer.headers, "Etag": '"0123456789abcdef0123456789abcdef"'})


def another_range(answer: Answer) -> Answer:
    """The requested number of bytes from an offset 8 bytes off, with a matching Content-Range."""
    found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", answer.headers.get("Content-Range", ""))
    assert found
    start, end, size = (int(text) for text in found.groups())
    aside = -8 if start >= 8 else 8
    length, start = end + 1 - start, start + aside
    body = answer.whole().body[start:][:length].ljust(length, b"\0")
    content_range = f"bytes {start}-{start + length - 1}/{max(size, start + length)}"
    return replace(answer, headers={**answer.headers, "Content-Range": content_range}, body=body)


def whole_body(answer: Answer) -> Answer:
    """A store without range support."""
    return answer.whole()


def shorter(answer: Answer) -> Answer:
    """Less than the answer's own head says that it holds, in a body that ends in good order."""
    return replace(answer, body=answer.body[:-8])


def longer(answer: Answer) -> Answer:
    return replace(answer, body=answer.body + b"\0" * 8)


@dataclass
class Rule:
    """From the `skip`-th fitting request on, so many get the fault."""

    fault: Fault
    key: str
    times: float
    skip: int
    ranged: bool
    methods: tuple[str, ...]
    hits: int = 0

    def fits(self, seen: Seen) -> bool:
        is_of_range = seen.range is not None or not self.ranged
        return seen.method in self.methods and self.key in seen.path and is_of_range


@dataclass(frozen=True)
class Seen:
    """A received request."""

    method: str
    path: str
    range: str | None
    at: float = field(default_factory=time.monotonic)


class FaultProxy:
    """Forwards requests to an HTTP store, and its responses changed by rules."""

    def __init__(self, target: str) -> None:
        self.target = target.removeprefix("http://")
        self.seen: list[Seen] = []
        # Mistakes of the faults themselves.
        self.errors: list[Exception] = []
        # Names of headers, in lower case, that the store does not receive.
        self.hidden_headers: set[str] = set()
        # Writes reach the store one at a time: some emulators check a condition before they lock.
        self.writing = threading.Lock()
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self.closing = threading.Event()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def on(
        self,
        fault: Fault,
        key: str,
        *,
        times: float = math.inf,
        skip: int = 0,
        ranged: bool = True,
        methods: tuple[str, ...] = ("GET",),
    ) -> Rule:
        """Faults for GETs, or other methods, whose path or query holds `key`; with `ranged`, only for ranges."""
        rule = Rule(fault, key, times, skip, ranged, methods)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """From now on everything is passed on as it is."""
        with self._lock:
            self._rules.clear()
            self.seen.clear()

    def requests(self, key: str) -> list[Seen]:
        return [seen for seen in list(self.seen) if key in seen.path]

    def fault_for(self, seen: Seen) -> Fault | None:
        """Return the fault of the first rule that fits."""
        with self._lock:
            self.seen.append(seen)
            for rule in self._rules:
                if not rule.fits(seen):
                    continue
                if rule.skip > 0:
                    rule.skip -= 1
                elif rule.hits < rule.times:
                    rule.hits += 1
                    return rule.fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def do_GET(self) -> None:
        # Some clients escape every character of a key but letters and digits.
        fault = self.proxy.fault_for(Seen(self.command, unquote(self.path), self.headers.get("Range")))
        answer = self.ask(with_range=True)
        try:
            self.answer(fault(answer) if fault else answer)
        except OSError:
            # The server closed the connection, or the response must be cut.
            self.close_connection = True
        except Exception as error:
            self.proxy.errors.append(error)
            raise

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def ask(self, with_range: bool) -> Answer:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command in READING:
            return self.forward(body, with_range)
        with self.proxy.writing:
            return self.forward(body, with_range)

    def forward(self, body: bytes, with_range: bool) -> Answer:
        connection = http.client.HTTPConnection(self.proxy.target, timeout=30)
        dropped = (HOP_BY_HOP if with_range else HOP_BY_HOP | {"range"}) | self.proxy.hidden_headers
        headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        # Python adds the length of a body.
        connection.request(self.command, self.path, None if self.command in READING else body, headers)
        response = connection.getresponse()
        kept = {name.title(): value for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP}
        if self.command == "HEAD":
            kept["Content-Length"] = response.headers["Content-Length"] or "0"
        answer = Answer(response.status, kept, response.read(), lambda: self.forward(b"", with_range=False))
        connection.close()
        return answer

    def answer(self, answer: Answer) -> None:
        stop = len(answer.body) if answer.stop_after is None else answer.stop_after
        if stop < 0:
            self.stop(answer.stop_seconds)
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in answer.headers:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body[: max(stop, 0)])
        if answer.stop_after is not None and stop >= 0:
            self.stop(answer.stop_seconds)
        self.wfile.write(answer.body[max(stop, 0) :])

    def stop(self, seconds: float | None) -> None:
        self.wfile.flush()
        if seconds is None:
            # What has been written still arrives: the writing half ends first.
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.close_connection = True
            raise BrokenPipeError
        self.proxy.closing.wait(None if math.isinf(seconds) else seconds)
        if self.proxy.closing.is_set():
            raise BrokenPipeError

    def log_message(self, *_: object) -> None:
        pass

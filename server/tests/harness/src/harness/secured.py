"""A server with TLS, principals and signed tickets, and requests to it over bare pyarrow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.certificates import Authority, Pair, principal
from harness.damaged_files import as_stored
from harness.serving import Serve, Server

TRAINER, OTHER, ADMIN = "token-of-trainer-0123456789", "token-of-other-0123456789", "token-of-admin-0123456789"
PRINCIPALS = (
    principal("trainer", TRAINER, "numbers", "ghost-*")
    + principal("other", OTHER, "numbers", "secret")
    + principal("admin", ADMIN, "*")
)
PLAN = as_stored("x")
LOOKUP = {
    "outputs": [
        {
            "name": "y",
            "dtype": "FLOAT32",
            "parts": [
                {
                    "columns": ["x"],
                    "ops": [
                        {"lookup": {"table": "secret", "key": "x", "columns": ["hidden"]}},
                        {"fill_null": {"value": 0}},
                    ],
                }
            ],
        },
    ]
}


def bearer(token: str | None) -> fl.FlightCallOptions:
    headers = [] if token is None else [(b"authorization", b"Bearer " + token.encode())]
    return fl.FlightCallOptions(timeout=20, headers=headers)


def refused(phrase: str, words: str = "") -> Any:
    """What pyarrow raises differs from call to call; the phrase of the code is the same."""
    return pytest.raises((pa.ArrowException, OSError), match=f"(?s){phrase} error.*{words}")


def request(dataset: str, **more: Any) -> fl.FlightDescriptor:
    return fl.FlightDescriptor.for_command(json.dumps({"dataset": dataset, **({"plan": PLAN} | more)}).encode())


def table(dataset: str, **more: Any) -> fl.FlightDescriptor:
    return fl.FlightDescriptor.for_command(json.dumps({"table": {"dataset": dataset, **more}}).encode())


def action(name: str, **body: Any) -> fl.Action:
    return fl.Action(name, json.dumps(body).encode())


class Secured:
    """A server with three principals, and its clients."""

    def __init__(self, serve: Serve, root: Path, *flags: str) -> None:
        self.root = root
        for name in ("numbers", "secret", "hidden"):
            (root / name).mkdir(parents=True)
        pq.write_table(
            pa.table({"x": pa.array(range(1000), pa.int64())}), root / "numbers/a.parquet", row_group_size=99
        )
        table = pa.table({"x": pa.array(range(1000), pa.int64()), "hidden": pa.array([0.5] * 1000)})
        pq.write_table(table, root / "secret/a.parquet")
        pq.write_table(table, root / "hidden/a.parquet")
        self.authority = Authority(root / "certificates")
        self.pair = self.authority.issue("server", "localhost", "127.0.0.1")
        self.principals = root / "principals.toml"
        self.principals.write_text(PRINCIPALS)
        self.flags = ["--tls-cert", str(self.pair.cert), "--tls-key", str(self.pair.key)]
        self.flags += ["--principals", str(self.principals), "--ticket-key", str(self.key()), "--log", "trace", *flags]
        self._serve = serve
        self.server = self.start()

    def key(self) -> Path:
        key = self.root / "ticket-key"
        key.write_text("4f" * 32)
        return key

    def start(self, *flags: str) -> Server:
        datasets = {name: self.root / name for name in ("numbers", "secret", "hidden")}
        return self._serve(datasets, *self.flags, *flags)

    def client(self, url: str = "", pair: Pair | None = None) -> fl.FlightClient:
        url = url or self.server.url
        assert url.startswith("grpc+tls://")
        chain = {} if pair is None else {"cert_chain": pair.cert.read_bytes(), "private_key": pair.key.read_bytes()}
        return fl.FlightClient(url, tls_root_certs=self.authority.ca.read_bytes(), **chain)

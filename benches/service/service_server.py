"""A forebay-server with a state of the caller's, and what /proc says of it (Linux)."""

from __future__ import annotations

import json
import os
from typing import Any

import pyarrow.flight as fl

from harness.benches.bench_server import OWN_CONNECTION, RunningServer


class Server(RunningServer):
    """A running server."""

    def connect(self) -> fl.FlightClient:
        """Return a client with a connection of its own."""
        return fl.FlightClient(self.url, generic_options=OWN_CONNECTION)

    def fit(self, dataset: str, plan: dict[str, Any]) -> dict[str, Any]:
        """Fit the plan; return the result, with its id and the whole plan."""
        action = fl.Action("fit", json.dumps({"dataset": dataset, "plan": plan}).encode())
        with self.connect() as client:
            *_, last = client.do_action(action)
        return json.loads(last.body.to_pybytes())["result"]

    def rss_bytes(self) -> int:
        """Bytes that are resident."""
        return self._status("VmRSS") * 1024

    def threads(self) -> int:
        """Threads that there are."""
        return self._status("Threads")

    def descriptors(self) -> int:
        """Open file descriptors."""
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

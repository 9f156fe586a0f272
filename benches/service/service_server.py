"""A forebay-server with a given state directory, and its figures from /proc (Linux)."""

from __future__ import annotations

import json
import os
from typing import Any

import pyarrow.flight as fl

from harness.benches.bench_server import OWN_CONNECTION, RunningServer


class Server(RunningServer):
    """A running server."""

    def connect(self) -> fl.FlightClient:
        """Return a client with its own connection."""
        return fl.FlightClient(self.url, generic_options=OWN_CONNECTION)

    def fit(self, dataset: str, plan: dict[str, Any]) -> dict[str, Any]:
        """Fit the plan; return the result with plan id and fitted plan."""
        action = fl.Action("fit", json.dumps({"dataset": dataset, "plan": plan}).encode())
        with self.connect() as client:
            *_, last = client.do_action(action)
        return json.loads(last.body.to_pybytes())["result"]

    def rss_bytes(self) -> int:
        """Return resident bytes."""
        return self._status("VmRSS") * 1024

    def threads(self) -> int:
        """Return the number of threads."""
        return self._status("Threads")

    def descriptors(self) -> int:
        """Return the number of open file descriptors."""
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

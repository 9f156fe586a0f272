"""A real forebay-server for the tests, and bare pyarrow Flight calls to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from harness.repository import ROOT

START_SECONDS = 60


def server_binary() -> str:
    """The server under test; a missing one is an error, never a skip."""
    path = Path(os.environ.get("FOREBAY_SERVER_BIN") or ROOT / "target/debug/forebay-server")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: build it with `cargo build`, or set FOREBAY_SERVER_BIN")
    return str(path)


class Server:
    """A server on free loopback ports; it exits when its standard input closes, so that no test run leaks one."""

    def __init__(self, datasets: Mapping[str, os.PathLike[str] | str], *flags: str, unix: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forebay-test-")
        listen = f"unix:{self._folder.name}/flight.sock" if unix else "127.0.0.1:0"
        command = [server_binary(), "--listen", listen, "--metrics-listen", "127.0.0.1:0", "--exit-with-stdin"]
        command += ["--state", os.path.join(self._folder.name, "state"), *flags]
        for name, root in datasets.items():
            command += ["--dataset", f"{name}={os.fspath(root)}"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log: deque[str] = deque(maxlen=200)
        self.url = ""
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self._ready.wait(START_SECONDS)
        if not self.url:
            self.stop()
            raise RuntimeError("the server did not start:\n" + "".join(self.log))

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if match := re.search(r"listening on (grpc\S*://\S+)", line):
                self.url = match[1]
                self._ready.set()
        self._ready.set()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        self.process.stderr.close()
        self._folder.cleanup()


Serve = Callable[..., Server]
"""The type of the fixture `serve`."""


def info(client: fl.FlightClient, request: Mapping[str, Any]) -> fl.FlightInfo:
    return client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(request).encode()))


def raw_table(client: fl.FlightClient, dataset: str) -> pa.Table:
    found = client.get_flight_info(fl.FlightDescriptor.for_path(dataset))
    return client.do_get(found.endpoints[0].ticket).read_all()


def fit(client: fl.FlightClient, dataset: str, plan: Mapping[str, Any], **more: Any) -> list[dict[str, Any]]:
    body = json.dumps({"dataset": dataset, "plan": plan, **more}).encode()
    return [json.loads(r.body.to_pybytes()) for r in client.do_action(fl.Action("fit", body))]


def plan_of(outputs: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"outputs": outputs, **more}


def stored(*columns: str) -> list[dict[str, Any]]:
    return [{"name": name, "dtype": "AS_STORED", "parts": [{"columns": [name]}]} for name in columns]


def read(client: fl.FlightClient, dataset: str, plan: dict[str, Any]) -> pa.Table:
    found = info(client, {"dataset": dataset, "plan": plan, "batch_size": 50})
    return client.do_get(found.endpoints[0].ticket).read_all()
